"""The states that are saved: an agent's messages, of a wanted size, each unlike the last."""

from __future__ import annotations

import json
import random
import re
from typing import Any

State = dict[str, Any]

LINE_OVERHEAD_BYTES = 150
"""About what a line holds beside its data: turn, ts, meta and sum."""

_EMPTY_MESSAGE_BYTES = 31

_WORDS = re.findall(
    r"\S+",
    "the of and to in a is that for on with as by from results method paper section study data "
    "model agent tool call search reads token budget plan summary source cites claims evidence "
    "latency memory table figure appendix baseline accuracy drops improves by percent over prior "
    "work however we find no support for it in naïve replication, see the note on page",
)


def encoded(value: object) -> bytes:
    """*value* as compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def _prose(dice: random.Random, size: int) -> str:
    words: list[str] = []
    length = 0
    while length < size:
        word = dice.choice(_WORDS)
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:size]


def _exchange(dice: random.Random, size: int) -> list[State]:
    """Make a question, a tool call, its result and an answer: about *size* bytes."""
    call = f"call_{dice.getrandbits(64):016x}"
    prose = max(40, size - 420)
    return [
        {"role": "user", "content": _prose(dice, prose // 6)},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": call,
                    "type": "function",
                    "function": {"name": "web_search", "arguments": {"query": _prose(dice, 30)}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call, "content": _prose(dice, prose // 2)},
        {"role": "assistant", "content": _prose(dice, prose // 3)},
    ]


def state(seed: int, line_bytes: int) -> State:
    """Make a state whose line is about *line_bytes* long; another *seed*, another state."""
    dice = random.Random(seed)
    wanted = max(900, line_bytes - LINE_OVERHEAD_BYTES)
    made: State = {
        "messages": [{"role": "system", "content": _prose(dice, 120)}],
        "sub_tasks_done": [f"task-{dice.randrange(1000)}" for _ in range(4)],
        "usage": {"input_tokens": dice.randrange(100_000), "output_tokens": dice.randrange(9_000)},
        "cost_usd": round(dice.random() * 20, 6),
        "done": False,
    }
    messages: list[State] = made["messages"]
    exchange_bytes = min(4_000, wanted // 2)
    missing = wanted - len(encoded(made))
    while missing > 700:
        exchange = _exchange(dice, min(exchange_bytes, missing))
        messages.extend(exchange)
        missing -= len(encoded(exchange)) - 1
    if missing > _EMPTY_MESSAGE_BYTES:
        padding = _prose(dice, missing - _EMPTY_MESSAGE_BYTES)
        messages.append({"role": "user", "content": padding})
    return made


def states(count: int, line_bytes: int, *, seed: int = 1) -> list[State]:
    """Make *count* states, from *seed* on."""
    return [state(seed + number, line_bytes) for number in range(count)]
