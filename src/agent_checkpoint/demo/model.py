"""The scripted model, seen from the side that sells it: what a call answers and what it costs.

Like a real one it keeps nothing between calls: the messages it is sent decide the answer. An agent
that forgets its messages gets the first answer again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from agent_checkpoint.demo.story import Message, Step

# Millionths of a dollar a token, so that sums stay whole numbers.
PRICE_IN = 3
PRICE_OUT = 15
_CHARACTERS_PER_TOKEN = 4


class Call:
    """One call of the model: its answer, and its price for as much of it as has been streamed."""

    def __init__(self, messages: Sequence[Message], story: Sequence[Step]) -> None:
        self.turn = 1 + sum(message["role"] == "assistant" for message in messages)
        step = story[min(self.turn, len(story)) - 1]
        self.says, self.tool = step.says, step.tool
        self._tokens_in = _tokens(len(json.dumps(messages)))
        self._streamed = 0

    def stream(self) -> Iterator[str]:
        """Yield the answer word by word, and charge for each word as it is sent."""
        for word in re.findall(r"\s*\S+", self.says):
            self._streamed += len(word)
            yield word

    @property
    def begun(self) -> bool:
        """Tell whether any of the answer has been streamed."""
        return self._streamed > 0

    @property
    def halfway_through_headline(self) -> bool:
        """Tell whether at least half of the answer's first line has been streamed."""
        return self._streamed * 2 >= len(self.says.partition("\n")[0])

    @property
    def price(self) -> int:
        """The price so far in millionths of a dollar: the input whole, the output as streamed."""
        return self._tokens_in * PRICE_IN + _tokens(self._streamed) * PRICE_OUT


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)
