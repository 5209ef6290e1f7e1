"""Who may import whom: the table below is the law."""

from __future__ import annotations

import ast
import sys

import pytest
from source_code import NEVER, Module, bindings, dotted_name, imports, modules

PACKAGE = "agent_checkpoint"

# A room is a module or folder directly below the package. Every module there that is not named
# here is a handle: checkpointer, manager, decorator and so on.
MAY_IMPORT = {
    "errors": set[str](),
    "record": {"errors"},
    "report": {"errors"},
    "_core": {"errors", "record", "report", "_core"},
    "stores": {"errors", "record", "report", "_core", "stores"},
    "handles": {"errors", "record", "report", "_core", "stores", "handles"},
    "the root": {"errors", "record", "report", "stores", "handles"},
    "testing": {"errors", "record", "report", "_core", "stores", "handles", "the root", "testing"},
    "integrations": {
        "errors",
        "record",
        "report",
        "_core",
        "stores",
        "handles",
        "the root",
        "integrations",
    },
    "cli": {"errors", "record", "report", "_core", "stores", "handles", "the root", "cli"},
    "demo": {"errors", "record", "report", "_core", "stores", "handles", "the root", "demo"},
    "__main__": {"cli"},
}

IMPURE = {
    "asyncio",
    "concurrent",
    "fcntl",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
}
IMPURE_CALLS = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "input",
    "open",
    "print",
    "uuid.uuid1",
    "uuid.uuid4",
}


HANDLES = {
    module.name.split(".")[1]
    for module in modules(PACKAGE)
    if module.name != PACKAGE and module.name.split(".")[1] not in MAY_IMPORT
}


def room(name: str) -> str:
    """Return the room of the module *name*, or of the module that a name was imported from."""
    parts = name.split(".")
    if len(parts) == 1:
        return "the root"
    if parts[1] in MAY_IMPORT:
        return parts[1]
    return "handles" if parts[1] in HANDLES else "the root"


def trespasses(module: Module) -> list[str]:
    """Return the imports of *module* that reach into a room which its own may not know."""
    home = room(module.name)
    return [
        f"{module.name}:{each.line} ({home}) imports {each.name} ({room(each.name)})"
        for each in imports(module)
        if each.top == PACKAGE
        and room(each.name) not in MAY_IMPORT[home]
        and not (home == "errors" and each.runs == NEVER)
    ]


def impurities(module: Module) -> list[str]:
    """Return where *module* imports or asks for a file, a clock, chance, a thread or a socket."""
    known = bindings(module)
    bad = [
        f"{module.name}:{each.line} imports {each.name}"
        for each in imports(module)
        if each.top in IMPURE
    ]
    for node in ast.walk(ast.parse(module.text)):
        if isinstance(node, ast.Call) and dotted_name(node.func, known) in IMPURE_CALLS:
            bad.append(f"{module.name}:{node.lineno} calls {ast.unparse(node.func)}")
    return bad


def strangers(module: Module) -> list[str]:
    """Return the imports of *module* that come neither with Python nor with this distribution."""
    at_home = {*sys.stdlib_module_names, PACKAGE, "trace_checkpoint"}
    return [
        f"{module.name}:{each.line} imports {each.name}"
        for each in imports(module)
        if each.top not in at_home
        # Type checkers bring it themselves, and nobody else ever looks.
        and not (each.top == "typing_extensions" and each.runs == NEVER)
    ]


def may_know_strangers(module: Module) -> bool:
    """Tell whether *module* is one that exists to speak to a library, behind an extra."""
    extras = (f"{PACKAGE}.stores.postgres", f"{PACKAGE}.stores.s3")
    return room(module.name) in ("integrations", "cli") or module.name in extras


def test_there_are_modules_to_look_at():
    names = {module.name for module in modules(PACKAGE)}

    assert {PACKAGE, f"{PACKAGE}.errors"} <= names
    assert modules("trace_checkpoint")


def test_every_module_keeps_to_the_table():
    assert [bad for module in modules(PACKAGE) for bad in trespasses(module)] == []


def test_the_core_is_pure():
    core = [module for module in modules(PACKAGE) if room(module.name) == "_core"]

    assert core
    assert [bad for module in core for bad in impurities(module)] == []


def test_the_facade_knows_the_public_names_only():
    facade = [each.name for module in modules("trace_checkpoint") for each in imports(module)]

    assert [name for name in facade if name.startswith(PACKAGE) and room(name) != "the root"] == []


@pytest.mark.skipif(sys.version_info < (3, 10), reason="3.9 cannot list its standard library")
def test_only_modules_behind_an_extra_import_a_third_party():
    everywhere = modules(PACKAGE) + modules("trace_checkpoint")

    assert [
        bad for module in everywhere if not may_know_strangers(module) for bad in strangers(module)
    ] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_core.line", "from agent_checkpoint.stores import file"),
        ("_core.line", "from agent_checkpoint import stores"),
        ("_core.line", "from agent_checkpoint import Checkpointer"),
        ("_core.line", "from ..stores.file import FileStore"),
        ("_core.line", "import agent_checkpoint.stores.file"),
        ("_core.line", "import agent_checkpoint"),
        ("_core.line", "def late():\n    from .. import stores"),
        ("_core.line", "class Inside:\n    from .. import stores"),
        ("_core.line", "with x:\n    from .. import stores"),
        ("_core.line", "for x in y: pass\nelse:\n    from .. import stores"),
        ("_core.line", "try: pass\nfinally:\n    from .. import stores"),
        ("_core.line", "try: pass\nexcept E:\n    from .. import stores"),
        ("_core.line", "if x: pass\nelif y:\n    from .. import stores"),
        ("_core.line", "if TYPE_CHECKING:\n    from .. import stores"),
        ("record", "from ._core import line"),
        ("errors", "from .record import Record"),
        ("stores.file", "from ..testing import crash_after"),
        ("cli.main", "from ..demo import play"),
        ("__main__", "from .stores import file"),
    ],
)
def test_a_trespass_is_seen(name: str, text: str):
    assert trespasses(Module(f"{PACKAGE}.{name}", text)) != []


@pytest.mark.parametrize("room_name", ["cli", "demo", "integrations", "testing"])
def test_a_handle_or_the_root_that_looks_upwards_is_seen(
    room_name: str,
):
    late = f"def f():\n    from .{room_name} import x"

    assert room(f"{PACKAGE}.checkpointer") == "handles"
    assert trespasses(Module(f"{PACKAGE}.checkpointer", late)) != []
    assert trespasses(Module(PACKAGE, late, is_package=True)) != []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_core.line", "from ..errors import CheckpointError\nfrom . import codec\nimport json"),
        ("errors", "if TYPE_CHECKING:\n    from .record import Record"),
        ("stores.file", "from .._core.line import scan\nfrom . import _fsio"),
    ],
)
def test_an_import_that_the_table_allows_is_let_through(name: str, text: str):
    assert trespasses(Module(f"{PACKAGE}.{name}", text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "import os.path as p",
        "from io import BytesIO",
        "def f():\n    import time",
        "from datetime import datetime\ndatetime.now()",
        "import datetime as d\nd.datetime.utcnow()",
        "from datetime import date as day\nday.today()",
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid4\nx = uuid4()",
        "open('f')",
    ],
)
def test_an_impurity_is_seen(text: str):
    assert impurities(Module(f"{PACKAGE}._core.line", text)) != []


def test_values_of_time_are_no_clock():
    text = "from datetime import datetime, time\nimport uuid\ndatetime.fromisoformat(x)\nuuid.UUID"

    assert impurities(Module(f"{PACKAGE}._core.codec", text)) == []


@pytest.mark.skipif(sys.version_info < (3, 10), reason="3.9 cannot list its standard library")
@pytest.mark.parametrize(
    "text",
    [
        "import orjson",
        "try:\n    import orjson\nexcept ImportError:\n    orjson = None",
        "def f():\n    from psycopg.rows import dict_row",
        "import typing_extensions",
    ],
)
def test_a_stranger_is_seen(text: str):
    assert strangers(Module(f"{PACKAGE}._core.codec", text)) != []


def test_only_the_named_places_may_know_strangers():
    places = ["stores.postgres", "stores.s3", "cli.main", "integrations.langgraph"]

    assert all(may_know_strangers(Module(f"{PACKAGE}.{place}", "")) for place in places)
    assert not may_know_strangers(Module(f"{PACKAGE}.stores.file", ""))
    assert not may_know_strangers(Module(f"{PACKAGE}._core.codec", ""))
