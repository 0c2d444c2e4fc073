"""The rooms in the order in which data walks through them: no import goes back, no private name leaves its room."""

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

from axiograd import XGradient

SRC = Path(__file__).parents[1] / "src" / "axiograd"
#: A room imports from those in the lines before its own; rooms of one line do not know each other.
ROAD = (
    ("runs",),
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
    ("studio",),
    ("experiments",),
    ("cli",),
)
PLACES = {room: place for place, rooms in enumerate(ROAD) for room in rooms}
#: Modules outside the rooms that may name one: the public surface, `python -m axiograd`, and the display in notebooks.
HOOKS = {"_surface", "__main__", "_notebook"}
#: Files that a reader opens to follow a call of X-Gradient whose proof is known, as CONTRIBUTING says.
WALK = {
    "attribution/base.py",
    "attribution/x_gradient.py",
    "attribution/arguments.py",
    "attribution/_proof.py",
    "attribution/passes.py",
    "homogeneity/running.py",
    "_target.py",
}


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
    """What is wrong with an import between rooms."""
    (room, *_), (source, *rest) = one.by, one.of
    if room == source or source not in PLACES:
        return None
    line = f"{'.'.join(one.by)} imports {'.'.join(one.of)}"
    if room not in PLACES:
        return None if room in HOOKS else f"{line}: what stands outside the rooms knows none of them"
    if PLACES[source] >= PLACES[room]:
        return f"{line}: {source} does not come before {room}"
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


def test_every_room_has_its_place():
    rooms = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert rooms <= PLACES.keys()


def test_no_import_goes_back_and_no_private_name_leaves_its_room():
    found = [line for one in imports() if (line := wrong(one))]
    assert not found, "\n".join(found)


def test_there_is_no_cycle():
    assert cycle() is None


@pytest.mark.parametrize(
    ("by", "of", "why"),
    [
        ("homogeneity.trace", "attribution.base.Call", "attribution does not come before homogeneity"),
        ("models.mlp", "datasets.mnist", "datasets does not come before models"),
        ("metrics.masking", "attribution._path.Model", "private"),
        ("metrics.masking", "attribution.base._Call", "private"),
        ("_target", "attribution.base.Call", "knows none of them"),
        ("_notebook", "report.notebook", None),
        ("training.loss", "attribution.base.Attribution", None),
        ("training.loss", "training._x.y", None),
        ("training.loss", "_target.Target", None),
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


def walked(call: Callable[[], object]) -> set[str]:
    """The files whose functions a call runs."""
    found: set[str] = set()

    def look(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SRC):
            found.add(path.relative_to(SRC).as_posix())

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("between", [nn.Identity(), nn.BatchNorm1d(16, affine=False)], ids=["plain", "buffers"])
def test_a_warm_explanation_walks_seven_files(between):
    model = nn.Sequential(nn.Linear(8, 16, bias=False), between, nn.ReLU(), nn.Linear(16, 3, bias=False)).eval()
    method, x = XGradient(model), torch.randn(2, 8)
    first = walked(lambda: method.explain(x, target=0))
    assert {"homogeneity/certification.py", "attribution/_path_check.py"} <= first  # what is seen is seen
    # Some calls look along the path too: the second and the fourth, and any after a long pause.
    assert min((walked(lambda: method.explain(x, target=0)) for _ in range(5)), key=len) == WALK
    assert len(WALK) == 7
