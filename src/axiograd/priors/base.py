"""What a prior is, and how priors are added and weighted."""

import inspect
from collections.abc import Mapping
from math import isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from axiograd.errors import ConfigurationError, InputError, NotFiniteError

#: Above, a weight is infinite in float32, and turns every parameter into NaN.
LARGEST_WEIGHT = torch.finfo(torch.float32).max


class Prior(nn.Module):
    """A scalar Ω(A) of a batch of attributions A [batch, *features]; small where they look as wanted.

    A subclass writes `forward(attributions, *, name, ...)`; its keyword-only parameters are the arguments
    that it takes. Priors form sums with weights, w₁·Ω₁(A) + w₂·Ω₂(A), and each gets only the arguments it
    declares.

    >>> import torch
    >>> from axiograd.priors import L1, RightReasons
    >>> prior = L1() + 10.0 * RightReasons()
    >>> prior(torch.tensor([[1.0, -2.0]]), mask=torch.tensor([[False, True]]))
    tensor(43.)
    """

    _declared: ClassVar[Mapping[str, bool]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parameters = inspect.signature(cls.forward).parameters.values()
        cls._declared = {p.name: p.default is p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def per_sample(self) -> bool:
        """Whether Ω is a mean over samples: then averaging over micro-batches or ranks is exact as it stands."""
        return True

    @property
    def arguments(self) -> Mapping[str, bool]:
        """The keyword arguments that this prior takes, each with whether it must be given."""
        return self._declared

    def __call__(self, attributions: object, **arguments: Any) -> Tensor:
        attributions = self._checked(attributions, arguments)
        # Sums of many small terms: half precision, also that of autocast, would lose them.
        with torch.autocast(attributions.device.type, enabled=False):
            value: Tensor = super().__call__(_widened(attributions), **arguments)
        if not torch.compiler.is_compiling() and not _finite(value) and attributions.isfinite().all():
            largest = float(attributions.detach().abs().max())
            raise NotFiniteError(
                f"{self._name} is {float(value.detach().sum())} of attributions that are finite (the largest is "
                f"{largest:.3g}): it overflows. Scale the model's outputs or the prior's arguments, or use float64."
            )
        return value

    def _checked(self, attributions: object, arguments: Mapping[str, Any]) -> Tensor:
        if not isinstance(attributions, Tensor) or not attributions.is_floating_point():
            kind = attributions.dtype if isinstance(attributions, Tensor) else type(attributions).__name__
            raise InputError(f"{self._name} takes one floating-point tensor of attributions, got {kind}.")
        if attributions.numel() == 0 or attributions.ndim == 0:
            raise InputError(
                f"{self._name} needs attributions [batch, *features], got shape {list(attributions.shape)}."
            )
        self.check_arguments(arguments)
        return attributions

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Raise for an argument that is unknown or missing, and name it."""
        takes = ", ".join(repr(name) for name in self.arguments) or "none"
        for name in arguments:
            if name not in self.arguments:
                raise ConfigurationError(f"{self._name} does not take the argument {name!r}; it takes: {takes}.")
        for name, required in self.arguments.items():
            if required and name not in arguments:
                raise ConfigurationError(f"{self._name} needs the argument {name!r}; pass {name}=...")

    @property
    def _name(self) -> str:
        return f"prior {type(self).__name__}"

    def __add__(self, other: object) -> "Prior":
        if not isinstance(other, Prior):
            return NotImplemented
        return Sum(self, other)

    def __radd__(self, other: object) -> "Prior":
        # `sum([...])` starts from the number 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: object) -> "Prior":
        return self + -other if isinstance(other, Prior) else NotImplemented

    def __mul__(self, weight: object) -> "Prior":
        return Weighted(self, weight) if isinstance(weight, int | float) else NotImplemented

    def __rmul__(self, weight: object) -> "Prior":
        return self.__mul__(weight)

    def __neg__(self) -> "Prior":
        return Weighted(self, -1.0)


class Sum(Prior):
    """Ω(A) = Σᵢ Ωᵢ(A), where each Ωᵢ is given the arguments that it declares.

    >>> import torch
    >>> from axiograd.priors import L1
    >>> (L1() + L1())(torch.ones(1, 3))
    tensor(6.)
    """

    def __init__(self, *priors: Prior) -> None:
        super().__init__()
        self.priors = nn.ModuleList(priors)

    @property
    def _parts(self) -> list[Prior]:
        return [prior for prior in self.priors if isinstance(prior, Prior)]

    @property
    def per_sample(self) -> bool:
        return all(prior.per_sample for prior in self._parts)

    @property
    def arguments(self) -> Mapping[str, bool]:
        merged: dict[str, bool] = {}
        for prior in self._parts:
            for name, required in prior.arguments.items():
                merged[name] = merged.get(name, False) or required
        return merged

    @property
    def _name(self) -> str:
        return " + ".join(prior._name for prior in self._parts)  # noqa: SLF001 (same class family)

    def forward(self, attributions: Tensor, **arguments: Any) -> Tensor:
        values = [
            prior(attributions, **{k: v for k, v in arguments.items() if k in prior.arguments}) for prior in self._parts
        ]
        return torch.stack(values).sum()


class Weighted(Prior):
    """Ω(A) = w·Ω₁(A).

    >>> import torch
    >>> from axiograd.priors import L1
    >>> (0.5 * L1())(torch.ones(1, 4))
    tensor(2.)
    """

    def __init__(self, prior: Prior, weight: float) -> None:
        super().__init__()
        if not abs(weight) <= LARGEST_WEIGHT:
            raise ConfigurationError(
                f"the weight of {prior._name} must be finite in float32, got {weight}."  # noqa: SLF001
            )
        self.prior = prior
        self.weight = float(weight)

    @property
    def per_sample(self) -> bool:
        return self.prior.per_sample

    @property
    def arguments(self) -> Mapping[str, bool]:
        return self.prior.arguments

    @property
    def _name(self) -> str:
        return self.prior._name  # noqa: SLF001 (same class family)

    def extra_repr(self) -> str:
        return f"weight={self.weight}"

    def forward(self, attributions: Tensor, **arguments: Any) -> Tensor:
        value: Tensor = self.prior(attributions, **arguments)
        return self.weight * value


def _finite(value: Tensor) -> bool:
    return isfinite(value.item()) if value.numel() == 1 else bool(value.isfinite().all())


def _widened(attributions: Tensor) -> Tensor:
    """Half precision as float32; what is subnormal in float16, and so has lost its digits, as zero.

    Shares and directions divide by the attributions, and at 1e-7 the gradient of a quotient, 1e7, does not fit into
    float16.
    """
    if attributions.dtype not in {torch.float16, torch.bfloat16}:
        return attributions
    enough = attributions.detach().abs() >= torch.finfo(attributions.dtype).tiny
    return torch.where(enough, attributions, torch.zeros_like(attributions)).float()
