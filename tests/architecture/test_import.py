"""What `import agent_checkpoint` costs and where it works."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from source_code import ALWAYS, ROOT, SRC, Module, imports, modules

# Each of them costs more than the rest of the package, or starts something.
TOO_HEAVY = {"asyncio", "dataclasses", "inspect", "subprocess"}

NOT_EVERYWHERE = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "winreg"}

_LOADED_BY = """
import sys
sys.path += sys.argv[2:]
exec(sys.argv[1])
print(*sys.modules)
"""


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after *statement*.

    It starts with -S, so that nothing is there beforehand, but third parties can be found.
    """
    third_parties = [folder for folder in sys.path if folder.endswith("site-packages")]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LOADED_BY, statement, str(SRC), *third_parties],
        capture_output=True,
        check=True,
        text=True,
    )
    return set(done.stdout.split())


def not_from_python(names: set[str]) -> set[str]:
    """Return those of the loaded modules *names* that are neither Python's nor ours."""
    at_home = {*sys.stdlib_module_names, "__main__", "agent_checkpoint", "trace_checkpoint"}
    return {name for name in names if name.split(".")[0] not in at_home}


def unguarded(module: Module) -> list[str]:
    """Return the imports of *module* that always run and fail on some operating system."""
    return [
        f"{module.name}:{each.line} imports {each.name}"
        for each in imports(module)
        if each.top in NOT_EVERYWHERE and each.runs == ALWAYS
    ]


def declared_dependencies(pyproject: str) -> list[str]:
    """Return the project's own dependencies, extras left out."""
    if sys.version_info >= (3, 11):
        import tomllib

        dependencies = tomllib.loads(pyproject)["project"]["dependencies"]
        assert isinstance(dependencies, list)
        return dependencies
    project = re.search(r"^\[project\]\n(.*?)(?=^\[|\Z)", pyproject, re.MULTILINE | re.DOTALL)
    assert project
    found = re.search(r"^dependencies = \[(.*?)\]", project[1], re.MULTILINE | re.DOTALL)
    assert found
    return re.findall(r'"([^"]+)"', found[1])


@pytest.mark.parametrize("package", ["agent_checkpoint", "trace_checkpoint"])
def test_importing_the_package_loads_nothing_heavy(package: str):
    loaded = loaded_by(f"import {package}")

    assert package in loaded
    assert loaded & TOO_HEAVY == set()


@pytest.mark.skipif(sys.version_info < (3, 10), reason="3.9 cannot list its standard library")
@pytest.mark.parametrize("package", ["agent_checkpoint", "trace_checkpoint"])
def test_importing_the_package_loads_the_standard_library_only(package: str):
    assert not_from_python(loaded_by(f"import {package}")) == set()


def test_nothing_at_module_level_fails_on_another_system():
    everywhere = modules("agent_checkpoint") + modules("trace_checkpoint")

    assert [bad for module in everywhere for bad in unguarded(module)] == []


def test_the_project_declares_no_dependency():
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert declared_dependencies(pyproject) == []


@pytest.mark.parametrize("module", sorted(TOO_HEAVY))
def test_a_heavy_import_is_seen(module: str):
    assert module in loaded_by(f"import {module}")


@pytest.mark.skipif(sys.version_info < (3, 10), reason="3.9 cannot list its standard library")
def test_a_loaded_third_party_is_seen():
    assert "hypothesis" in not_from_python(loaded_by("import hypothesis"))


@pytest.mark.parametrize(
    "text",
    [
        "import fcntl",
        "from termios import tcgetattr",
        "class Lock:\n    import fcntl",
        "if x:\n    import pwd",
        "try:\n    import fcntl\nexcept OSError:\n    pass",
    ],
)
def test_an_unguarded_import_is_seen(text: str):
    assert unguarded(Module("agent_checkpoint.stores.file", text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "def lock():\n    import fcntl",
        "if sys.platform != 'win32':\n    import fcntl\nelse:\n    import msvcrt",
        "if os.name == 'posix':\n    import fcntl",
        "try:\n    import fcntl\nexcept ImportError:\n    fcntl = None",
        "if TYPE_CHECKING:\n    import fcntl",
    ],
)
def test_a_guarded_import_is_let_through(text: str):
    assert unguarded(Module("agent_checkpoint.stores.file", text)) == []


def test_a_dependency_is_seen():
    pyproject = '[project]\nname = "x"\ndependencies = [\n    "orjson>=3",\n]\n[tool.x]\ny = 1\n'

    assert declared_dependencies(pyproject) == ["orjson>=3"]
