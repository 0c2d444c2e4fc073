"""Memory that was not written yet: `torch.empty` has no degree until every place of it has been filled.

A mask of the places still blank goes through the same views and writes as the tensor. Dimensions whose size varies
have size 1 in it, so that only operators that treat them alike from end to end are followed.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from axiograd.homogeneity.domain import Conflict, Value, join, of_degree
from axiograd.homogeneity.nodes import argument
from axiograd.homogeneity.rules.axes import name_of, sizes
from axiograd.homogeneity.rules.registry import aten

#: Their result is whatever the memory held.
UNINITIALISED = frozenset(aten("empty empty_like new_empty empty_strided new_empty_strided"))
_VIEWS = frozenset(aten("slice select transpose permute t unsqueeze"))
_WRITES = frozenset(aten("slice_scatter select_scatter"))
#: More places than this are not followed.
_LARGEST = 1 << 24


def uninitialised(node: fx.Node) -> Value:
    """What is known about new memory: nothing is in it yet."""
    mask = _mask(node, blank=True)
    return of_degree(0) if mask is None else Value(degree=None, blank=mask)


def follow_blank(node: fx.Node, given: list[Any]) -> Value | None:
    """The result of a view of blank memory, or of a write into it; None if this is something else."""
    name = name_of(node)
    if name not in _VIEWS | _WRITES | {"aten::copy"}:
        return None
    value: Value = given[0]
    source: Value | None = None if name in _VIEWS else given[1]
    if name == "aten::copy":
        return None if source is None or source.blank is not None else replace(source, constant=None)
    mask = _after(node, name, _places(node.args[0], value), None if source is None else _places(node.args[1], source))
    if mask is None:
        return None
    written = [v for v in (value, source) if v is not None and (v.blank is None or not bool(v.blank.all()))]
    joined = join(written) if written else Value(degree=None)
    if isinstance(joined, Conflict):
        return None
    return replace(joined, constant=None, blank=mask if bool(mask.any()) else None)


def _after(node: fx.Node, name: str, mask: Tensor | None, source: Tensor | None) -> Tensor | None:
    """The mask of the result, by the operator itself."""
    target: Any = node.target
    start = 2 if name in _WRITES else 1
    if mask is None or any(isinstance(n, fx.Node) for n in (*node.args[start:], *node.kwargs.values())):
        return None
    if name.removesuffix("_scatter") in {"aten::slice", "aten::select"}:
        before, after = sizes(node.args[0]), sizes(node.args[1] if source is not None else node)  # type: ignore[arg-type]
        if name.startswith("aten::slice") and before is not None and before == after:
            return mask if source is None else source
        if before is None or not before[argument(node, "dim", 0)].isdigit():
            return None
    masks = [mask] if source is None else [mask, source]
    found: Tensor = target(*masks, *node.args[start:], **node.kwargs)
    return found


def _places(node: Any, value: Value) -> Tensor | None:
    return value.blank if value.blank is not None else _mask(node, blank=False)


def _mask(node: Any, *, blank: bool) -> Tensor | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, Tensor):
        return None
    lengths: list[Any] = list(value.shape)
    shape = [size if isinstance(size, int) else 1 for size in lengths]
    small = torch.Size(shape).numel() <= _LARGEST
    return torch.full(shape, fill_value=blank, dtype=torch.bool) if small else None
