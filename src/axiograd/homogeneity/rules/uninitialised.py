"""Memory that was not written yet: `torch.empty` has no degree until every place of it has been filled.

A mask of the places still open goes through the same views and writes as the tensor. Dimensions whose size varies have
size 1 in it, so that only operators that treat them alike from end to end are followed.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from axiograd.homogeneity.degrees import FREE, Conflict, Value, join, of_degree
from axiograd.homogeneity.rules.origins import name_of, sizes
from axiograd.homogeneity.rules.registry import aten
from axiograd.homogeneity.tracing.nodes import argument, shape_of

#: Their result is whatever the memory held.
UNINITIALISED = frozenset(aten("empty empty_like new_empty empty_strided new_empty_strided"))
_VIEWS = frozenset(aten("slice select transpose permute t unsqueeze"))
_WRITES = frozenset(aten("slice_scatter select_scatter"))
#: More places than this are not followed.
_LARGEST = 1 << 24


def new_memory(node: fx.Node) -> Value:
    """What is known about new memory: nothing is in it yet."""
    mask = _mask(node, fill=True)
    return of_degree(0) if mask is None else replace(FREE, uninitialised=mask)


def view_or_write(node: fx.Node, given: list[Any]) -> Value | None:
    """The result of a view of such memory, or of a write into it; None if this is something else."""
    name = name_of(node)
    if name == "aten::copy":
        return None if given[1].uninitialised is not None else given[1].bare()
    if name not in _VIEWS | _WRITES:
        return None
    values = given[:2] if name in _WRITES else given[:1]
    masks = [
        _mask(n, fill=False) if v.uninitialised is None else v.uninitialised
        for n, v in zip(node.args, values, strict=False)
    ]
    mask = None if any(m is None for m in masks) else _followed(node, name, masks)
    written = [v for v in values if v.uninitialised is None or not bool(v.uninitialised.all())]
    joined = join(written) if written else FREE
    if mask is None or isinstance(joined, Conflict):
        return None
    return replace(joined.bare(), uninitialised=mask if bool(mask.any()) else None)


def _followed(node: fx.Node, name: str, masks: list[Any]) -> Any:
    """The mask of the result, by the operator itself."""
    rest: Any = node.args[len(masks) :]
    if any(isinstance(n, fx.Node) for n in (*rest, *node.kwargs.values())):
        return None
    if name.removesuffix("_scatter") in {"aten::slice", "aten::select"}:
        before, part = sizes(node.args[0]) or [], sizes(node.args[1] if len(masks) > 1 else node)
        if name.startswith("aten::slice") and before == part:
            return masks[-1]
        if not before[argument(node, "dim", 0)].isdigit():
            return None
    target: Any = node.target
    return target(*masks, *rest, **node.kwargs)


def _mask(node: Any, *, fill: bool) -> Tensor | None:
    shape = [size if isinstance(size, int) else 1 for size in shape_of(node) or ()]
    if shape_of(node) is None or torch.Size(shape).numel() > _LARGEST:
        return None
    return torch.full(shape, fill_value=fill, dtype=torch.bool)
