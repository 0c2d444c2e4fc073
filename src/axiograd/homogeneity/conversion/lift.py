"""The lift: any model, made homogeneous of degree 1 by dividing its input's scale out and multiplying it back in."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from axiograd.errors import InputError
from axiograd.homogeneity.conversion.scale import along, joint_rms, unscaled


def floating(tree: Any) -> list[Tensor]:
    """The floating-point tensors in a structure of inputs, in order."""
    return [leaf for leaf in tree_flatten(tree)[0] if _scales(leaf)]


def _scales(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


class Lifted(nn.Module):
    """F(x) = ρ(x)·f(x/ρ(x)), ρ(x) = RMS(x)/r per sample over all floating-point inputs; F(0) = 0.

    >>> f = nn.Linear(2, 1)
    >>> F, x = Lifted(f, radius=1.0), torch.tensor([[1.0, -1.0]])
    >>> torch.allclose(F(x), f(x)), torch.allclose(F(3 * x), 3 * f(x))
    (True, True)
    """

    radius: Tensor

    def __init__(self, model: nn.Module, radius: float | Tensor, baseline: Any = None) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
        value = torch.as_tensor(radius, dtype=torch.promote_types(parameter.dtype, torch.float32))
        self.register_buffer("radius", value.detach().clone().to(parameter.device))
        self.baseline = baseline

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        where = [i for i, leaf in enumerate(leaves) if _scales(leaf)]
        if not where:
            raise InputError("Lifted got no floating-point input to scale; pass embeddings instead of token ids.")
        origins = self._origins(kwargs, [leaves[i] for i in where])
        centred = [leaves[i] if b is None else leaves[i] - b for i, b in zip(where, origins, strict=True)]
        rho = joint_rms(centred) / self.radius
        for i, x, b in zip(where, centred, origins, strict=True):
            unit = unscaled(x, along(rho, x))
            leaves[i] = unit if b is None else unit + b
        args, kwargs = tree_unflatten(leaves, structure)
        return tree_map(lambda leaf: self._rescale(leaf, rho), self.model(*args, **kwargs))

    def _origins(self, kwargs: Mapping[str, Any], inputs: list[Tensor]) -> list[Any]:
        if self.baseline is None or isinstance(self.baseline, int | float):
            return [self.baseline] * len(inputs)
        if isinstance(self.baseline, Mapping):
            given = [self.baseline.get(name) for name, value in kwargs.items() if _scales(value)]
        else:
            given = list(self.baseline) if isinstance(self.baseline, tuple) else [self.baseline]
        if len(given) != len(inputs):
            raise InputError(f"The lift has {len(given)} baselines for {len(inputs)} floating-point inputs.")
        return [b.to(x) if isinstance(b, Tensor) else b for b, x in zip(given, inputs, strict=True)]

    @staticmethod
    def _rescale(leaf: Any, rho: Tensor) -> Any:
        if not _scales(leaf):
            return leaf
        if rho.dim() and (leaf.dim() == 0 or leaf.shape[0] != rho.shape[0]):
            raise InputError(
                f"The lift scales each sample by itself, but an output of shape {tuple(leaf.shape)} does not have the "
                f"batch of {rho.shape[0]} first: return one row per sample."
            )
        return along(rho, leaf) * leaf

    def extra_repr(self) -> str:
        return f"radius={self.radius.item():.4g}" if self.radius.device.type != "meta" else "radius on meta"
