"""The demo: what it counts is what happened, and it notices an agent that does not resume."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agent_checkpoint
from agent_checkpoint.demo import agent, stage
from agent_checkpoint.demo.__main__ import AGENT, kills_for, main
from agent_checkpoint.demo.audit import LogMismatchError, Turn, check
from agent_checkpoint.demo.bill import Bill
from agent_checkpoint.demo.model import Call
from agent_checkpoint.demo.story import STORY, conversation, shortened

SOURCES = str(Path(agent_checkpoint.__file__).parents[1])
DEMO = (sys.executable, "-m", "agent_checkpoint.demo")
LOG = Path("the log", "run.jsonl")  # a name with a space, which a shell would take for two
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and shells of POSIX")


def environment(**more: str) -> dict[str, str]:
    """Return the environment for a demo that prints as it would without settings of ours."""
    ours = {"NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "PYTHONPATH": SOURCES, **more}


def run_demo(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the demo without delays, its output piped and its log in folder."""
    return subprocess.run(
        [*DEMO, "--fast", "--dir", LOG.parent, *arguments],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the records of the log in *folder*."""
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def price(record: dict[str, Any], streamed: str | None = None) -> int:
    """Return what the call of the turn in *record* cost, in millionths of a dollar."""
    messages = record["data"]["messages"]
    answer = max(n for n, message in enumerate(messages) if message["role"] == "assistant")
    sent = json.dumps(messages[:answer])
    received = messages[answer]["content"] if streamed is None else streamed
    return 3 * -(-len(sent) // 4) + 15 * -(-len(received) // 4)


def dollars(millionths: int) -> str:
    """Write a price as the demo does."""
    return f"${millionths / 1e6:.4f}"


def number(output: str, pattern: str) -> int:
    """Return the one number that *pattern* finds in *output*."""
    (found,) = re.findall(pattern, output)
    return int(found)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the whole demo once; return the folder it ran in and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    done = run_demo(folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder, done.stdout


def test_the_log_holds_every_turn_once_and_in_order(demo: tuple[Path, str]) -> None:
    folder, _ = demo

    records = read_log(folder)

    assert [record["turn"] for record in records] == list(range(1, 31))
    for turn, record in enumerate(records, start=1):
        assert record["data"]["messages"] == conversation(STORY[:turn])
        assert record["meta"] == {"label": "bug-hunt", "run_id": "demo"}


def test_two_kills_cost_one_call(demo: tuple[Path, str]) -> None:
    folder, output = demo
    records = read_log(folder)
    prices = [price(record) for record in records]

    cut = number(output, r"KILLED  process \d+ by SIGKILL, in the middle of call (\d+)")
    after = number(output, r"KILLED  process \d+ by SIGKILL, after the save of turn (\d+)")
    counted = re.findall(r"^ +(\S.*\S)  +(\d+) +(\$\S+)$", output, re.MULTILINE)

    (streamed,) = re.findall(rf"^ +{cut}  (.*)\.\.\.$", output, re.MULTILINE)
    lost = price(records[cut - 1], streamed)
    spared = sum(prices[: cut - 1]) + sum(prices[:after])
    assert f"lost: the answer so far, {dollars(lost)}; call {cut} is made again" in output
    assert counted == [
        ("model calls made", str(len(records) + 1), dollars(sum(prices) + lost)),
        ("of these cut off by a kill, so made again", "1", dollars(lost)),
        (
            "more calls, had it begun again at turn 1 each time",
            str(cut - 1 + after),
            dollars(spared),
        ),
    ]


def test_each_kill_is_followed_by_what_the_next_process_found(demo: tuple[Path, str]) -> None:
    _, output = demo

    found = re.findall(r"last record: turn (\d+)\n.*?(\d+) messages, on to turn (\d+)", output)

    assert found == [("12", "25", "13"), ("22", "45", "23")]
    assert len(set(re.findall(r"process (\d+) starts", output))) == 3


def test_each_turn_has_its_line_and_the_cut_one_has_two(demo: tuple[Path, str]) -> None:
    _, output = demo

    turns = [int(turn) for turn in re.findall(r"^ +(\d+)  ", output, re.MULTILINE)]

    assert turns == sorted([*range(1, 31), 13])


def test_the_cut_line_ends_in_the_middle_and_the_kill_stands_below_it(
    demo: tuple[Path, str],
) -> None:
    _, output = demo
    headline = STORY[12].says.splitlines()[0]

    (streamed,) = re.findall(r"^  13  (.*)\.\.\.\n {6}KILLED  process", output, re.MULTILINE)

    assert headline.startswith(streamed)
    assert len(headline) <= 2 * len(streamed) < 2 * len(headline)


def test_the_costs_stand_below_each_other_and_grow(demo: tuple[Path, str]) -> None:
    _, output = demo

    lines = re.findall(r"^( +\d+  .*) \$(\S+)$", output, re.MULTILINE)

    assert {len(before) for before, _ in lines} == {72}
    costs = [float(cost) for _, cost in lines]
    assert len(set(costs)) == 30
    assert costs == sorted(costs)


def test_piped_output_is_plain_and_fits_80_columns(demo: tuple[Path, str]) -> None:
    _, output = demo

    assert not re.search(r"[^\n -~]", output)
    assert max(map(len, output.splitlines())) <= 80


@needs_posix
@pytest.mark.parametrize("tool", ["tail", "jq"])
def test_the_commands_that_are_shown_show_the_last_turn(demo: tuple[Path, str], tool: str) -> None:
    if not (shutil.which(tool) and shutil.which("python3")):
        pytest.skip(f"{tool} or python3 is not installed here")
    folder, output = demo
    (command,) = re.findall(rf"^  ({tool} .*)$", output, re.MULTILINE)

    shown = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, check=True
    )

    assert json.dumps(STORY[-1].says) in shown.stdout


def test_colours_only_colour(tmp_path: Path, demo: tuple[Path, str]) -> None:
    _, plain = demo

    coloured = run_demo(tmp_path, FORCE_COLOR="1").stdout

    def without_pids(text: str) -> str:
        return re.sub(r"process \d+", "process", text)

    assert ESCAPE.search(coloured)
    assert without_pids(ESCAPE.sub("", coloured)) == without_pids(plain)


def test_no_color_beats_force_color(tmp_path: Path) -> None:
    assert "\x1b" not in run_demo(tmp_path, NO_COLOR="1", FORCE_COLOR="1").stdout


@needs_posix
@pytest.mark.parametrize(("setting", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_colours_unless_it_wants_none(
    tmp_path: Path, setting: dict[str, str], coloured: bool
) -> None:
    ours, theirs = os.openpty()

    with subprocess.Popen(
        [*DEMO, "--fast", "--turns", "3", "--dir", str(tmp_path)],
        env=environment(**setting),
        stdout=theirs,
    ) as process:
        os.close(theirs)
        output = b""
        while True:
            try:
                output += os.read(ours, 65536)
            except OSError:  # a terminal's way of saying that nobody writes any more
                break
    os.close(ours)

    assert process.returncode == 0
    assert (b"\x1b[" in output) is coloured


BROKEN_AGENTS = {
    "forgets what it saved": (
        "while unfinished(): turn(); ckpt.save({'messages': messages})",
        "line 13 of the log does not hold the conversation up to turn 13",
    ),
    "goes back one turn": (
        "if ckpt.last_record: messages[:] = ckpt.last_record.data['messages'][:-2]\n"
        "while unfinished(): turn(); ckpt.save({'messages': messages})",
        "line 13 of the log does not hold the conversation up to turn 13",
    ),
    "saves twice": (
        "if ckpt.last_record: messages[:] = ckpt.last_record.data['messages']\n"
        "while unfinished():\n"
        "    turn()\n"
        "    ckpt.save({'messages': messages})\n"
        "    ckpt.save({'messages': messages})",
        "line 2 of the log does not hold the conversation up to turn 2",
    ),
    "saves before it calls": (
        "if ckpt.last_record: messages[:] = ckpt.last_record.data['messages']\n"
        "while unfinished(): ckpt.save({'messages': messages}); turn()",
        "line 1 of the log does not hold the conversation up to turn 1",
    ),
    "never saves": ("while unfinished(): turn()", "line 1 of the log is missing"),
    "saves something else": (
        "while unfinished(): turn(); ckpt.save({'answer': messages})",
        "line 1 of the log is not a record with a turn and messages",
    ),
    "stops early": (
        "if ckpt.last_record: messages[:] = ckpt.last_record.data['messages']\n"
        "for _ in range(5): turn(); ckpt.save({'messages': messages})",
        "line 16 of the log is missing",
    ),
    "does not stop": (
        "if ckpt.last_record: messages[:] = ckpt.last_record.data['messages']\n"
        "while len(messages) < 61: turn(); ckpt.save({'messages': messages})",
        "line 31 of the log comes after the end",
    ),
    "fails": ("raise SystemExit(3)", "the agent ended by itself with status 3"),
    "hangs up in a call": (
        "import os; os.close(0); print('[]', flush=True); raise SystemExit(3)",
        "the agent ended by itself with status 3",
    ),
}


@pytest.mark.parametrize("name", BROKEN_AGENTS)
def test_a_broken_agent_is_noticed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body, complaint = BROKEN_AGENTS[name]
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import sys\n"
        "from agent_checkpoint import Checkpointer\n"
        "from agent_checkpoint.demo.story import TASK, run_tool\n"
        "from agent_checkpoint.demo.wire import call_model\n"
        "messages = [{'role': 'user', 'content': TASK}]\n"
        "def unfinished():\n"
        "    return messages[-1]['role'] != 'assistant'\n"
        "def turn():\n"
        "    messages.append(call_model(messages))\n"
        "    if 'tool' in messages[-1]: messages.append(run_tool(messages[-1]['tool']))\n"
        "ckpt = Checkpointer(sys.argv[1])\n" + body
    )
    monkeypatch.setenv("PYTHONPATH", SOURCES)

    status = main(["--fast", "--dir", str(tmp_path / "log")], agent=[sys.executable, str(broken)])

    assert status == 1
    assert complaint in capsys.readouterr().err


def test_only_a_turn_that_was_saved_counts_as_spared() -> None:
    bill = Bill()
    calls = [Call(conversation(STORY[:turns]), STORY) for turns in (0, 1)]
    for call in calls:
        bill.answered(call)

    bill.killed(saved_turns=1)

    assert bill.spared == (1, calls[0].price)


WHOLE = [Turn(turn, conversation(STORY[:turn])) for turn in range(1, 31)]


@pytest.mark.parametrize("at", range(30))
def test_a_dropped_a_doubled_and_a_renumbered_turn_are_noticed(at: int) -> None:
    dropped = WHOLE[:at] + WHOLE[at + 1 :]
    doubled = WHOLE[: at + 1] + WHOLE[at:]
    renumbered = [*WHOLE[:at], WHOLE[at]._replace(turn=31), *WHOLE[at + 1 :]]

    check(WHOLE, STORY)
    for log in (dropped, doubled, renumbered):
        with pytest.raises(LogMismatchError):
            check(log, STORY)


def test_a_turn_after_the_end_is_noticed() -> None:
    with pytest.raises(LogMismatchError, match="line 31 of the log comes after the end"):
        check([*WHOLE, Turn(31, WHOLE[-1].messages)], STORY)


@needs_posix
def test_ctrl_c_ends_the_agent_too_and_shows_no_traceback(tmp_path: Path) -> None:
    # Where tests run in the background SIGINT is ignored, and programs inherit that.
    program = (
        "import runpy, signal;"
        " signal.signal(signal.SIGINT, signal.default_int_handler);"
        " runpy.run_module('agent_checkpoint.demo', run_name='__main__')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "--pace", "60", "--dir", str(tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    greeting = next(line for line in process.stdout if "starts" in line)
    agent_pid = number(greeting, r"process (\d+) starts")
    group_of_agent = os.getpgid(agent_pid)

    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate()

    assert process.returncode == 130
    assert group_of_agent != process.pid  # a terminal's Ctrl-C goes to the whole group
    assert complaint.splitlines() == [
        "",
        "demo: interrupted, and the agent killed."
        f" The turns so far are in {tmp_path / 'run.jsonl'}",
    ]
    with pytest.raises(ProcessLookupError):
        os.kill(agent_pid, 0)


@needs_posix
def test_a_pipe_that_nobody_reads_ends_the_demo_quietly(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [*DEMO, "--fast", "--dir", str(tmp_path)],
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (141, b"")


def test_a_log_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / LOG
    log.parent.mkdir()
    log.write_text("somebody's run\n")

    done = run_demo(tmp_path)

    assert done.returncode == 2
    assert "run.jsonl holds a run already" in done.stderr
    assert log.read_text() == "somebody's run\n"


@pytest.mark.parametrize(
    "arguments", [("--turns", "2"), ("--turns", "31"), ("--pace", "-1"), ("--pace", "soon")]
)
def test_a_setting_without_sense_is_a_usage_error(
    arguments: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--dir", str(tmp_path / "log"), *arguments])

    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("turns", range(3, 31))
def test_both_kills_fit_into_a_story_of_any_length(turns: int) -> None:
    in_call, after_save = kills_for(turns)

    assert (in_call.in_call, after_save.in_call) == (True, False)
    assert 1 < in_call.turn <= after_save.turn < turns
    assert len(shortened(turns)) == turns


def test_the_shortest_story_is_killed_twice_too(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--turns", "3")

    assert (done.returncode, done.stdout.count("KILLED")) == (0, 2)
    assert [record["turn"] for record in read_log(tmp_path)] == [1, 2, 3]


def test_without_dir_the_log_is_put_into_a_fresh_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCES)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    status = main(["--fast", "--turns", "3"])

    (log,) = tmp_path.glob("agent-checkpoint-demo-*/run.jsonl")
    assert status == 0
    assert f"  {log}\n" in capsys.readouterr().out


def test_at_its_usual_pace_the_demo_waits_about_nine_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setenv("PYTHONPATH", SOURCES)
    monkeypatch.setattr("agent_checkpoint.demo.play.time.sleep", waits.append)

    main(["--dir", str(tmp_path)])

    assert 8 < sum(waits) < 10


def test_an_agent_whose_model_is_gone_ends_quietly(tmp_path: Path) -> None:
    done = subprocess.run(
        [*AGENT, str(tmp_path / "run.jsonl")],
        env=environment(),
        input=b"",
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (1, b"")


@needs_posix
@pytest.mark.parametrize("turns", [0, 29])
def test_an_agent_that_cannot_reach_its_model_ends_quietly(
    turns: int, tmp_path: Path, demo: tuple[Path, str]
) -> None:
    folder, _ = demo
    log = tmp_path / "run.jsonl"
    log.write_bytes(b"".join((folder / LOG).read_bytes().splitlines(keepends=True)[:turns]))
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [*AGENT, str(log)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (1, b"")


def test_an_agent_that_is_done_makes_no_further_call(demo: tuple[Path, str]) -> None:
    folder, _ = demo

    done = subprocess.run(
        [*AGENT, str(folder / LOG)],
        env=environment(),
        input=b"",
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_code_that_is_shown_stands_in_the_agent() -> None:
    source = inspect.getsource(agent.hunt)

    assert stage.LAST_RECORD in source
    assert stage.MESSAGES in source


def test_each_tool_call_of_the_story_occurs_once() -> None:
    calls = [step.tool for step in STORY]

    assert len(set(calls)) == len(calls)
    assert [step for step in STORY if not step.tool] == [STORY[-1]]
