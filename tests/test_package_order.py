"""Packages import only from those before them, and no private name leaves its package."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SRC = Path(__file__).parents[1] / "src" / "axiograd"
#: A package imports from the lines before its own; packages of one line do not import each other.
ORDER = (
    ("homogeneity", "models", "datasets"),
    ("loading",),
    ("attribution",),
    ("priors", "axioms", "metrics"),
    ("training",),
    ("text", "tables"),
    ("report",),
    ("callbacks",),
    ("export",),
    ("scale",),
    ("pipeline",),
    ("studio",),
    ("demo",),
    ("cli",),
)
PLACES = {package: place for place, packages in enumerate(ORDER) for package in packages}
#: Root modules that may import a package: the public surface, `python -m axiograd`, the display in notebooks.
HOOKS = {"_surface", "__main__", "_notebook"}


class Import(NamedTuple):
    """One name that one module imports from another, as parts of dotted names below `axiograd`."""

    by: tuple[str, ...]
    of: tuple[str, ...]
    at_once: bool  # when the module is imported, and not in a function or for type checkers alone


def dotted(path: Path, root: Path) -> tuple[str, ...]:
    parts = path.relative_to(root).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts


@cache
def imports(root: Path = SRC) -> tuple[Import, ...]:
    return tuple(found_imports(root))


def found_imports(root: Path) -> Iterator[Import]:
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lazy = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative imports hide where a name comes from"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                first, *rest = name.split(".")
                if first == "axiograd" and rest:
                    yield Import(dotted(path, root), tuple(rest), node not in lazy)


def wrong(one: Import) -> str | None:
    """What is wrong with an import between packages."""
    (package, *_), (source, *rest) = one.by, one.of
    if package == source or source not in PLACES:
        return None
    line = f"{'.'.join(one.by)} imports {'.'.join(one.of)}"
    if package not in PLACES:
        return None if package in HOOKS else f"{line}: root modules import no package"
    if PLACES[source] >= PLACES[package]:
        return f"{line}: {source} does not come before {package}"
    if any(part.startswith("_") for part in rest):
        return f"{line}: private"
    return None


def cycle(root: Path = SRC) -> list[str] | None:
    """Modules that need each other to be imported."""
    modules = {dotted(path, root) for path in root.rglob("*.py")}
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {module: set() for module in modules}
    for one in imports(root):
        target = one.of if one.of in modules else one.of[:-1]
        if one.at_once and target in modules and target != one.by:
            graph[one.by].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [".".join(module) for module in error.args[1]]
    return None


def test_every_package_has_its_place():
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert packages <= PLACES.keys()


def test_no_import_goes_back_and_no_private_name_leaves_its_package():
    found = [line for one in imports() if (line := wrong(one))]
    assert not found, "\n".join(found)


def test_there_is_no_cycle():
    assert cycle() is None


@pytest.mark.parametrize(
    ("by", "of", "why"),
    [
        ("homogeneity.trace", "attribution.base.Call", "attribution does not come before homogeneity"),
        ("models.convnets", "datasets.sources", "datasets does not come before models"),
        ("metrics.masking", "attribution._path.Model", "private"),
        ("metrics.masking", "attribution.base._Call", "private"),
        ("_calls", "attribution.base.Call", "import no package"),
        ("_notebook", "report.notebook", None),
        ("training.loss", "attribution.base.Attribution", None),
        ("training.loss", "training._x.y", None),
        ("training.loss", "_calls.Model", None),
    ],
)
def test_what_would_be_found(by, of, why):
    found = wrong(Import(tuple(by.split(".")), tuple(of.split(".")), at_once=True))
    assert found is None if why is None else why in found


def test_a_cycle_would_be_found(tmp_path):
    for name, line in (("a", "from axiograd.b import x"), ("b", "import axiograd.a"), ("c", "import axiograd.a")):
        (tmp_path / f"{name}.py").write_text(line)
    assert set(cycle(tmp_path)) == {"a", "b"}
    imports.cache_clear()
    (tmp_path / "b.py").write_text("def x():\n    import axiograd.a")
    assert cycle(tmp_path) is None
