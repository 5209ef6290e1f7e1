"""The values a record holds: JSON's own, exactly; any other is an error that names its place."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from environment import this_interpreter
from hypothesis import assume, given
from hypothesis import strategies as st
from suite import candidates, one_of_each

from agent_checkpoint import ArgumentError, Checkpointer, UnstorableError
from tests.logs import folder_in_memory, snapshot

SRC = Path(__file__).resolve().parents[2] / "src"
MAX_DEPTH = 500
MAX_DIGITS = 4300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with folder_in_memory(tmp_path_factory.mktemp("values")) as folder:
        yield folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def exactly(value: Any) -> Any:
    """Return *value* in a form whose ``==`` also tells types, -0.0 and the order of keys apart."""
    if type(value) is dict:
        return dict, [(key, exactly(child)) for key, child in value.items()]
    if type(value) is list:
        return list, [exactly(child) for child in value]
    return type(value), value.hex() if type(value) is float else value


def parse_strictly(line: bytes) -> Any:
    """Parse *line* as the strictest of parsers does."""

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    def no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs), "a key stands twice"
        return dict(pairs)

    text = line.decode()  # strictly UTF-8
    assert "\0" not in text
    try:
        import orjson  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        pass
    else:
        # It takes every number for a double, and refuses those that are beyond all doubles.
        if re.search(rb"[0-9]{309}", line) is None:
            orjson.loads(line)
    return json.loads(text, parse_constant=no_constant, object_pairs_hook=no_doubles)


def nested(depth: int, kind: str, leaf: Any = 1) -> Any:
    """Return *depth* containers, one in another."""
    value = leaf
    for level in range(depth):
        is_list = kind == "list" or (kind == "both" and level % 2)
        value = [value] if is_list else {"k": value}
    return value


def refusal_of(ckpt: Checkpointer, value: Any) -> UnstorableError:
    """Return the error that saving *value* gives, and check that nothing else came of it."""
    path = Path(ckpt.path)
    before = snapshot(path.parent)

    with pytest.raises(UnstorableError) as caught:
        ckpt.save(value)

    assert snapshot(path.parent) == before
    assert isinstance(caught.value, ValueError)
    assert "Nothing was written." in str(caught.value)
    assert str(caught.value).startswith(f"{caught.value.path} is ")
    assert str(caught.value).endswith(caught.value.way_out)
    assert len(caught.value.way_out) > 8
    str(caught.value).encode()  # it can be printed and logged
    return caught.value


# -- what is held -------------------------------------------------------------------------

HELD = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**53 + 1,
    2**70,
    -(2**70),
    10**MAX_DIGITS - 1,
    1 - 10**MAX_DIGITS,
    0.0,
    -0.0,
    1.0,
    0.1,
    1e16,
    1e308,
    -1.7976931348623157e308,
    5e-324,
    2.2250738585072014e-308,
    1 / 3,
    "",
    "\0",
    "\x00\x01\x1f\x7f\x80\x9f",
    "\"'\\/\b\f\n\r\t",
    "a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1e",
    "é ☃ 😀 \U0010ffff \ufeff \ufffe \uffff",
    "\\ud800",
    "NaN",
    ',"sum":"1:1:57:00000000:9d0c2c1b"}\n',
    [],
    {},
    [[]],
    {"": {}},
    {"sum": "1:1:57:00000000:9d0c2c1b"},
    {"turn": 1, "ts": 2.0, "data": None, "meta": {}, "sum": "2:9"},
    {"\0": 1, "\u2028": 2, '"': 3, "é": 4, "\n": 5, "__type__": "set"},
    {"1": "a", "true": "b", "null": "c", "1.0": "d"},
    {"z": 1, "a": 2, "m": 3},
    [1, 1.0, True, "1", None, -0.0, 0.0, False, 0],
]


@pytest.mark.parametrize("value", HELD, ids=lambda value: ascii(value)[:40])
def test_a_json_value_comes_back_exactly_and_its_line_is_strict_json(path, value):
    with Checkpointer(path, durability="flush") as ckpt:
        saved = ckpt.save(value)

    last = Checkpointer(path).last_record

    assert last is not None
    assert exactly(last.data) == exactly(value)
    assert exactly(saved.data) == exactly(value)
    content = path.read_bytes()
    assert content.count(b"\n") == 1
    assert exactly(parse_strictly(content)["data"]) == exactly(value)


def test_equal_values_of_other_types_are_kept_apart(path):
    with Checkpointer(path, durability="flush") as ckpt:
        for value in (1, True, 1.0, "1", [1], {"1": 1}):
            ckpt.save(value)

    kinds = [type(record.data) for record in Checkpointer(path).records()]

    assert kinds == [int, bool, float, str, list, dict]


def test_a_record_does_not_follow_later_changes_of_the_state(path):
    state: dict[str, Any] = {"messages": [1]}

    saved = Checkpointer(path).save(state)
    state["messages"].append(2)

    assert saved.data == {"messages": [1]}
    assert [record.data for record in Checkpointer(path).records()] == [{"messages": [1]}]


def test_a_container_may_stand_in_several_places(path):
    shared = {"a": [1]}

    saved = Checkpointer(path).save([shared, shared, {"b": shared}])

    assert saved.data == [{"a": [1]}, {"a": [1]}, {"b": {"a": [1]}}]


def test_two_equal_strings_in_other_normal_forms_stay_two_keys(path):
    value = {"\u00e9": 1, "e\u0301": 2}

    saved = Checkpointer(path).save(value)

    assert exactly(saved.data) == exactly(value)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=30,
)


@given(value=JSON_VALUES, tags=st.dictionaries(st.text(), JSON_VALUES, max_size=3))
def test_any_json_value_comes_back_exactly_and_its_line_is_strict_json(folder, value, tags):
    assume(not {"label", "run_id", "rollback", "undo", "fork", "tag", "object"} & set(tags))
    path = folder / "any.jsonl"
    path.write_bytes(b"")

    with Checkpointer(path, durability="flush") as ckpt:
        saved = ckpt.save(value, meta=tags)
    last = Checkpointer(path).last_record

    assert last is not None
    assert exactly(last.data) == exactly(value) == exactly(saved.data)
    assert exactly(last.meta) == exactly(tags) == exactly(saved.meta)
    content = path.read_bytes()
    assert content.count(b"\n") == 1
    line = parse_strictly(content)
    assert list(line) == ["turn", "ts", "data", "meta", "sum"]
    assert exactly([line["data"], line["meta"]]) == exactly([value, tags])


TEXTS = [
    "plain",
    "na\u00efve",
    "\x1b[0m\x7f",
    "\\u00ef",
    "\\\\u0041",
    "\U0001f600",
    "\u2028",
    "\u4e2d" * 3,
]


@pytest.mark.parametrize("first", TEXTS)
@pytest.mark.parametrize("second", TEXTS)
def test_a_text_is_written_the_same_whatever_was_written_before_it(path, first, second):
    with Checkpointer(path, durability="flush") as ckpt:
        for text in (first, second, second):
            ckpt.save({text: text})

    written = [line.partition(b',"data":')[2] for line in path.read_bytes().split(b"\n")[:-1]]
    for text, line in zip((first, second, second), written):
        plainly = json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))
        assert line.startswith(plainly.encode() + b',"meta":')


# -- what is refused ----------------------------------------------------------------------


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Items(list):  # type: ignore[type-arg]
    pass


class State(dict):  # type: ignore[type-arg]
    pass


class Colour(str, Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Plain:
    pass


Point = namedtuple("Point", "x y")

OTHER_TYPES = [
    (1, 2),
    (),
    {1, 2},
    set(),
    frozenset((1,)),
    b"bytes",
    bytearray(b"bytes"),
    memoryview(b"bytes"),
    1j,
    range(3),
    Decimal("1.5"),
    Fraction(1, 2),
    datetime(2026, 1, 1, tzinfo=timezone.utc),
    UUID(int=1),
    Path("x"),
    Plain(),
    Plain,
    len,
    ...,
    NotImplemented,
    iter([1]),
    Text("text"),
    Number(1),
    Real(1.5),
    Items([1]),
    State(a=1),
    Colour.RED,
    Level.HIGH,
    OrderedDict(a=1),
    defaultdict(list, a=[1]),
    Counter("aab"),
    UserDict(a=1),
    Point(1, 2),
    {}.keys(),
]


@pytest.mark.parametrize("value", OTHER_TYPES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "place, wrap",
    [
        ("data", lambda value: value),
        ("data[1]", lambda value: [0, value, 2]),
        ("data['tools'][3]['client']", lambda value: {"tools": [1, 2, 3, {"client": value}]}),
        ("data['a\\nb'][\"it's\"]", lambda value: {"a\nb": {"it's": value}}),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_place(path, value, place, wrap):
    ckpt = Checkpointer(path)

    error = refusal_of(ckpt, wrap(value))

    assert error.path == place
    assert type(value).__name__ in error.value


@pytest.mark.parametrize(
    "value, way_out",
    [
        ((1,), "list("),
        ({1}, "sorted("),
        (frozenset((1,)), "sorted("),
        (b"x", "base64"),
        ({1: "a"}, "str keys"),
        (10**MAX_DIGITS, "hex("),
        (math.nan, "None"),
        (nested(MAX_DEPTH + 1, "list"), "Flatten"),
        ("\ud800", "encode("),
    ],
    ids=["tuple", "set", "frozenset", "bytes", "int key", "int", "nan", "depth", "surrogate"],
)
def test_a_refusal_names_a_way_out(path, value, way_out):
    assert way_out in refusal_of(Checkpointer(path), value).way_out


@pytest.mark.parametrize(
    "key", [1, 0, -1, 2**70, None, True, False, 1.5, math.nan, b"k", (1,), Text("k"), Colour.RED]
)
@pytest.mark.parametrize("others", [{}, {"a": 1, "b": [1]}])
def test_a_key_that_is_not_a_plain_str_is_refused_by_the_place_of_its_dict(path, key, others):
    error = refusal_of(Checkpointer(path), {"state": [{**others, key: 1}]})

    assert error.path == "data['state'][0]"
    assert ascii(key) in error.value


def test_keys_that_would_come_back_as_one_are_refused(path):
    assert refusal_of(Checkpointer(path), {"1": "a", 1: "b"}).path == "data"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308 * 10, -math.nan])
def test_a_float_that_is_no_number_is_refused(path, value):
    error = refusal_of(Checkpointer(path), {"loss": [1.0, value]})

    assert error.path == "data['loss'][1]"
    assert repr(value) in error.value


SURROGATES = [
    "\ud800",
    "\udfff",
    "text \udc80 text",
    "\ud83d\ude00",  # high and low: two code points, not the character
    "\ude00\ud83d",
    "\ud83d😀",
    os.fsdecode(b"caf\xe9"),
]


@pytest.mark.parametrize("text", SURROGATES, ids=ascii)
def test_half_a_character_is_refused_in_a_value(path, text):
    error = refusal_of(Checkpointer(path), {"files": [text]})

    assert error.path == "data['files'][0]"
    assert "surrogate" in error.reason


@pytest.mark.parametrize("text", SURROGATES, ids=ascii)
def test_half_a_character_is_refused_in_a_key(path, text):
    error = refusal_of(Checkpointer(path), {"files": [{"a": 1, text: 1}]})

    assert error.path == "data['files'][0]"
    assert "surrogate" in error.reason


def test_a_character_is_not_taken_for_its_halves(path):
    saved = Checkpointer(path).save("\N{GRINNING FACE}")

    assert saved.data == "\U0001f600"


@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: [n], lambda n: {"n": {"m": n}}])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_of_more_digits_than_python_reads_is_refused(path, wrap, sign):
    ckpt = Checkpointer(path)

    for number in (10**MAX_DIGITS, 10**MAX_DIGITS + 1, 10**100_000):
        error = refusal_of(ckpt, wrap(sign * number))

        assert f"{MAX_DIGITS} digits" in error.value


@pytest.mark.parametrize("limit", [0, 10_000, 640])
@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: [n], lambda n: {"a": [1, {"n": n}]}])
def test_no_setting_of_this_process_lets_a_longer_integer_in(path, digit_limit, limit, wrap):
    digit_limit(limit)

    error = refusal_of(Checkpointer(path), wrap(-(10**MAX_DIGITS)))

    assert f"{min(limit or MAX_DIGITS, MAX_DIGITS)} digits" in error.value


@pytest.mark.parametrize("limit", [0, 10_000])
def test_what_is_saved_with_a_higher_digit_limit_loads_with_the_usual_one(path, digit_limit, limit):
    value = {"n": 10**MAX_DIGITS - 1}
    digit_limit(limit)
    Checkpointer(path).save(value)

    digit_limit(MAX_DIGITS)

    assert [record.data for record in Checkpointer(path).records()] == [value]


def test_an_integer_beyond_a_lower_digit_limit_is_refused_by_its_place(path, digit_limit):
    digit_limit(640)

    error = refusal_of(Checkpointer(path), {"n": [10**1000]})

    assert error.path == "data['n'][0]"


def test_a_state_that_another_thread_changes_is_saved_or_refused_and_never_half_written(path):
    state = {str(n): n for n in range(3000)}
    is_over = threading.Event()

    def change() -> None:
        while not is_over.is_set():
            state["new"] = 1
            del state["new"]

    thread = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    saved, refusals = 0, []
    try:
        thread.start()
        with Checkpointer(path, durability="flush") as ckpt:
            for _ in range(40):
                try:
                    ckpt.save(state)
                except ArgumentError as error:
                    refusals.append(str(error))
                else:
                    saved += 1
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval)

    assert all("changing" in words and "Nothing was written" in words for words in refusals)
    assert all(len(record.data) in (3000, 3001) for record in Checkpointer(path).records())
    assert Checkpointer(path).verify().records == saved


@pytest.mark.parametrize("count", [15, 16, 17, 40])
@pytest.mark.parametrize("bad", [(1,), {1}, {1: 2}, [[(1,)]], {"k": [(1,)]}, Text("x"), math.nan])
def test_one_bad_value_among_many_is_found(path, bad, count):
    for place in (0, count // 2, count - 1):
        items: list[Any] = [n if n % 2 else {"n": [n]} for n in range(count)]
        items[place] = bad
        named = {str(n): item for n, item in enumerate(items)}

        in_list = refusal_of(Checkpointer(path), items)
        in_dict = refusal_of(Checkpointer(path), named)

        assert in_list.path.startswith(f"data[{place}]")
        assert in_dict.path.startswith(f"data['{place}']")
        assert "the key 0" in refusal_of(Checkpointer(path), {**named, 0: 1}).value


# -- depth --------------------------------------------------------------------------------


def test_the_deepest_state_that_is_saved_loads_in_a_fresh_process_of_every_python(path):
    program = (
        "import json, sys; from agent_checkpoint import Checkpointer\n"
        "records = list(Checkpointer(sys.argv[1]).records())\n"
        "assert Checkpointer(sys.argv[1]).last_record == records[-1]\n"
        "for record in records:\n"
        "    depth, value = 0, record.data\n"
        "    while value != 1:\n"
        "        depth, value = depth + 1, value[0 if type(value) is list else 'k']\n"
        "    print(depth)\n"
        "for line in open(sys.argv[1], 'rb'): print(*json.loads(line))\n"
    )
    with Checkpointer(path) as ckpt:
        for kind in ("list", "dict", "both"):
            ckpt.save(nested(MAX_DEPTH, kind))
    this = this_interpreter()

    for python in [this, *one_of_each(candidates(), besides=this)]:
        done = subprocess.run(
            [python.path, "-c", program, str(path)],
            env={**os.environ, "PYTHONPATH": str(SRC)},
            capture_output=True,
            text=True,
            check=False,
        )

        assert (done.returncode, done.stderr) == (0, ""), python
        assert done.stdout == f"{MAX_DEPTH}\n" * 3 + "turn ts data meta sum\n" * 3, python


@pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed here")
@pytest.mark.parametrize("kind", ["list", "dict", "both"])
def test_jq_reads_a_state_as_deep_as_its_oldest_release_in_use_lets_it(path, kind):
    depth = 125  # jq 1.6; from 1.7 on 10,000
    Checkpointer(path).save(nested(depth, kind))

    done = subprocess.run(
        ["jq", "-c", "[leaf_paths | length]", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert f"{depth + 1}" in done.stdout


@pytest.mark.parametrize("kind", ["list", "dict", "both"])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 100_000])
def test_a_deeper_state_is_refused(path, kind, depth):
    error = refusal_of(Checkpointer(path), {"deep": nested(depth - 1, kind)})

    assert f"{MAX_DEPTH} levels" in error.value
    assert error.path.startswith("data['deep']")
    assert len(str(error)) < 1000


def test_a_leaf_that_is_refused_is_found_in_the_depth(path):
    error = refusal_of(Checkpointer(path), nested(40, "both", leaf={1}))

    assert error.path == "data" + "[0]['k']" * 20


def test_a_state_that_contains_itself_is_refused_where_it_closes(path):
    ckpt = Checkpointer(path)
    items: list[Any] = [1]
    items.append({"back": items})
    state: dict[str, Any] = {}
    state["a"] = [0, {"b": state}]
    itself: list[Any] = []
    itself.append(itself)

    assert refusal_of(ckpt, items).path == "data[1]['back']"
    assert refusal_of(ckpt, state).path == "data['a'][1]['b']"
    assert refusal_of(ckpt, {"x": itself}).path == "data['x'][0]"
    assert "contains itself" in refusal_of(ckpt, itself).value


def at_depth(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames == 0 else at_depth(frames - 1, call)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="C code has a stack of its own there")
def test_a_caller_deep_in_the_stack_is_not_told_that_the_log_is_damaged(path):
    state = nested(MAX_DEPTH - 1, "list")
    Checkpointer(path).save(state)

    said = []
    for call in (lambda: Checkpointer(path).last_record, lambda: Checkpointer(path).save(state)):
        try:
            at_depth(600, call)
        except Exception as error:
            said.append(str(error))

    assert not any("damaged" in words or "changing" in words for words in said)


# -- nothing is written -------------------------------------------------------------------

BAD = [(1,), {1: 1}, math.nan, "\ud800", 10**5000, nested(600, "list"), object()]


@pytest.mark.parametrize("value", BAD, ids=["tuple", "key", "nan", "text", "int", "deep", "object"])
def test_a_refused_save_makes_neither_file_nor_folder(tmp_path, value):
    ckpt = Checkpointer(tmp_path / "new" / "run.jsonl")

    refusal_of(ckpt, value)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", BAD, ids=["tuple", "key", "nan", "text", "int", "deep", "object"])
def test_a_refused_save_leaves_the_log_and_the_numbering_as_they_were(path, value):
    with Checkpointer(path) as ckpt:
        ckpt.save(1)
        before = path.read_bytes()

        refusal_of(ckpt, [value])
        with pytest.raises(UnstorableError) as caught:
            ckpt.save(1, meta={"note": [value]})
        unchanged = path.read_bytes()
        record = ckpt.save(2)

    assert unchanged == before
    assert caught.value.path.startswith("meta['note'][0]")
    assert (record.seq, record.turn) == (2, 2)
    assert [record.data for record in Checkpointer(path).records()] == [1, 2]


BAD_LEAVES = st.sampled_from([(1,), {2}, b"x", math.nan, math.inf, "\udc80", 10**5000, 1j, Text()])


@given(data=st.data(), leaf=BAD_LEAVES)
def test_the_place_in_a_refusal_leads_to_the_value_that_was_refused(folder, data, leaf):
    value = leaf
    for _ in range(data.draw(st.integers(0, 5))):
        before = data.draw(st.sampled_from(([], [1], [{}, "a"], [[0.5], None, True])))
        if data.draw(st.booleans()):
            value = [*before, value, *before]
        else:
            value = {**dict.fromkeys(map(str, before)), data.draw(st.text(max_size=5)): value}

    error = refusal_of(Checkpointer(folder / "never" / "run.jsonl"), value)

    assert eval(error.path, {"data": value}) is leaf


def test_a_key_of_more_digits_than_python_prints_is_refused(path):
    assert refusal_of(Checkpointer(path), {10**5000: 1}).path == "data"
