"""Contextual decomposition: what a region of the input contributes to every output, and what the rest does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from axiograd.errors import InputError


class Decomposition(NamedTuple):
    """F(x) = β + γ."""

    region: Tensor
    rest: Tensor


def contextual_decomposition(model: Callable[[Any], Any], inputs: Tensor, region: Tensor) -> Decomposition:
    """β + γ = F(x), layer by layer from β₀ = M·x and γ₀ = (1 − M)·x, with M = 1 in the region.

    Linear layers and convolutions share their bias in proportion, β = Wβ + b·|Wβ|/(|Wβ| + |Wγ|); ReLU(β) is what the
    region makes alone, and γ the rest of ReLU(β + γ); pooling takes both from where the maximum of β + γ is. So what a
    region takes away from others, by β < 0 before a ReLU, is in γ. It is differentiable: a prior against a region
    (CDEP) is λ · β.abs().sum(1).mean().

    Singh, Murdoch, Yu: Hierarchical interpretations for neural network predictions, 2019; Rieger, Singh, Murdoch, Yu:
    Interpretations are useful: penalizing explanations to align neural networks with prior knowledge, 2020.

    >>> layer = torch.nn.Linear(2, 1)
    >>> _ = layer.load_state_dict({"weight": torch.tensor([[1.0, 3.0]]), "bias": torch.tensor([8.0])})
    >>> contextual_decomposition(layer, torch.ones(1, 2), torch.tensor([[True, False]]))  # 1 + 8·1/4, 3 + 8·3/4
    Decomposition(region=tensor([[3.]], grad_fn=...), rest=tensor([[9.]], grad_fn=...))
    """
    try:
        inside = region.to(inputs).expand_as(inputs)
    except RuntimeError as error:
        raise InputError(
            f"a region of shape {list(region.shape)} does not fit inputs of shape {list(inputs.shape)}: one value per "
            "feature, or axes of length 1, which are repeated."
        ) from error
    found = model(DecomposedTensor(inside * inputs, (1 - inside) * inputs))
    if not isinstance(found, DecomposedTensor):
        raise InputError(f"contextual decomposition needs a model that returns one tensor, got {type(found).__name__}.")
    return Decomposition(found.region, found.rest)


class DecomposedTensor(Tensor):
    """Two tensors that go through a network as one; functions without a rule are refused by name."""

    region: Tensor
    rest: Tensor

    def __new__(cls, region: Tensor, rest: Tensor) -> Self:
        pair = torch.empty(0).as_subclass(cls)
        pair.region, pair.rest = region, rest
        return pair

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # A property's getter is called __get__, and knows whose it is.
        name = getattr(function, "__name__", "")
        name = name if name != "__get__" else function.__self__.__name__
        if name in _LOOKS:
            return function(args[0].region, *args[1:], **(kwargs or {}))
        rule = _RULES.get(name)
        if rule is None or not args or not isinstance(args[0], DecomposedTensor):
            raise InputError(
                f"contextual decomposition has no rule for {name}: it goes through convolutions, linear layers, ReLU, "
                "pooling, dropout, flattening and sums of branches."
            )
        found = rule(function, args[0], *args[1:], **(kwargs or {}))
        if (kwargs or {}).get("inplace") or name in _IN_PLACE:
            args[0].region, args[0].rest = found
            return args[0]
        return DecomposedTensor(*found)


Parts = tuple[Tensor, Tensor]


def _affine(
    function: Any, x: DecomposedTensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any
) -> Parts:
    region, rest = (function(part, weight, None, *args, **kwargs) for part in (x.region, x.rest))
    if bias is None:
        return region, rest
    if function is not F.linear:
        bias = bias.view(-1, *[1] * (weight.dim() - 2))
    both = region.abs() + rest.abs()
    # Where neither has a part the bias is the rest's; a quotient of zeros would have no gradient.
    share = bias * region.abs() / torch.where(both == 0, 1, both)
    return region + share, rest + (bias - share)


def _linear(function: Any, x: DecomposedTensor, *args: Any, **kwargs: Any) -> Parts:
    return function(x.region, *args, **kwargs), function(x.rest, *args, **kwargs)


def _relu(_: Any, x: DecomposedTensor, **__: Any) -> Parts:
    alone = F.relu(x.region)
    return alone, F.relu(x.region + x.rest) - alone


def _max_pool(function: Any, x: DecomposedTensor, *args: Any, **kwargs: Any) -> Parts:
    pool = getattr(F, f"{function.__name__}_with_indices")
    axes = int(function.__name__[-2])
    _, places = pool(x.region + x.rest, *args, **kwargs)
    region, rest = (part.flatten(-axes).gather(-1, places.flatten(-axes)) for part in (x.region, x.rest))
    return region.view_as(places), rest.view_as(places)


def _dropout(function: Any, x: DecomposedTensor, *args: Any, **kwargs: Any) -> Parts:
    kept = function(torch.ones_like(x.region), *args, **kwargs)
    return kept * x.region, kept * x.rest


def _add(_: Any, x: DecomposedTensor, other: Any, *, alpha: float = 1) -> Parts:
    if not isinstance(other, DecomposedTensor):
        raise InputError(
            f"contextual decomposition has no rule for a sum with {type(other).__name__}, only of branches."
        )
    return torch.add(x.region, other.region, alpha=alpha), torch.add(x.rest, other.rest, alpha=alpha)


#: Questions about the shape.
_LOOKS = frozenset({"dim", "ndim", "size", "shape"})
_IN_PLACE = frozenset({"relu_", "add_", "__iadd__"})
_RULES: dict[str, Callable[..., Parts]] = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d"), _affine),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _linear),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), _linear),
    **dict.fromkeys(("flatten", "view", "reshape", "pixel_unshuffle", "mean"), _linear),
    **dict.fromkeys(("relu", "relu_"), _relu),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _max_pool),
    "dropout": _dropout,
    **dict.fromkeys(("add", "__add__", "add_", "__iadd__"), _add),
}
