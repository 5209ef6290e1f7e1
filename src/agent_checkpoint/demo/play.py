"""The play: run the agent, answer its calls, kill it, and run it again until it is done."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agent_checkpoint.demo.audit import read_turns
from agent_checkpoint.demo.bill import Bill
from agent_checkpoint.demo.model import Call
from agent_checkpoint.demo.stage import Stage
from agent_checkpoint.demo.story import Step
from agent_checkpoint.demo.wire import AgentProcess

_WORDS_PER_CALL = 24


class Kill(NamedTuple):
    """When to kill the agent: in the middle of the call of *turn*, or right after its save."""

    turn: int
    in_call: bool

    def cuts(self, call: Call) -> bool:
        """Tell whether *call* is to be cut off where it now is."""
        return self.in_call and call.turn == self.turn and call.halfway_through_headline

    def precedes(self, call: Call) -> bool:
        """Tell whether *call* is the one that must not begin any more."""
        # Asking for the next turn is what shows, from outside, that the save has returned.
        return not self.in_call and call.turn == self.turn + 1


class AgentEndedError(Exception):
    """The agent ended by itself before its work was done."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        return f"the agent ended by itself with status {self.status}; its own words are above"


class Play:
    """Lets the agent of *command* work on *story* and *log*, and keeps the bill."""

    def __init__(
        self,
        stage: Stage,
        command: Sequence[str],
        log: Path,
        story: Sequence[Step],
        *,
        seconds_per_call: float,
    ) -> None:
        self.bill = Bill()
        self._stage = stage
        self._command = (*command, str(log))
        self._log = log
        self._story = story
        self._seconds_per_call = seconds_per_call

    def perform(self, kills: Sequence[Kill]) -> None:
        """Run the agent once for each of *kills*, and then to its end."""
        for kill in (*kills, None):
            with AgentProcess(self._command) as process:
                self._live(process, kill)
            if kill:
                time.sleep(3 * self._seconds_per_call)

    def _live(self, process: AgentProcess, kill: Kill | None) -> None:
        """Answer one process until it ends or is killed."""
        for number, messages in enumerate(process.requests()):
            call = Call(messages, self._story)
            if number == 0:
                turns = read_turns(self._log)
                self._stage.agent_opened_log(process.pid, len(turns), len(messages))
            if kill and kill.precedes(call):
                self._kill(process, call)
                return
            if not self._answer(process, call, kill):
                self._kill(process, call)
                return
        status = process.wait()
        if status:
            raise AgentEndedError(status)

    def _answer(self, process: AgentProcess, call: Call, kill: Kill | None) -> bool:
        """Stream the answer to *call*; return False if *kill* comes before its end."""
        self._stage.turn_begins(call.turn)
        for words in call.stream():
            process.send({"text": words})
            self._stage.model_says(words)
            time.sleep(self._seconds_per_call / _WORDS_PER_CALL)
            if kill and kill.cuts(call):
                return False
        self.bill.answered(call)
        self._stage.turn_ends(call.tool, self.bill.made.price)
        process.send({"tool": call.tool})
        return True

    def _kill(self, process: AgentProcess, call: Call) -> None:
        """Kill *process* for real and count what *call* and the log had by then."""
        status = process.kill()
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        saved = len(read_turns(self._log))
        self.bill.killed(saved)
        if call.begun:
            self.bill.died(call)
            self._stage.killed_in_call(process.pid, how, call.turn, call.price)
        else:
            self._stage.killed_between_calls(process.pid, how, call.turn)
