"""The lift: any model, made homogeneous of degree 1 by dividing its input's scale out and multiplying it back in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from axiograd._calls import is_floating, read_leaves
from axiograd._state import like_of
from axiograd.errors import InputError
from axiograd.homogeneity.conversion.scale import Roles, Slot, joint_rms, per_sample, safe_divide


@dataclass
class ScaledCall:
    """A call as the model inside a lift sees it: scaling leaves divided by ρ."""

    leaves: list[Any]
    structure: Any
    #: Indices of the leaves that scale, with the baseline of each.
    origins: dict[int, Tensor | None]
    rho: Tensor

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = tree_unflatten(self.leaves, self.structure)
        return args, kwargs


class Lifted(nn.Module):
    """F(x) = ρ(x)·f(x/ρ(x)), ρ(x) = RMS(x)/r per sample over the inputs that scale; F(0) = 0.

    Tokens that a mask drops have no part in ρ. With a baseline b, of x − b in place of x: a number or tensor for every
    input, a tuple, or a mapping by name.

    >>> f = nn.Linear(2, 1)
    >>> F, x = Lifted(f, radius=1.0), torch.tensor([[1.0, -1.0]])
    >>> torch.allclose(F(x), f(x)), torch.allclose(F(3 * x), 3 * f(x))
    (True, True)
    """

    radius: Tensor
    baseline: Tensor | None

    def __init__(
        self, model: nn.Module, radius: float | Tensor, baseline: Any = None, *, roles: Roles | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        self.roles = Roles.of(model) if roles is None else roles
        like = like_of(model)
        value = torch.as_tensor(radius, dtype=torch.promote_types(like.dtype, torch.float32))
        self.register_buffer("radius", value.detach().clone().to(like.device))
        self.register_buffer("baseline", None)
        #: Input (None: all of them) → the buffer that holds its baseline.
        self._held: dict[Slot | None, str] = {}
        for given_for, given in _by_input(baseline):
            name = "baseline" if given_for is None else f"baseline_{given_for}"
            self._held[None if given_for is None else self.roles.slot(given_for)] = name
            origin = given if isinstance(given, Tensor) else torch.as_tensor(given, dtype=value.dtype)
            self.register_buffer(name, origin.detach().clone().to(like.device))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inside = self.enter(args, kwargs)
        args, kwargs = inside.arguments()
        return self.leave(self.model(*args, **kwargs), inside.rho)

    def enter(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ScaledCall:
        """The call that the model inside sees, and ρ."""
        slots = self.roles.by_slot(args, kwargs)
        strangers = [slot for slot in self._held if slot is not None and slot not in slots]
        if strangers:
            raise InputError(f"The lift has baselines for inputs {strangers}, and was called with {list(slots)}.")
        leaves, structure = tree_flatten((args, kwargs))
        owner = [slot for slot, value in slots.items() for _ in tree_leaves(value)]
        where = [i for i, leaf in enumerate(leaves) if is_floating(leaf) and self.roles.scales(owner[i])]
        if not where:
            raise InputError("Lifted got no floating-point input to scale; pass embeddings instead of token ids.")
        if any(leaves[i].shape[:1] != leaves[where[0]].shape[:1] for i in where):
            raise InputError(
                f"The lift scales each sample by itself, but its inputs have shapes "
                f"{[tuple(leaves[i].shape) for i in where]}: pass what has no batch as additional_forward_args."
            )
        origins = {i: self._origin(owner[i], leaves[i]) for i in where}
        masks = [mask.to(leaves[where[0]].device) for mask in self.roles.masks(args, kwargs)]
        centred = {i: leaves[i] if b is None else leaves[i] - b for i, b in origins.items()}
        # A mask has the leading dimensions of what it masks.
        fitting = [next((m for m in masks if x.shape[: m.dim()] == m.shape), None) for x in centred.values()]
        rho = joint_rms(list(centred.values()), fitting if masks else None) / self.radius
        for i, b in origins.items():
            unit = safe_divide(centred[i], per_sample(rho, centred[i]))
            leaves[i] = unit if b is None else unit + b
        return ScaledCall(leaves, structure, origins, rho)

    def leave(self, outputs: Any, rho: Tensor) -> Any:
        """The outputs of the model inside, multiplied by ρ."""

        def rescale(leaf: Any) -> Any:
            if not is_floating(leaf):
                return leaf
            if leaf.dim() == 0 or leaf.shape[0] != rho.shape[0]:
                raise InputError(
                    f"The lift scales each sample by itself, but an output of shape {tuple(leaf.shape)} does not have "
                    f"the batch of {rho.shape[0]} first: return one row per sample."
                )
            return per_sample(rho, leaf) * leaf

        return tree_map(rescale, outputs)

    def _origin(self, slot: Slot, x: Tensor) -> Tensor | None:
        name = self._held.get(None) or self._held.get(slot)
        return None if name is None else self.get_buffer(name).to(x)

    def extra_repr(self) -> str:
        return f"radius={self.radius.item():.4g}" if self.radius.device.type != "meta" else "radius on meta"


def _by_input(baseline: Any) -> Iterator[tuple[Slot | None, Any]]:
    """Each baseline with its input's place or name; None: one for all."""
    if isinstance(baseline, Mapping):
        given: list[tuple[Slot | None, Any]] = list(baseline.items())
    elif isinstance(baseline, tuple | list):
        given = list(enumerate(baseline))
    else:
        given = [(None, baseline)]
    yield from ((slot, value) for slot, value in given if value is not None)


def energy_share(
    lifted: nn.Module, inputs: Any, target: int | Tensor | None = None, *, additional_forward_args: Any = None
) -> Tensor:
    """How much of each output of a lifted network is an energy map: (F − x·∇f(u))/F with u = x/ρ(x), per sample.

    X-Gradient of F(x) = ρ·f(u) is xᵢ·∂f/∂uᵢ + (F − x·∇f(u))·xᵢ²/‖x‖²: Input×Gradient of f, and a second part that
    shares out what f's constants add in proportion to each feature's energy. `target` is one class, one per sample, or
    by default the largest output.

    >>> f = nn.Linear(2, 1)
    >>> _ = f.weight.data.fill_(1.0), f.bias.data.fill_(2.0)
    >>> energy_share(Lifted(f, radius=1.0), torch.tensor([[1.0, 1.0]]))  # F = 1 + 1 + 2
    tensor([0.5000])
    """
    output, energy = energy_parts(lifted, inputs, target, additional_forward_args=additional_forward_args)
    return energy / output


def energy_parts(
    lifted: nn.Module, inputs: Any, target: int | Tensor | None = None, *, additional_forward_args: Any = None
) -> tuple[Tensor, Tensor]:
    """F and F − x·∇f(u) of every sample."""
    if not isinstance(lifted, Lifted):
        raise InputError(f"energy_share is about lifted networks; got {type(lifted).__name__}.")
    call = read_leaves(inputs, additional_forward_args=additional_forward_args)
    with torch.enable_grad():
        inside = lifted.enter(call.args, call.kwargs)
        units = {i: inside.leaves[i].detach().requires_grad_() for i in inside.origins}
        for i, unit in units.items():
            inside.leaves[i] = unit
        args, kwargs = inside.arguments()
        score = _score(lifted.model(*args, **kwargs), target)
        gradients: tuple[Tensor | None, ...] = torch.autograd.grad(score.sum(), list(units.values()), allow_unused=True)
    left = score.detach().clone()
    for (i, unit), gradient in zip(units.items(), gradients, strict=True):
        if gradient is not None:
            origin = inside.origins[i]
            product = (unit if origin is None else unit - origin).detach() * gradient
            left -= product.reshape(len(left), -1).sum(1)
    rho = inside.rho.detach()
    return rho * score.detach(), rho * left


def _score(output: Any, target: int | Tensor | None) -> Tensor:
    """One output per sample."""
    first: Tensor = next(leaf for leaf in tree_leaves(output) if is_floating(leaf))
    flat = first.reshape(first.shape[0], -1) if first.dim() else first.reshape(1, 1)
    index = flat.argmax(1) if target is None else torch.as_tensor(target, device=flat.device).expand(len(flat))
    return flat.gather(1, index[:, None])[:, 0]
