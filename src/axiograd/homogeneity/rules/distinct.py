"""Whether places that an operator writes to are all different: autograd counts a place once for each write."""

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from axiograd.homogeneity.domain import Value
from axiograd.homogeneity.nodes import argument, shape_of
from axiograd.homogeneity.rules.axes import MOVES, moved, name_of, sizes

Known = Mapping[fx.Node, Any]


def distinct(node: Any, dim: int, known: Known, size: object = None) -> bool:
    """No number occurs twice along a dimension of an index; `size`: that of the dimension it counts in."""
    shape = shape_of(node)
    if shape is None:
        return False
    if not shape or _is_one(shape[dim % len(shape)]):
        return True
    dim %= len(shape)
    numbers = _numbers(node, known, size)
    if numbers is not None:
        return not bool((numbers.sort(dim).values.diff(dim=dim) == 0).any())
    name = name_of(node)
    if name in MOVES:
        source = node.args[0]
        labels, before = moved(node, tuple(range(len(shape_of(source) or ())))), sizes(source)
        along = None if labels is None else labels[dim]
        # Expanding a dimension repeats its one number.
        if along is None or before is None or before[along] != str(shape[dim]):
            return False
        return distinct(source, along, known, size)
    return name in {"aten::arange", "aten::randperm"} or _sorts(node, dim, len(shape))


def distinct_together(indices: list[tuple[Any, object]], known: Known) -> bool:
    """No two places of a group of indices, one for each dimension that it counts in, are the same."""
    shapes = [shape_of(node) for node, _ in indices]
    if any(shape is None for shape in shapes):
        return False
    if any(node.meta["val"].dtype in {torch.bool, torch.uint8} for node, _ in indices):
        # A mask lists each place once.
        return len(indices) == 1
    numbers = [_numbers(node, known, size) for node, size in indices]
    if all(n is not None for n in numbers):
        listed = torch.stack(
            [n.reshape(-1) for n in torch.broadcast_tensors(*(n for n in numbers if n is not None))], 1
        )
        return len(listed.unique(dim=0)) == len(listed)
    # An index that varies along one dimension only, or along one besides those known already, tells its places apart.
    dims = max(len(shape or ()) for shape in shapes)
    varies = [{d - len(s) for d in range(len(s)) if not _is_one(s[d])} for s in shapes if s is not None]
    told: set[int] = set()
    for _ in range(dims):
        for (node, size), along in zip(indices, varies, strict=True):
            if len(along - told) == 1 and distinct(node, next(iter(along - told)), known, size):
                told |= along
    return set().union(*varies) <= told


def disjoint_windows(node: Any) -> bool:
    """Indices of a max-pooling whose windows share no entry."""
    while isinstance(node, fx.Node) and name_of(node) in MOVES - {"aten::expand"}:
        node = node.args[0]
    if not _is_second(node) or not name_of(node.args[0]).endswith("d_with_indices"):
        return False
    pool = node.args[0]
    kernel = argument(pool, "kernel_size")
    stride = argument(pool, "stride", []) or kernel
    dims = int(name_of(pool).removesuffix("d_with_indices")[-1])
    kernel, stride, dilation = (_each(v, dims) for v in (kernel, stride, argument(pool, "dilation", 1)))
    return all(s > d * (k - 1) for k, s, d in zip(kernel, stride, dilation, strict=True))


def no_overlap(size: list[Any], stride: list[Any]) -> bool:
    """A strided view whose entries are different places of memory."""
    if not all(isinstance(n, int) for n in (*size, *stride)):
        return False
    reach = 0
    for step, count in sorted((s, n) for n, s in zip(size, stride, strict=True) if n > 1):
        if step <= reach:
            return False
        reach += step * (count - 1)
    return True


def _each(value: Any, dims: int) -> list[Any]:
    given = [value] if isinstance(value, int) else list(value)
    return given * dims if len(given) == 1 else given


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _numbers(node: Any, known: Known, size: object) -> Tensor | None:
    value = known.get(node)
    numbers = value.constant.value() if isinstance(value, Value) and value.constant is not None else None
    if not isinstance(numbers, Tensor) or numbers.is_meta:
        return None
    if isinstance(size, int) and size > 0:
        return torch.remainder(numbers, size)
    return None if bool((numbers < 0).any()) else numbers


def _is_second(node: Any) -> bool:
    """The indices of an operator that returns values and indices."""
    return isinstance(node, fx.Node) and node.target is operator.getitem and bool(node.args[1] == 1)


def _sorts(node: Any, dim: int, dims: int) -> bool:
    """Where the sorted or largest entries along this very dimension come from."""
    if name_of(node) != "aten::argsort":
        if not _is_second(node) or name_of(node.args[0]) not in {"aten::sort", "aten::topk"}:
            return False
        node = node.args[0]
    along = argument(node, "dim", -1)
    return isinstance(along, int) and along % dims == dim
