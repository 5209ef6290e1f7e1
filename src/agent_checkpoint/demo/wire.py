"""The line between the agent's process and the model: JSON lines over the agent's own pipes.

The agent writes its messages in one line to stdout. The model answers on the agent's stdin with
one line for each piece of text, ``{"text": ...}``, and a last one, ``{"tool": ...}``.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import cast

from agent_checkpoint.demo.story import Message


class ModelGoneError(ConnectionError):
    """The process that runs the model has ended; the agent cannot go on."""


def call_model(messages: Sequence[Message]) -> Message:
    """Send *messages* to the model and return its answer, ready to append to them."""
    try:
        # Not print(): the interpreter would try again, on its way out, what did not get through.
        with open(sys.stdout.fileno(), "wb", closefd=False) as model:
            model.write(json.dumps(messages).encode() + b"\n")
    except BrokenPipeError as error:
        raise ModelGoneError from error
    answer: Message = {"role": "assistant", "content": ""}
    for line in sys.stdin:
        part = cast("dict[str, str]", json.loads(line))
        if "text" in part:
            answer["content"] += part["text"]
            continue
        if part["tool"]:
            answer["tool"] = part["tool"]
        return answer
    raise ModelGoneError


class AgentProcess:
    """An agent in a process of its own, which does not outlive the ``with`` block."""

    def __init__(self, command: Sequence[str]) -> None:
        # A session (on Windows a group) of its own: Ctrl-C is for the demo, which ends the agent.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.pid = self._process.pid

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def requests(self) -> Iterator[list[Message]]:
        """Yield the messages of each call the agent makes, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield cast("list[Message]", json.loads(line))

    def send(self, part: Message) -> None:
        """Send one piece of an answer; an agent that has ended does not get it."""
        assert self._process.stdin is not None
        # How it ended is told by wait(), to whoever finds no further request.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(part).encode() + b"\n")
            self._process.stdin.flush()

    def wait(self) -> int:
        """Wait until the agent has ended by itself and return its exit status."""
        return self._process.wait()

    def kill(self) -> int:
        """Kill the agent with SIGKILL, wait until it is gone, and return its exit status."""
        self._process.kill()
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            # What is still buffered for the dead has no reader.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return status
