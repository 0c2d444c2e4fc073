"""Backward operators written with forward ones, for which runtimes other than PyTorch have kernels.

PyTorch brings most of them along (`torch._decomp`); here is what it leaves out. All are with respect to the input
alone: weights are constants of an exported graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import decomposition_table

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Backward operator → what computes the same with forward ones.

    >>> table = decompositions()
    >>> aten.convolution_backward.default in table, aten.relu.default in table
    (True, False)
    """
    theirs = {op: how for op, how in decomposition_table.items() if "backward" in str(op) and str(op)[:5] == "aten."}
    # The first two would make PyTorch's exporter trace the whole graph once more; ONNX lacks the third.
    others = aten.rsub.Scalar, aten.rsub.Tensor, aten._safe_softmax.default  # noqa: SLF001
    return theirs | {op: decomposition_table[op] for op in others} | _OWN


def write_plainly(graph: fx.Graph) -> None:
    """What PyTorch has no gradient for, or one that no other runtime has, in operators that have both.

    Pooling to one pixel is the mean that it is: PyTorch's changes the strides of channels-last images in place. A copy
    into something is what is copied, in its shape and its dtype.
    """
    pixels = {aten.adaptive_avg_pool1d.default: [-1], aten.adaptive_avg_pool2d.default: [-1, -2]}
    for node in graph.nodes:
        if node.target in pixels and all(size == 1 for size in node.args[1]):
            node.target, node.args = aten.mean.dim, (node.args[0], pixels[node.target], True)
        elif node.target == aten.copy.default:
            into, source = node.args[:2]
            with graph.inserting_before(node):
                wide = graph.call_function(aten.expand_as.default, (source, into))
            node.target, node.args = aten.type_as.default, (wide, into)


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    _bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    _mask: Any = None,
) -> tuple[Tensor, None, None]:
    """A convolution's gradient is the transposed convolution with the same weights, and the other way round.

    >>> x, weight = torch.randn(1, 1, 5, requires_grad=True), torch.randn(1, 1, 2)
    >>> (expected,) = torch.autograd.grad(torch.nn.functional.conv1d(x, weight, stride=2).sum(), x)
    >>> found, *_ = convolution_backward(torch.ones(1, 1, 2), x, weight, None, [2], [0], [1], False, [0], 1)
    >>> torch.allclose(found, expected)
    True
    """
    n, sizes = weight.dim() - 2, weight.shape[2:]
    stride, padding, dilation = (_every(n, each) for each in (stride, padding, dilation))
    none = [0] * n
    if transposed:
        return aten.convolution(grad, weight, None, stride, padding, dilation, False, none, groups), None, None
    reach = [d * (k - 1) for d, k in zip(dilation, sizes, strict=True)]
    if all(s == 1 for s in stride) and all(p <= r for p, r in zip(padding, reach, strict=True)):
        # With stride 1 it is an ordinary convolution with the weights turned round, for which kernels are faster.
        turned = weight.reshape(groups, -1, *weight.shape[1:]).transpose(1, 2).flatten(0, 1)
        around = [i + 2 for i, k in enumerate(sizes) if k > 1]
        turned = turned.flip(around) if around else turned
        outer = [r - p for r, p in zip(reach, padding, strict=True)]
        return aten.convolution(grad, turned, None, stride, outer, dilation, False, none, groups), None, None
    covered = [(o - 1) * s - 2 * p + r + 1 for o, s, p, r in zip(grad.shape[2:], stride, padding, reach, strict=True)]
    rest = [size - c for size, c in zip(x.shape[2:], covered, strict=True)]
    if all(isinstance(r, int) for r in rest):
        return aten.convolution(grad, weight, None, stride, padding, dilation, True, rest, groups), None, None
    # A size that is known at run time only cannot be an attribute of the operator: the frame is cut off afterwards.
    whole = aten.convolution(grad, weight, None, stride, none, dilation, True, none, groups)
    frame = [part for r, p in zip(reversed(rest), reversed(padding), strict=True) for part in (-p, r - p)]
    return aten.constant_pad_nd(whole, frame), None, None


def avg_pool_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    _ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """The transpose of averaging, one matrix per dimension: Aᵀ · grad · A."""
    n = len(kernel) if len(kernel) > 1 else grad.dim() - 2
    kernel, padding = _every(n, kernel), _every(n, padding)
    stride = _every(n, stride) if len(stride) else kernel
    for axis in range(n):
        size, out = x.shape[x.dim() - n + axis], grad.shape[grad.dim() - n + axis]
        k, s, p = kernel[axis], stride[axis], padding[axis]
        start = torch.arange(out, device=grad.device)[:, None] * s - p
        end = torch.clamp_max(start + k, size + p)
        at = torch.arange(size, device=grad.device)
        inside = ((at >= start) & (at < end)).to(grad.dtype)
        if divisor is None:
            whole = end - start if count_include_pad else inside.sum(1, keepdim=True)
            inside = inside / whole.to(grad.dtype)
        grad = _along(grad, inside, axis - n)
    return grad / divisor if divisor is not None else grad


def adaptive_avg_pool(x: Tensor, out: Sequence[int]) -> Any:
    """Averaging over windows whose number is fixed, where the image's size is known at run time only.

    Of a size that is known PyTorch's operator is exported; of another its exporter would write down the window.
    """
    n = len(out)
    if all(isinstance(size, int) for size in x.shape[-n:]):
        return NotImplemented
    for axis, number in zip(range(-n, 0), out, strict=True):
        x = _along(x, _averaging(x.shape[axis], number, x).T, axis)
    return x


def adaptive_avg_pool_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The transpose of averaging over the windows ⌊o·I/O⌋ … ⌈(o+1)·I/O⌉."""
    n = 3 if grad.dim() == 5 else 2  # noqa: PLR2004  # batch, channels and three dimensions of space
    for axis in range(-n, 0):
        grad = _along(grad, _averaging(x.shape[axis], grad.shape[axis], grad), axis)
    return grad


def _averaging(size: int, out: int, like: Tensor) -> Tensor:
    """[out, size]: in each row, equal weights on the pixels of a window."""
    o = torch.arange(out, device=like.device)[:, None]
    at = torch.arange(size, device=like.device)
    inside = ((at >= o * size // out) & (at < ((o + 1) * size + out - 1) // out)).to(like.dtype)
    return inside / inside.sum(1, keepdim=True)


def adaptive_max_pool(x: Tensor, out: Sequence[int]) -> Any:
    """The first largest value of each window ⌊o·I/O⌋ … ⌈(o+1)·I/O⌉, and where it is in flattened space."""
    n = len(out)
    sizes = x.shape[-n:]
    if not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    places = torch.zeros([1] * 2 * n, dtype=torch.int64, device=x.device)
    for axis, (size, number) in enumerate(zip(sizes, out, strict=True)):
        o = torch.arange(number, device=x.device)[:, None]
        start, end = o * size // number, ((o + 1) * size + number - 1) // number
        longest = -(-size // number) + (1 if size % number else 0)
        # A window that is shorter than others has its last place several times, which changes no maximum.
        at = torch.minimum(start + torch.arange(longest, device=x.device), end - 1)
        shape = [1] * 2 * n
        shape[axis], shape[n + axis] = number, longest
        places = places * size + at.reshape(shape)
    windows = places.flatten(n).flatten(0, n - 1)
    held = x.flatten(-n)[..., windows]
    chosen = held.argmax(-1, keepdim=True)
    values, where = held.gather(-1, chosen), windows.expand(held.shape).gather(-1, chosen)
    return values.reshape(*x.shape[:-n], *out), where.reshape(*x.shape[:-n], *out)


def scattered(grad: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    """The gradient of a maximum goes to where the maximum was: the last argument says where, in flattened space."""
    indices = arguments[-1]
    space = x.dim() - 2
    empty = torch.zeros_like(x).flatten(-space)
    rows = empty.shape[:-1]
    return empty.scatter_add(-1, indices.reshape(*rows, -1), grad.reshape(*rows, -1)).reshape(x.shape)


def nearest_backward(
    grad: Tensor, _out: Any, shape: Sequence[int], *scales: float | None, middle: bool = False
) -> Tensor:
    """The transpose of copying pixel ⌊o·s⌋ (or ⌊(o + ½)·s⌋) to o."""
    for axis, size, out, step in _resized(grad, shape, scales):
        o = torch.arange(out, dtype=torch.float32, device=grad.device) + (0.5 if middle else 0.0)
        taken = torch.clamp_max((o * step).floor(), size - 1)
        at = torch.arange(size, dtype=taken.dtype, device=grad.device)
        grad = _along(grad, (taken[:, None] == at).to(grad.dtype), axis)
    return grad


def linear_backward(
    grad: Tensor, _out: Any, shape: Sequence[int], align_corners: bool, *scales: float | None
) -> Tensor:
    """The transpose of linear interpolation: pixel i counts max(0, 1 − |o′ − i|) at the place o′ of o in the source."""
    for axis, size, out, step in _resized(grad, shape, scales):
        o = torch.arange(out, dtype=grad.dtype, device=grad.device)
        if align_corners:
            place = o * ((size - 1) / (out - 1) if out > 1 else 0.0)
        else:
            place = torch.clamp_min((o + 0.5) * step - 0.5, 0.0)
        place = torch.clamp_max(place, size - 1)
        at = torch.arange(size, dtype=grad.dtype, device=grad.device)
        grad = _along(grad, torch.clamp_min(1 - (place[:, None] - at).abs(), 0.0), axis)
    return grad


def _resized(
    grad: Tensor, shape: Sequence[int], scales: Sequence[float | None]
) -> Iterator[tuple[int, int, int, float]]:
    """Each axis of space, its sizes before and after, and the step in the source per pixel of the result."""
    n = len(shape) - 2
    for axis in range(-n, 0):
        size, out = shape[axis], grad.shape[axis]
        scale = scales[axis] if len(scales) == n else None
        yield axis, size, out, size / out if scale is None else 1 / scale


def replication_backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    """The transpose of repeating the border: what lies outside counts for the border."""
    for number, axis in enumerate(range(-1, -1 - len(padding) // 2, -1)):
        size, out = x.shape[axis], grad.shape[axis]
        taken = torch.clamp(torch.arange(out, device=grad.device) - padding[2 * number], 0, size - 1)
        at = torch.arange(size, device=grad.device)
        grad = _along(grad, (taken[:, None] == at).to(grad.dtype), axis)
    return grad


def _along(grad: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """Σ_o matrix[o, i] · grad[…, o, …] along one axis."""
    return (grad.movedim(axis, -1) @ matrix).movedim(-1, axis)


def _every(n: int, given: Sequence[int]) -> list[int]:
    """One number for each dimension, where one stands for all."""
    return list(given) * n if len(given) == 1 else list(given)


_OWN: dict[Any, Callable[..., Any]] = {
    aten.convolution_backward.default: convolution_backward,
    aten.avg_pool2d_backward.default: avg_pool_backward,
    aten.avg_pool3d_backward.default: avg_pool_backward,
    aten._adaptive_avg_pool2d.default: adaptive_avg_pool,  # noqa: SLF001
    aten._adaptive_avg_pool3d.default: adaptive_avg_pool,  # noqa: SLF001
    aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool_backward,  # noqa: SLF001
    aten._adaptive_avg_pool3d_backward.default: adaptive_avg_pool_backward,  # noqa: SLF001
    aten.adaptive_max_pool2d.default: adaptive_max_pool,
    aten.adaptive_max_pool3d.default: adaptive_max_pool,
    aten.max_pool3d_with_indices_backward.default: scattered,
    aten.adaptive_max_pool2d_backward.default: scattered,
    aten.adaptive_max_pool3d_backward.default: scattered,
    aten.upsample_nearest1d_backward.default: nearest_backward,
    aten.upsample_nearest2d_backward.default: nearest_backward,
    aten.upsample_nearest3d_backward.default: nearest_backward,
    aten._upsample_nearest_exact1d_backward.default: partial(nearest_backward, middle=True),  # noqa: SLF001
    aten._upsample_nearest_exact2d_backward.default: partial(nearest_backward, middle=True),  # noqa: SLF001
    aten._upsample_nearest_exact3d_backward.default: partial(nearest_backward, middle=True),  # noqa: SLF001
    aten.upsample_linear1d_backward.default: linear_backward,
    aten.upsample_bilinear2d_backward.default: linear_backward,
    aten.upsample_trilinear3d_backward.default: linear_backward,
    aten.replication_pad1d_backward.default: replication_backward,
    aten.replication_pad2d_backward.default: replication_backward,
    aten.replication_pad3d_backward.default: replication_backward,
}
