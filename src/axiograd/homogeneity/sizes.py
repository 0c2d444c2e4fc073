"""For which sizes of the inputs a traced program is the model: ranges, divisibility, and what else the trace saw."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from axiograd._calls import Leaves

#: How many sizes a condition is tried on, to put it into words.
_TRIED = 64


@dataclass(frozen=True)
class Sizes:
    """The inputs' shapes as the trace left them: numbers where they are fixed, symbols where they are free."""

    #: Per input leaf: name and sizes (ints or SymPy expressions); None for what is not a tensor.
    shapes: tuple[tuple[str, tuple[Any, ...]] | None, ...]
    #: Symbol → (least, most).
    ranges: dict[Any, tuple[int, float]]
    #: Conditions on symbols under which the traced branch is taken.
    conditions: tuple[Any, ...]

    def cover(self, shapes: Sequence[tuple[int, ...] | None]) -> bool:
        """Whether the program is the model on inputs of these shapes."""
        values: dict[Any, int] = {}
        for known, shape in zip(self.shapes, shapes, strict=True):
            if known is None or shape is None:
                continue
            if len(known[1]) != len(shape):
                return False
            for size, n in zip(known[1], shape, strict=True):
                if isinstance(size, int):
                    if size != n:
                        return False
                elif not size.is_Symbol or values.setdefault(size, n) != n:
                    return False
        for symbol, n in values.items():
            least, most = self.ranges.get(symbol, (2, float("inf")))
            if not least <= n <= most:
                return False
        # What cannot be decided is not covered.
        return all(condition.subs(values) == True for condition in self.conditions)  # noqa: E712 - SymPy's own true

    def describe(self) -> tuple[str, ...]:
        """One text per free dimension: "x[0] ≥ 2", "2 ≤ x[0] ≤ 4", "x[0] ≥ 2, not 7"."""
        found = []
        for known in self.shapes:
            for axis, size in enumerate(known[1] if known is not None else ()):
                if known is not None and not isinstance(size, int):
                    found.append(self._words(f"{known[0]}[{axis}]", size))
        return tuple(found)

    def _words(self, name: str, size: Any) -> str:
        least, most = self.ranges.get(size, (2, float("inf")))
        text = f"{name} ≥ {least}" if most == float("inf") else f"{least} ≤ {name} ≤ {most:g}"
        mine = [c for c in self.conditions if c.free_symbols == {size}]
        tried = range(least, int(min(most, least + _TRIED)) + 1)
        refused = [str(n) for n in tried if not all(c.subs({size: n}) == True for c in mine)]  # noqa: E712
        if refused:
            text += f", not {', '.join(refused[:3])}{' …' if len(refused) > 3 else ''}"  # noqa: PLR2004 - some
        return text


def sizes_of(exported: ExportedProgram, inputs: dict[str, int], arguments: Leaves) -> Sizes:
    """What an export says about sizes; `inputs` maps its placeholders to leaves."""
    shapes: list[tuple[str, tuple[Any, ...]] | None] = [
        (leaf.name, tuple(leaf.value.shape)) if isinstance(leaf.value, Tensor) else None for leaf in arguments.leaves
    ]
    environment = None
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or node.name not in inputs or not isinstance(value, Tensor):
            continue
        index = inputs[node.name]
        symbolic: list[Any] = list(value.shape)
        sizes = [n.node.expr if isinstance(n, torch.SymInt) else n for n in symbolic]
        shapes[index] = (
            arguments.leaves[index].name,
            tuple(int(s) if getattr(s, "is_Integer", False) else s for s in sizes),
        )
        environment = getattr(getattr(value, "fake_mode", None), "shape_env", None) or environment
    free = {s for known in shapes if known is not None for s in known[1] if not isinstance(s, int)}
    ranges = {
        symbol: (int(bounds.lower), int(bounds.upper) if bounds.upper.is_Integer else float("inf"))
        for symbol, bounds in exported.range_constraints.items()
        if symbol in free
    }
    # Sizes that the trace found equal share a symbol in the shapes, and conditions must speak of that one.
    guards = [environment.replace(guard.expr) for guard in environment.guards] if environment is not None else []
    conditions = [guard for guard in guards if guard != True]  # noqa: E712 - SymPy's own true
    return Sizes(tuple(shapes), ranges, tuple(c for c in conditions if c.free_symbols & free))
