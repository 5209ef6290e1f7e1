"""The model's bill, kept where the calls are sold; prices are in millionths of a dollar."""

from __future__ import annotations

from typing import NamedTuple

from agent_checkpoint.demo.model import Call


class Sum(NamedTuple):
    """So many calls at such a price together."""

    calls: int = 0
    price: int = 0

    def plus(self, price: int) -> Sum:
        """Return this sum and one more call."""
        return Sum(self.calls + 1, self.price + price)


class Bill:
    """What was made, what was cut off by a kill, and what the log spared."""

    def __init__(self) -> None:
        self.made = Sum()
        self.cut_off = Sum()
        self.spared = Sum()
        self._by_turn: dict[int, int] = {}

    def answered(self, call: Call) -> None:
        """Count a call whose answer arrived whole."""
        self.made = self.made.plus(call.price)
        self._by_turn[call.turn] = call.price

    def died(self, call: Call) -> None:
        """Count a call whose answer died with the agent, as far as it had been streamed."""
        self.made = self.made.plus(call.price)
        self.cut_off = self.cut_off.plus(call.price)

    def killed(self, saved_turns: int) -> None:
        """Count the turns that a restart from nothing would have had to pay again after a kill."""
        for turn, price in self._by_turn.items():
            if turn <= saved_turns:
                self.spared = self.spared.plus(price)
