"""One module changes what is on the disk, so that one module has to be right about it."""

from __future__ import annotations

import ast

import pytest
from source_code import Module, bindings, dotted_name, modules

PACKAGE = "agent_checkpoint"
THE_ONE = f"{PACKAGE}.stores._fsio"

CHANGES_THE_DISK = {
    f"os.{name}"
    for name in (
        "fdatasync",
        "fsync",
        "ftruncate",
        "link",
        "makedirs",
        "mkdir",
        "posix_fallocate",
        "pwrite",
        "pwritev",
        "remove",
        "removedirs",
        "rename",
        "renames",
        "replace",
        "rmdir",
        "symlink",
        "sync",
        "truncate",
        "unlink",
        "write",
        "writev",
    )
} | {
    f"shutil.{name}"
    for name in ("copy", "copy2", "copyfile", "copyfileobj", "copytree", "move", "rmtree")
}
OPENS = {"open", "io.open", "os.open", "os.fdopen"}
WRITING_FLAGS = ("O_APPEND", "O_CREAT", "O_RDWR", "O_TRUNC", "O_WRONLY")
# Methods of pathlib's paths and of open files, whatever the variable is called.
CHANGES_BY_METHOD = {
    "hardlink_to",
    "mkdir",
    "rename",
    "rmdir",
    "symlink_to",
    "touch",
    "truncate",
    "unlink",
    "write_bytes",
    "write_text",
}


def writes(module: Module) -> list[str]:
    """Return the places in *module* that change the disk without asking ``_fsio``."""
    known = bindings(module)
    return [
        f"{module.name}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(ast.parse(module.text))
        if isinstance(node, (ast.Attribute, ast.Name, ast.Call)) and _changes(node, known)
    ]


def _changes(node: ast.Attribute | ast.Name | ast.Call, known: dict[str, str]) -> bool:
    if not isinstance(node, ast.Call):
        # Naming the function is enough: `sync = os.fsync` is how it gets away.
        return dotted_name(node, known) in CHANGES_THE_DISK
    name = dotted_name(node.func, known) or ""
    if name in OPENS:
        return _opens_for_writing(node, mode_at=1)
    if not isinstance(node.func, ast.Attribute) or name in CHANGES_THE_DISK:
        return False
    if name.startswith(THE_ONE):
        return False
    if node.func.attr == "open":
        return _opens_for_writing(node, mode_at=0)
    # Path.replace takes one argument; those of str, bytes and datetime take more, or keywords.
    replaces = node.func.attr == "replace" and len(node.args) == 1 and not node.keywords
    return replaces or node.func.attr in CHANGES_BY_METHOD


def _opens_for_writing(call: ast.Call, *, mode_at: int) -> bool:
    given = call.args[mode_at : mode_at + 1]
    given += [keyword.value for keyword in call.keywords if keyword.arg in ("mode", "flags")]
    if not given:
        return False
    mode = given[0]
    if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
        return bool(set(mode.value) & set("wax+"))
    text = ast.unparse(mode)
    # A mode that is computed may be any; flags say what they are.
    return any(flag in text for flag in WRITING_FLAGS) or "O_RDONLY" not in text


def test_only_fsio_changes_the_disk():
    held_to_it = [
        module
        for module in modules(PACKAGE) + modules("trace_checkpoint")
        if module.name != THE_ONE and not module.name.startswith(f"{PACKAGE}.demo")
    ]

    assert held_to_it
    assert [bad for module in held_to_it for bad in writes(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.write(fd, b'')",
        "import os as system\nsystem.fsync(fd)",
        "from os import replace\nreplace(a, b)",
        "from os import fdatasync as sync\nsync(fd)",
        "import os\nsync = os.fsync",
        "import os\nos.open(p, os.O_RDWR)",
        "import os\nos.open(p, os.O_WRONLY | os.O_CREAT, 0o666)",
        "import os\nos.open(p, flags)",
        "import shutil\nshutil.rmtree(p)",
        "open(p, 'w')",
        "open(p, mode='ab')",
        "open(p, 'r+b')",
        "open(p, mode)",
        "import io\nio.open(p, 'x')",
        "path.open('w')",
        "path.write_text('x')",
        "path.unlink(missing_ok=True)",
        "(folder / 'x').mkdir()",
        "path.replace(other)",
        "def f():\n    return [log.truncate(n) for n in ends]",
    ],
)
def test_a_write_is_seen(text: str):
    assert writes(Module(f"{PACKAGE}.stores.file", text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.read(fd, 10)\nos.fstat(fd)",
        "import os\nos.open(p, os.O_RDONLY | os.O_CLOEXEC)",
        "open(p)",
        "open(p, 'rb')",
        "path.open()",
        "path.open('rb')",
        "text.replace('a', 'b')",
        "when.replace(tzinfo=None)",
        "from . import _fsio\n_fsio.truncate(fd, 0)\n_fsio.open(p, mode)",
        "from agent_checkpoint.stores import _fsio as disk\ndisk.unlink(p)",
        "from ._fsio import write_all\nwrite_all(fd, b'')",
    ],
)
def test_reading_and_asking_fsio_are_let_through(text: str):
    assert writes(Module(f"{PACKAGE}.stores.file", text)) == []
