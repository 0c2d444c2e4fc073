"""The layers of torch that a chain may have, each by its own formulas.

What an `nn.Sequential` of such layers computes is decided by the layers alone. Whatever might make the modules do
something else (a hook, another class, a `forward` of its own) is looked for in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torchs

from axiograd.training.held_gates.operators import NotChainError

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_aten = torch.ops.aten
#: Dimensions of a batch of images.
_IMAGES = 4


class Link:
    """One layer: y = A·x + b while its gates are held."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer: Any = layer

    def weights(self) -> tuple[Tensor | None, ...]:
        """The weight, and what is added."""
        return ()

    def forward(self, x: Tensor) -> Tensor:
        """The layer itself, which keeps its gates."""
        raise NotImplementedError

    def back(self, gradient: Tensor) -> Tensor:
        """Aᵀ·gradient."""
        raise NotImplementedError

    def again(self, x: Tensor, linear: bool) -> Tensor:
        """A·x, and what is added unless only the linear part is wanted."""
        raise NotImplementedError

    def products(self, x: Tensor, gradient: Tensor, wanted: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
        """The gradients of gradient·(A·x + b) by the weights that are wanted."""
        raise NotImplementedError


class _Weighted(Link):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        self.weight, self.bias = self.layer.weight, self.layer.bias

    def weights(self) -> tuple[Tensor | None, ...]:
        return self.weight, self.bias


class _Linear(_Weighted):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def back(self, gradient: Tensor) -> Tensor:
        return gradient.matmul(self.weight)

    def again(self, x: Tensor, linear: bool) -> Tensor:
        return F.linear(x, self.weight, None if linear else self.bias)

    def products(self, x: Tensor, gradient: Tensor, wanted: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
        weight, bias = wanted
        if x.dim() > 2:  # noqa: PLR2004 - rows and features
            x, gradient = x.flatten(0, -2), gradient.flatten(0, -2)
        return gradient.t().mm(x) if weight else None, gradient.sum(0) if bias else None


class _Conv2d(_Weighted):
    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__(layer)
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise NotChainError("a convolution that pads by itself.")

    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        if x.dim() != _IMAGES:
            raise NotChainError("a convolution of a single image.")
        self.how = (layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups)
        self.like = x
        return _aten.convolution(x, self.weight, self.bias, *self.how)  # type: ignore[no-any-return]

    def back(self, gradient: Tensor) -> Tensor:
        found = _aten.convolution_backward(gradient, self.like, self.weight, None, *self.how, (True, False, False))
        return found[0]  # type: ignore[no-any-return]

    def again(self, x: Tensor, linear: bool) -> Tensor:
        bias = None if linear else self.bias
        return _aten.convolution(x, self.weight, bias, *self.how)  # type: ignore[no-any-return]

    def products(self, x: Tensor, gradient: Tensor, wanted: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
        weight, bias = wanted
        sizes = None if self.bias is None else self.bias.shape
        found = _aten.convolution_backward(gradient, x, self.weight, sizes, *self.how, (False, weight, bias))
        return found[1], found[2]


class _ReLU(Link):
    def forward(self, x: Tensor) -> Tensor:
        self.result = x.relu()
        return self.result

    def back(self, gradient: Tensor) -> Tensor:
        return _aten.threshold_backward(gradient, self.result, 0)  # type: ignore[no-any-return]

    def again(self, x: Tensor, linear: bool) -> Tensor:  # noqa: ARG002
        return self.back(x)


class _MaxPool2d(Link):
    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        pairs = [(n, n) if isinstance(n, int) else n for n in (layer.kernel_size, layer.stride, layer.padding)]
        dilation = (layer.dilation,) * 2 if isinstance(layer.dilation, int) else layer.dilation
        self.how = (*pairs, dilation, layer.ceil_mode)
        self.like = x
        result, self.winners = _aten.max_pool2d_with_indices(x, *self.how)
        return result  # type: ignore[no-any-return]

    def back(self, gradient: Tensor) -> Tensor:
        return _aten.max_pool2d_with_indices_backward(gradient, self.like, *self.how, self.winners)  # type: ignore[no-any-return]

    def again(self, x: Tensor, linear: bool) -> Tensor:  # noqa: ARG002
        return x.flatten(-2).gather(-1, self.winners.flatten(-2)).reshape(self.winners.shape)


class _MeanPool(Link):
    """Adaptive average pooling to one number per channel."""

    def __init__(self, layer: nn.AdaptiveAvgPool2d) -> None:
        super().__init__(layer)
        if layer.output_size not in {1, (1, 1)}:
            raise NotChainError("adaptive pooling to more than one number.")

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return x.mean((-2, -1), keepdim=True)

    def back(self, gradient: Tensor) -> Tensor:
        return (gradient / (self.shape[-1] * self.shape[-2])).expand(self.shape)

    def again(self, x: Tensor, linear: bool) -> Tensor:  # noqa: ARG002
        return x.mean((-2, -1), keepdim=True)


class _Shape(Link):
    """Layers that only put numbers elsewhere."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
            raise NotChainError("samples may be put beside one another.")

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        if isinstance(self.layer, nn.PixelUnshuffle) and x.dim() != _IMAGES:
            raise NotChainError("a single image.")
        return self.layer.forward(x)  # type: ignore[no-any-return]

    def back(self, gradient: Tensor) -> Tensor:
        if isinstance(self.layer, nn.PixelUnshuffle):
            return F.pixel_shuffle(gradient, self.layer.downscale_factor)
        return gradient.reshape(self.shape)

    def again(self, x: Tensor, linear: bool) -> Tensor:  # noqa: ARG002
        return self.layer.forward(x)  # type: ignore[no-any-return]


_LINKS: dict[type[nn.Module], Callable[[Any], Link]] = {
    nn.Linear: _Linear,
    nn.Conv2d: _Conv2d,
    nn.ReLU: _ReLU,
    nn.MaxPool2d: _MaxPool2d,
    nn.AdaptiveAvgPool2d: _MeanPool,
    nn.Flatten: _Shape,
    nn.Identity: _Shape,
    nn.PixelUnshuffle: _Shape,
}
_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
#: As they were when this module was read: somebody may put others in their place.
_KINDS: tuple[Any, ...] = (*_LINKS, *_DROPOUT, nn.Sequential)
_FORWARD = {kind: kind.forward for kind in _KINDS}
_CALL = nn.Module.__call__


def links_of(model: Any) -> list[Link]:
    """The layers of a chain in order; raises if anything might make of the model something else."""
    if torchs._has_any_global_hook():  # noqa: SLF001 - as nn.Module asks
        raise NotChainError("a hook is called by all modules.")
    links: list[Link] = []
    _add_links(model, links)
    return links


def check_called_plainly(module: nn.Module) -> None:
    """Raise if a call of the module is more than its class's `forward`."""
    own = vars(module)
    if "forward" in own or own.get("_compiled_call_impl") is not None or any(own[hooks] for hooks in _HOOKS):
        raise NotChainError(f"{type(module).__name__} has hooks, or is called in a way of its own.")


def _add_links(module: Any, links: list[Link]) -> None:
    kind: Any = type(module)
    known = kind if kind in _FORWARD else nn.Sequential if isinstance(module, nn.Sequential) else None
    if known is None or kind.forward is not _FORWARD[known] or kind.__call__ is not _CALL:
        raise NotChainError(f"{kind.__name__} is not a chain of layers.")
    check_called_plainly(module)
    if kind in _LINKS:
        links.append(_LINKS[kind](module))
    elif known is nn.Sequential:
        if kind.__iter__ is not nn.Sequential.__iter__:
            raise NotChainError(f"{kind.__name__} has an order of its own.")
        for child in module._modules.values():  # noqa: SLF001 - as it iterates
            _add_links(child, links)
    elif module.training and module.p > 0:
        raise NotChainError("units are dropped.")
