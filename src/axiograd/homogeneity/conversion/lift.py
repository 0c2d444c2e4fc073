"""The lift: any model, made homogeneous of degree 1 by dividing its input's scale out and multiplying it back in."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from axiograd.errors import InputError
from axiograd.homogeneity.conversion.scale import along, joint_rms, unscaled


def floating(tree: Any) -> list[Tensor]:
    """The floating-point tensors in a structure of inputs, in order."""
    return [leaf for leaf in tree_flatten(tree)[0] if _scales(leaf)]


def _scales(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


class Lifted(nn.Module):
    """F(x) = ρ(x)·f(x/ρ(x)), ρ(x) = RMS(x)/r per sample over all floating-point inputs; F(0) = 0.

    With a baseline b, of x − b in place of x: a number or tensor for every input, a tuple, or a mapping by name.

    >>> f = nn.Linear(2, 1)
    >>> F, x = Lifted(f, radius=1.0), torch.tensor([[1.0, -1.0]])
    >>> torch.allclose(F(x), f(x)), torch.allclose(F(3 * x), 3 * f(x))
    (True, True)
    """

    radius: Tensor
    baseline: Tensor | None

    def __init__(self, model: nn.Module, radius: float | Tensor, baseline: Any = None) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
        value = torch.as_tensor(radius, dtype=torch.promote_types(parameter.dtype, torch.float32))
        self.register_buffer("radius", value.detach().clone().to(parameter.device))
        self.register_buffer("baseline", None)
        #: Input (None: all of them) → the buffer that holds its baseline.
        self._held: dict[int | str | None, str] = {}
        for slot, given in _by_input(baseline):
            self._held[slot] = "baseline" if slot is None else f"baseline_{slot}"
            origin = given if isinstance(given, Tensor) else torch.as_tensor(given, dtype=value.dtype)
            self.register_buffer(self._held[slot], origin.detach().clone().to(parameter.device))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        where = [i for i, leaf in enumerate(leaves) if _scales(leaf)]
        if not where:
            raise InputError("Lifted got no floating-point input to scale; pass embeddings instead of token ids.")
        origins = self._origins(args, kwargs, leaves, where)
        centred = [leaves[i] if b is None else leaves[i] - b for i, b in zip(where, origins, strict=True)]
        rho = joint_rms(centred) / self.radius
        for i, x, b in zip(where, centred, origins, strict=True):
            unit = unscaled(x, along(rho, x))
            leaves[i] = unit if b is None else unit + b
        args, kwargs = tree_unflatten(leaves, structure)
        return tree_map(lambda leaf: self._rescale(leaf, rho), self.model(*args, **kwargs))

    def _origins(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], leaves: list[Any], where: list[int]
    ) -> list[Tensor | None]:
        """The baseline of each floating-point leaf."""
        inputs: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
        strangers = [slot for slot in self._held if slot is not None and slot not in inputs]
        if strangers:
            raise InputError(f"The lift has baselines for inputs {strangers}, and was called with {list(inputs)}.")
        slots = [slot for slot, value in inputs.items() for _ in tree_leaves(value)]
        names = [self._held.get(None) or self._held.get(slots[i]) for i in where]
        return [None if n is None else self.get_buffer(n).to(leaves[i]) for i, n in zip(where, names, strict=True)]

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


def _by_input(baseline: Any) -> Iterator[tuple[int | str | None, Any]]:
    """Each baseline with its input's place or name; None: one for all."""
    if isinstance(baseline, Mapping):
        given: list[tuple[int | str | None, Any]] = list(baseline.items())
    elif isinstance(baseline, tuple | list):
        given = list(enumerate(baseline))
    else:
        given = [(None, baseline)]
    yield from ((slot, value) for slot, value in given if value is not None)
