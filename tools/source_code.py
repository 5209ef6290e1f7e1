"""What a module imports and calls, read from its text without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# When an import runs.
ALWAYS, GUARDED, WHEN_CALLED, NEVER = "always", "guarded", "when called", "never"


@dataclass(frozen=True)
class Module:
    """One module of the packages under src: its dotted name and its text."""

    name: str
    text: str
    is_package: bool = False


@dataclass(frozen=True)
class Import:
    """One imported name, absolute: ``from .stores import file`` gives ``package.stores.file``.

    Afterwards the module knows something under *known_as*, and that is what *means* says.
    """

    name: str
    known_as: str
    means: str
    line: int
    runs: str

    @property
    def top(self) -> str:
        """The name before the first dot."""
        return self.name.split(".")[0]


def modules(package: str) -> list[Module]:
    """Return every module of *package*, as it lies under src."""
    found: list[Module] = []
    for path in sorted((SRC / package).rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(Module(name, path.read_text(encoding="utf-8"), is_package))
    return found


def imports(module: Module) -> list[Import]:
    """Return every import in *module*, wherever it stands."""
    return list(_imports(module, ast.parse(module.text).body, ALWAYS))


def bindings(module: Module) -> dict[str, str]:
    """Return what the names mean that *module* gets from imports."""
    return {each.known_as: each.means for each in imports(module)}


def dotted_name(node: ast.expr, known: Mapping[str, str]) -> str | None:
    """Return ``os.path.join`` for that expression, whatever *known* says ``os`` is called here."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value, known)
        return f"{owner}.{node.attr}" if owner else None
    return None


def _imports(module: Module, body: list[ast.stmt], runs: str) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                means = alias.name if alias.asname else alias.name.split(".")[0]
                yield Import(alias.name, alias.asname or means, means, node.lineno, runs)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                yield Import(name, alias.asname or alias.name, name, node.lineno, runs)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _imports(module, node.body, NEVER if runs == NEVER else WHEN_CALLED)
        elif isinstance(node, ast.If):
            body_runs, else_runs = _branches(node.test, runs)
            yield from _imports(module, node.body, body_runs)
            yield from _imports(module, node.orelse, else_runs)
        elif isinstance(node, ast.Try):
            tried = GUARDED if runs == ALWAYS and _survives_a_missing_module(node) else runs
            yield from _imports(module, node.body, tried)
            for handler in node.handlers:
                yield from _imports(module, handler.body, tried)
            yield from _imports(module, node.orelse + node.finalbody, tried)
        else:
            for inner in ("body", "orelse"):
                yield from _imports(module, getattr(node, inner, []), runs)


def _origin(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = module.name.split(".")
    # One dot is the package that the module is in, which for an __init__ is itself.
    drop = node.level - 1 if module.is_package else node.level
    home = package[: len(package) - drop]
    return ".".join([*home, node.module] if node.module else home)


def _branches(test: ast.expr, runs: str) -> tuple[str, str]:
    text = ast.unparse(test)
    if runs == NEVER or text in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return NEVER, runs
    if runs == ALWAYS and ("sys.platform" in text or "os.name" in text):
        return GUARDED, GUARDED
    return runs, runs


def _survives_a_missing_module(node: ast.Try) -> bool:
    caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
    return "ImportError" in caught or "ModuleNotFoundError" in caught
