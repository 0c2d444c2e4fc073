"""Attribution methods by name, and what a call of one costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from axiograd.attribution import (
    Attribution,
    ExpectedGradients,
    Gradient,
    InputXGradient,
    IntegratedGradients,
    LogGradient,
    RandomAttribution,
    Saliency,
    XGradient,
)
from axiograd.cli.options import read_list
from axiograd.errors import ConfigurationError, NotHomogeneousError
from axiograd.homogeneity import certify

if TYPE_CHECKING:
    from axiograd.homogeneity import Certificate

TITLES = {
    "x-gradient": "X-Gradient",
    "integrated-gradients": "Integrated Gradients",
    "expected-gradients": "Expected Gradients",
    "input-x-gradient": "Input×Gradient",
    "gradient": "Gradient",
    "saliency": "Saliency",
    "log-gradient": "Log-gradient",
    "random": "Random",
}
#: Methods whose attributions are meant to add up to F(x) − F(0).
FROM_ZERO = frozenset({"x-gradient", "integrated-gradients", "input-x-gradient"})
#: Rows of inputs × steps that are in memory at once.
ROWS = 16


def read_methods(given: list[str] | None, default: str = "x-gradient") -> list[str]:
    """The names of the methods, each once.

    >>> read_methods(["x-gradient,integrated-gradients", "x-gradient"])
    ['x-gradient', 'integrated-gradients']
    """
    names = list(dict.fromkeys(read_list(given))) or [default]
    for name in names:
        if name not in TITLES:
            raise ConfigurationError(f"no method {name!r}: choose from {', '.join(TITLES)}.")
    return names


@dataclass
class Cost:
    """Passes that one sample took on average, and the seconds of all."""

    samples: int = 0
    forward: int = 0
    backward: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, float]:
        """For JSON and tables, per sample."""
        n = max(self.samples, 1)
        return {
            "forward_passes_per_sample": self.forward / n,
            "backward_passes_per_sample": self.backward / n,
            "seconds_per_sample": self.seconds / n,
            "seconds": self.seconds,
        }


class Counted(nn.Module):
    """The model, counting the samples that pass through it forwards and backwards."""

    def __init__(self, model: nn.Module, cost: Cost) -> None:
        super().__init__()
        self.model, self.cost = model, cost
        self.training = model.training

    def forward(self, inputs: Tensor) -> Any:
        outputs = self.model(inputs)
        self.cost.forward += len(inputs)
        leaf = next((t for t in _leaves(outputs) if t.requires_grad), None)
        if leaf is not None:
            leaf.register_hook(lambda _: self._count(len(inputs)))
        return outputs

    def _count(self, rows: int) -> None:
        self.cost.backward += rows


def _leaves(outputs: Any) -> list[Tensor]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


class Methods:
    """The chosen methods on one model; X-Gradient only if the model is certified."""

    def __init__(self, names: Sequence[str], model: nn.Module, *, spec: str, steps: int = 128, seed: int = 0) -> None:
        self.names, self.model, self.spec, self.steps, self.seed = tuple(names), model, spec, steps, seed
        self.costs = {name: Cost() for name in names}
        self.references: Tensor | None = None
        self._warm = False
        self._certificates: dict[tuple[int, ...], Certificate] = {}

    def title(self, name: str) -> str:
        """As it is shown, with the number of steps where that matters."""
        counted = name in {"integrated-gradients", "expected-gradients"}
        return f"{TITLES[name]} ({self.steps})" if counted else TITLES[name]

    def certificate(self, inputs: Tensor) -> Certificate:
        """The model's certificate for inputs of this shape."""
        shape = tuple(inputs.shape[1:])
        if shape not in self._certificates:
            self._certificates[shape] = certify(self.model, inputs)
        return self._certificates[shape]

    def attribute(self, name: str, inputs: Tensor, target: Any, *, first: int = 0) -> Tensor:
        """Attributions by one method; its passes and its time are added to its cost."""
        cost = self.costs[name]
        make = self._maker(name, inputs, first)
        method = make(Counted(self.model, cost))
        if not self._warm:  # the first pass of a process allocates, and would be charged to the first method
            Gradient(self.model).attribute(inputs[:1], target if target is None else target[:1])
            self._warm = True
        start = time.perf_counter()
        found: Tensor = method.attribute(inputs, target)
        cost.seconds += time.perf_counter() - start
        cost.samples += len(inputs)
        return found

    def _maker(self, name: str, inputs: Tensor, first: int) -> Callable[[nn.Module], Attribution]:
        # What is drawn depends on the seed and the place of the batch alone, so that a resumed run draws the same.
        generator = torch.Generator().manual_seed(self.seed * 100_003 + first)
        simple: dict[str, Callable[[nn.Module], Attribution]] = {
            "input-x-gradient": InputXGradient,
            "gradient": Gradient,
            "saliency": Saliency,
            "log-gradient": LogGradient,
        }
        if name in simple:
            return simple[name]
        if name == "random":
            return lambda model: RandomAttribution(model, generator=generator)
        if name == "integrated-gradients":
            return lambda model: IntegratedGradients(model, n_steps=self.steps, internal_batch_size=ROWS)
        if name == "expected-gradients":
            references = self._draw_from(inputs)
            return lambda model: ExpectedGradients(
                model, references, n_samples=self.steps, generator=generator, internal_batch_size=ROWS
            )
        degree = self._degree(inputs)
        return lambda model: XGradient(model, degree=degree)

    def _draw_from(self, inputs: Tensor) -> Tensor:
        found = inputs if self.references is None else self.references
        if len(found) < 2:  # noqa: PLR2004  # a single one would be its own reference
            raise ConfigurationError("expected-gradients draws its references from the inputs: give at least two.")
        return found

    def _degree(self, inputs: Tensor) -> float:
        certificate = self.certificate(inputs)
        if certificate.ok and certificate.degree is not None:
            return certificate.degree
        first = certificate.violations[0]
        count = len(certificate.violations)
        raise NotHomogeneousError(
            f"X-Gradient is exact on X-DNNs only, and {self.spec} is not one: {count} "
            f"violation{'' if count == 1 else 's'}, the first in {first.module or 'the model'} ({first.reason}). "
            f"Either take another method, --method input-x-gradient (not exact) or integrated-gradients (slower), or "
            f"convert it: axiograd convert {self.spec} -o FILE.safetensors. `axiograd check {self.spec}` lists them."
        )
