"""The published description of trace-checkpoint: its snippets run as printed.

What they leave open (a model, a prompt) is given to them as names.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

ONE_LINE_A_TURN = """
from trace_checkpoint import Checkpointer
ckpt = Checkpointer("checkpoints/run.jsonl")
for turn in range(1, 100):
    response = call_llm(messages)
    messages.append({"role": "assistant", "content": response.text})
    ckpt.save({"messages": messages}) # one JSONL line per turn
    if is_done(response):
        break
"""

RESUME = """
ckpt = Checkpointer("checkpoints/run.jsonl")
last = ckpt.last_record
if last:
    messages = last.data["messages"]
    start_turn = last.turn + 1
    print(f"Resuming from turn {start_turn}")
else:
    messages = [{"role": "system", "content": SYSTEM_PROMPT}]
    start_turn = 1
for turn in range(start_turn, 100):
    ...
"""

AUTO_TURNS = """
ckpt = Checkpointer("run.jsonl")
ckpt.save({"x": 1}) # turn 1
ckpt.save({"x": 2}) # turn 2
ckpt.save({"x": 3}) # turn 3
"""

EXPLICIT_TURN = """
ckpt.save({"messages": messages}, turn=turn)
"""

TAGS = """
ckpt = Checkpointer(
    "checkpoints/worker-1.jsonl",
    label="literature-review",
    run_id="run-2026-05-24",
)
"""

WHAT_IS_SAVED = """
ckpt.save({
    "messages": messages, # full message history to this point
    "tool_results": tool_results, # tool call outputs
    "sub_tasks_done": sub_tasks_done, # which sub-tasks completed
    "cost_usd": running_cost, # cost so far
})
"""

PUBLISHED_LINE = (
    '{"turn":1,"ts":1716566401.2,"data":{"messages":[]},'
    '"meta":{"label":"research","run_id":"run-001"}}\n'
)


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return {
        "call_llm": lambda messages: SimpleNamespace(text=f"reply {len(messages)}"),
        "is_done": lambda response: response.text == "reply 7",
        "messages": [{"role": "system", "content": "Be brief."}],
        "SYSTEM_PROMPT": "Be brief.",
        "tool_results": [{"hits": 3}],
        "sub_tasks_done": ["search"],
        "running_cost": 0.25,
    }


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("package", ["trace_checkpoint", "agent_checkpoint"])
def test_each_save_is_one_line(names, tmp_path, package):
    exec(ONE_LINE_A_TURN.replace("trace_checkpoint", package), names)

    lines = lines_of(tmp_path / "checkpoints/run.jsonl")
    assert [line["turn"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert [len(line["data"]["messages"]) for line in lines] == [2, 3, 4, 5, 6, 7, 8]


def test_there_is_nothing_to_resume_at_first(names):
    exec("from trace_checkpoint import Checkpointer" + RESUME, names)

    assert names["last"] is None
    assert names["start_turn"] == 1


def test_a_second_program_resumes_where_the_first_stopped(names, capsys):
    exec(ONE_LINE_A_TURN, names)

    exec("from trace_checkpoint import Checkpointer" + RESUME, names)

    assert capsys.readouterr().out == "Resuming from turn 8\n"
    assert names["messages"][-1] == {"role": "assistant", "content": "reply 7"}


def test_turns_number_themselves(names, tmp_path):
    exec("from trace_checkpoint import Checkpointer" + AUTO_TURNS, names)
    exec("from trace_checkpoint import Checkpointer" + AUTO_TURNS, names)

    assert [line["turn"] for line in lines_of(tmp_path / "run.jsonl")] == [1, 2, 3, 4, 5, 6]


def test_a_turn_can_be_given(names, tmp_path):
    exec("from trace_checkpoint import Checkpointer" + AUTO_TURNS, names)

    exec(EXPLICIT_TURN, {**names, "turn": 2})

    assert [line["turn"] for line in lines_of(tmp_path / "run.jsonl")] == [1, 2, 3, 2]


def test_label_and_run_id_are_in_the_meta_of_every_record(names, tmp_path):
    exec("from trace_checkpoint import Checkpointer" + TAGS, names)

    exec(WHAT_IS_SAVED + WHAT_IS_SAVED, names)

    tags = {"label": "literature-review", "run_id": "run-2026-05-24"}
    lines = lines_of(tmp_path / "checkpoints/worker-1.jsonl")
    assert [line["meta"] for line in lines] == [tags, tags]
    assert lines[1]["data"]["cost_usd"] == 0.25


def test_the_published_members_come_first_and_in_their_order(names, tmp_path):
    exec("from trace_checkpoint import Checkpointer" + AUTO_TURNS, names)

    for line in lines_of(tmp_path / "run.jsonl"):
        assert list(line) == ["turn", "ts", "data", "meta", "sum"]


def test_a_file_in_the_published_format_is_read_and_appended_to(names, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/run.jsonl").write_text(PUBLISHED_LINE)

    exec("from trace_checkpoint import Checkpointer" + RESUME, names)
    names["ckpt"].save({"messages": []})

    assert names["start_turn"] == 2
    assert names["last"].ts == 1716566401.2
    assert (tmp_path / "checkpoints/run.jsonl").read_text().startswith(PUBLISHED_LINE)
    assert [line["turn"] for line in lines_of(tmp_path / "checkpoints/run.jsonl")] == [1, 2]


def test_nothing_but_the_log_is_left_in_its_folder(names, tmp_path):
    exec(ONE_LINE_A_TURN, names)

    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["run.jsonl"]


def test_the_facade_is_the_same_class():
    import agent_checkpoint
    import trace_checkpoint

    assert trace_checkpoint.Checkpointer is agent_checkpoint.Checkpointer
    assert sys.modules["trace_checkpoint"].__all__ == ["Checkpointer", "Record"]
