"""Python values <-> JSON values, with nothing changed on the way.

Decided here: which values a line may hold, and what is wrong with the others. ``json.dumps``
alone would turn a tuple into a list, the key 1 into "1" and an enum into its value, and would
write NaN, which no strict parser reads; here each of these is an error that names the place.
"""

# Values of any type are this module's business.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

from ..errors import ArgumentError, UnstorableError

# json.loads of CPython up to 3.11 gives up at about 1,000 levels, less what the caller's own
# stack has used. What is saved under one interpreter has to load under every other.
MAX_DEPTH = 500
# Python itself refuses to read longer integers back (sys.set_int_max_str_digits).
MAX_DIGITS = 4300

_LEAVES = frozenset((str, int, float, bool, type(None)))
_PLAIN = _LEAVES | {dict, list}
_STR_ALONE = {str}
_MANY = 16  # from here on a set of the types, made in C, costs less than a loop
_MANY_DIGITS = re.compile(f"[0-9]{{{MAX_DIGITS + 1}}}")

# Older interpreters have no limit of their own, and a program may have lifted it.
_digit_limit: Callable[[], int] = getattr(sys, "get_int_max_str_digits", lambda: 0)

_dumps, _dumps_ascii = (
    json.JSONEncoder(
        ensure_ascii=ensure_ascii, allow_nan=False, check_circular=False, separators=(",", ":")
    ).encode
    for ensure_ascii in (False, True)
)
_is_ascii_likely = True
_ESCAPED = re.compile(r"\\u")  # a tenth of what `in` takes: it looks for the rarer character


def encode(value: Any, name: str) -> bytes:
    """Return *value* as JSON in UTF-8, or raise an error with the path of what it cannot hold."""
    try:
        if _is_plain(value, 1):
            text = _to_json(value)
            if _digit_limit() == MAX_DIGITS or not _MANY_DIGITS.search(text):
                return text.encode()
    except (ValueError, RecursionError, TypeError):
        pass  # NaN, a lone surrogate, a huge integer: the slow search below names it.
    except RuntimeError as error:
        raise _changing(name) from error
    try:
        problem = _first_problem(value, name)
        if problem is None:
            return _to_json(value).encode()
    except RecursionError:
        problem = _too_deep(name, "nested deeper than sys.getrecursionlimit() lets it be written")
    except (ValueError, RuntimeError, TypeError) as error:
        raise _changing(name) from error
    raise problem


def _to_json(value: Any) -> str:
    """Return *value* as JSON in which each character that needs no escape stands as itself.

    The standard library's encoder takes two thirds of the time if it may write ASCII only. If
    nothing had to be escaped for that, both ways give the same text; and a state is mostly like the
    one before it.
    """
    global _is_ascii_likely  # noqa: PLW0603 - a guess, which decides about speed and nothing else
    if _is_ascii_likely:
        text = _dumps_ascii(value)
        if _ESCAPED.search(text) is None:
            return text
    text = _dumps(value)
    _is_ascii_likely = text.isascii() and _ESCAPED.search(text) is None
    return text


class BeyondReader(Exception):
    """This may be JSON, and a limit of this process keeps it from being read."""

    def __init__(self, reason: str, seq: int = 0) -> None:
        super().__init__(reason, seq)
        self.reason, self.seq = reason, seq


def decode(text: bytes) -> Any:
    """Return the value of JSON *text*; what is not JSON in UTF-8 raises ValueError."""
    return _loaded(json.loads, text, "strict")


def decode_first(text: bytes) -> Any:
    """Return the value that *text* begins with, whatever stands behind it and in its strings."""
    value, _ = _loaded(json.JSONDecoder().raw_decode, text.lstrip(), "replace")
    return value


def _loaded(load: Callable[[str], Any], text: bytes, errors: str) -> Any:
    try:
        return load(text.decode("utf-8", errors))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except RecursionError:
        limit = "it is nested deeper than sys.setrecursionlimit() lets this program read"
    except ValueError:
        limit = "it holds an integer of more digits than sys.set_int_max_str_digits() lets in"
    raise BeyondReader(limit)


def show(value: object) -> str:
    """Return *value* as an error may name it: short, and in ASCII."""
    try:
        shown = ascii(value)
    except Exception:  # a huge int, or a class whose own __repr__ raises
        return f"a {type_name(type(value))}"
    return shown if len(shown) <= 60 else shown[:57] + "..."


def type_name(kind: type) -> str:
    """Return the name of a class, with its module unless it is built in."""
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def _is_plain(value: Any, depth: int) -> bool:
    """Tell whether *value* is built of JSON's own types, no subclass among them, and not too deep.

    Each save pays for this walk. It says no too often where the stack is nearly used up, never yes.
    """
    if type(value) is dict:
        if len(value) > _MANY:
            return set(map(type, value)) == _STR_ALONE and _are_plain(value.values(), depth)
        for key, item in value.items():
            if type(key) is not str:
                return False
            kind: type[Any] = type(item)
            if kind is str:
                continue
            if kind is dict or kind is list:
                if depth == MAX_DEPTH or not _is_plain(item, depth + 1):
                    return False
            elif kind not in _LEAVES:
                return False
        return True
    if type(value) is list:
        if len(value) > _MANY:
            return _are_plain(value, depth)
        for item in value:
            kind = type(item)
            if kind is str:
                continue
            if kind is dict or kind is list:
                if depth == MAX_DEPTH or not _is_plain(item, depth + 1):
                    return False
            elif kind not in _LEAVES:
                return False
        return True
    return type(value) in _LEAVES


def _are_plain(items: Collection[Any], depth: int) -> bool:
    """Do as _is_plain for many items, of which most are likely of a few types."""
    kinds = set(map(type, items))
    if kinds <= _LEAVES:
        return True
    if depth == MAX_DEPTH or not kinds <= _PLAIN:
        return False
    for item in items:
        kind = type(item)
        if (kind is dict or kind is list) and not _is_plain(item, depth + 1):
            return False
    return True


def _first_problem(value: Any, name: str) -> ArgumentError | None:
    """Walk *value* in order and return an error for the first thing that JSON cannot hold."""
    stack: list[tuple[Iterator[tuple[str, Any]], int]] = [(iter(((name, value),)), 0)]
    above: set[int] = set()
    while stack:
        children, owner = stack[-1]
        for path, item in children:
            problem = _leaf_problem(path, item)
            if problem is not None:
                return problem
            if type(item) in (dict, list):
                if id(item) in above:
                    return UnstorableError(
                        path, "a container that contains itself", "JSON has no cycles",
                        "Save the parts, or a copy without the way back.",
                    )  # fmt: skip
                if len(stack) > MAX_DEPTH:
                    return _too_deep(path, f"nested more than {MAX_DEPTH} levels deep")
                above.add(id(item))
                stack.append((_children(path, item), id(item)))
                break
        else:
            stack.pop()
            above.discard(owner)
    return None


def _children(path: str, item: Any) -> Iterator[tuple[str, Any]]:
    if type(item) is list:
        for index, child in enumerate(item):
            yield f"{path}[{index}]", child
    else:
        for key, child in item.items():
            yield f"{path}[{key!r}]", child


def _leaf_problem(path: str, item: Any) -> UnstorableError | None:
    kind: type[Any] = type(item)
    if kind is dict:
        for key in item:
            if type(key) is not str:
                return UnstorableError(
                    _shorten(path), f"a dict with the key {show(key)}",
                    "JSON keys are strings, and the key would come back as another one",
                    "Use str keys, or save a list of pairs.",
                )  # fmt: skip
            if not _is_unicode(key):
                return _surrogate(_shorten(path), f"a dict with the key {show(key)}")
    elif kind is str:
        if not _is_unicode(item):
            return _surrogate(_shorten(path), f"the str {show(item)}")
    elif kind is float:
        if not math.isfinite(item):
            return UnstorableError(
                _shorten(path), f"the float {item!r}", "JSON has no such number",
                "Save None, or the str 'nan'.",
            )  # fmt: skip
    elif kind is int:
        digits = min(_digit_limit() or MAX_DIGITS, MAX_DIGITS)
        # A digit is more than three bits; most integers need not be compared with so large a one.
        if item.bit_length() > 3 * digits and not -(10**digits) < item < 10**digits:
            return UnstorableError(
                _shorten(path), f"an int of more than {digits} digits",
                "Python refuses to read it back", "Save it as a str in hexadecimal: hex(n).",
            )  # fmt: skip
    elif kind not in _LEAVES and kind is not list:
        return UnstorableError(
            _shorten(path), f"of type {type_name(kind)}", "JSON has no such type",
            _WAYS_OUT.get(kind, "Convert it to dict, list, str, int, float, bool or None."),
        )  # fmt: skip
    return None


_WAYS_OUT: dict[type, str] = {
    tuple: "Use list(...): a tuple would come back as a list.",
    set: "Use sorted(...) or list(...).",
    frozenset: "Use sorted(...) or list(...).",
    bytes: "Use base64.b64encode(...).decode() or .hex().",
}


def _surrogate(path: str, value: str) -> UnstorableError:
    return UnstorableError(
        path, value, "it holds half of a character (a lone surrogate), which is not Unicode text",
        "Clean it with text.encode('utf-8', 'replace').decode().",
    )  # fmt: skip


def _too_deep(path: str, what: str) -> UnstorableError:
    return UnstorableError(
        _shorten(path), what, "JSON parsers give up on such depth", "Flatten it.",
    )  # fmt: skip


def _changing(name: str) -> ArgumentError:
    return ArgumentError(name, "changing", "left alone by other threads until save() returns")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shorten(path: str) -> str:
    return path if len(path) <= 400 else f"{path[:200]}...{path[-200:]}"
