"""Attribution methods by name, and what a call of one costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from axiograd.attribution import Attribution, Gradient, XGradient
from axiograd.attribution.methods import METHODS, find_method
from axiograd.cli.inputs import suggestion
from axiograd.cli.options import read_list
from axiograd.errors import ConfigurationError, NotHomogeneousError
from axiograd.homogeneity import certify

if TYPE_CHECKING:
    from axiograd.homogeneity import Certificate

#: Rows of inputs × steps that are in memory at once.
ROWS = 16


def read_methods(given: list[str] | None) -> list[str]:
    """The names of the methods, each once; X-Gradient where none is given.

    >>> read_methods(["x-gradient,integrated-gradients", "x-gradient"])
    ['x-gradient', 'integrated-gradients']
    """
    return list(dict.fromkeys(find_method(name).name for name in read_list(given) or ["x-gradient"]))


@dataclass
class MethodCost:
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
    """The model, counting the samples that pass through it forwards and backwards.

    X-Gradient's checks along the path leave a module's attributes as they were, so they are not counted.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.forwards = self.backwards = 0
        self.training = model.training

    def forward(self, inputs: Tensor) -> Any:
        outputs = self.model(inputs)
        self.forwards += len(inputs)
        leaf = next((t for t in _leaves(outputs) if t.requires_grad), None)
        if leaf is not None:
            leaf.register_hook(lambda _: self._count(len(inputs)))
        return outputs

    def _count(self, rows: int) -> None:
        self.backwards += rows


def _leaves(outputs: Any) -> list[Tensor]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _checked(method: Attribution) -> float:
    return method.checked_seconds if isinstance(method, XGradient) else 0.0


class Methods:
    """The chosen methods on one model; X-Gradient only if the model is certified."""

    def __init__(
        self, names: Sequence[str], model: nn.Module, call: Mapping[str, Any], *, steps: int = 128, seed: int = 0
    ) -> None:
        self.names, self.model, self.call, self.steps, self.seed = tuple(names), model, call, steps, seed
        self.spec = str(call["spec"])
        self.costs = {name: MethodCost() for name in names}
        self.references: Tensor | None = None
        self._warm = False
        self._certificates: dict[tuple[int, ...], Certificate] = {}
        self._made: dict[tuple[str, torch.Size], tuple[Counted, Attribution]] = {}

    def title(self, name: str) -> str:
        """As it is shown, with the number of steps where that matters."""
        return METHODS[name].titled(self.steps)

    def certificate(self, inputs: Tensor) -> Certificate:
        """The model's certificate for inputs of this shape."""
        shape = tuple(inputs.shape[1:])
        if shape not in self._certificates:
            self._certificates[shape] = certify(self.model, inputs)
        return self._certificates[shape]

    def attribute(self, name: str, inputs: Tensor, target: Any, *, first: int = 0) -> Tensor:
        """Attributions by one method; its passes and its time are added to its cost."""
        counted, method = self._made.get((name, inputs.shape[1:])) or self._make(name, inputs, first)
        cost = self.costs[name]
        if not self._warm:  # the first pass of a process allocates, and would be charged to the first method
            Gradient(self.model).attribute(inputs[:1], target if target is None else target[:1])
            self._warm = True
        start = time.perf_counter() - _checked(method)
        found: Tensor = method.attribute(inputs, target)
        # Checks along the path come now and then: neither their time nor their passes are what an attribution costs.
        cost.seconds += time.perf_counter() - _checked(method) - start
        cost.samples += len(inputs)
        cost.forward += counted.forwards
        cost.backward += counted.backwards
        counted.forwards = counted.backwards = 0
        return found

    def _make(self, name: str, inputs: Tensor, first: int) -> tuple[Counted, Attribution]:
        """The method on a model that counts; kept for inputs of this shape, but for one that draws."""
        entry, counted = METHODS[name], Counted(self.model)
        # What is drawn depends on the seed and the place of the batch alone, so that a resumed run draws the same.
        method = entry.build(
            counted,
            steps=self.steps,
            references=self._draw_from(inputs) if entry.needs_references else None,
            generator=torch.Generator().manual_seed(self.seed * 100_003 + first),
            internal_batch_size=ROWS,
            **({"degree": self._degree(inputs)} if entry.certified else {}),
        )
        if "generator" not in entry.settings:
            self._made[name, inputs.shape[1:]] = counted, method
        return counted, method

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
            f"convert it: {suggestion(self.call, 'convert', inputs_as='--examples', out='FILE.safetensors')}. "
            f"`{suggestion(self.call, 'check', shape=','.join(map(str, inputs.shape[1:])))}` lists them."
        )
