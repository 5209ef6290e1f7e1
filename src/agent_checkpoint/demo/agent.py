"""The agent of the demo, to copy: `hunt` is all that it takes to go on after a crash."""

from __future__ import annotations

import sys

from agent_checkpoint import Checkpointer
from agent_checkpoint.demo.story import TASK, run_tool
from agent_checkpoint.demo.wire import ModelGoneError, call_model


def hunt(path: str) -> None:
    """Work on the task until the model calls no tool, from wherever the log at *path* ends."""
    with Checkpointer(path, label="bug-hunt", run_id="demo") as ckpt:
        last = ckpt.last_record
        messages = last.data["messages"] if last else [{"role": "user", "content": TASK}]
        while messages[-1]["role"] != "assistant":
            answer = call_model(messages)
            messages.append(answer)
            if "tool" in answer:
                messages.append(run_tool(answer["tool"]))
            ckpt.save({"messages": messages})


if __name__ == "__main__":
    try:
        hunt(sys.argv[1])
    except ModelGoneError:
        sys.exit(1)
