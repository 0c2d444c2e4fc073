"""Expected Gradients (Erion et al., 2021)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

from axiograd._calls import Call, Model, zeros_like
from axiograd._io import settings_of
from axiograd.attribution.base import AttributionCall, Computed, private_generator
from axiograd.attribution.layer import Layer
from axiograd.attribution.passes import run
from axiograd.attribution.paths import PathMethod, check_count
from axiograd.errors import BaselineError


class ExpectedGradients(PathMethod):
    """EGᵢ = E[(xᵢ − rᵢ) · ∂F(r + α(x − r))/∂xᵢ] over references r and α ~ U(0, 1), by ``n_samples`` draws.

    References are drawn without replacement within a call. A ``generator`` makes the draws repeatable.
    With ``multiply_by_inputs=False`` the factor xᵢ − rᵢ is left out.

    >>> references = torch.zeros(3, 2)
    >>> method = ExpectedGradients(lambda x: x.sum(1), references, n_samples=2)
    >>> method.attribute(torch.tensor([[1.0, 2.0]]))
    tensor([[1., 2.]])
    """

    default_baseline: ClassVar[str] = "the drawn references"

    def __init__(
        self,
        model: Model,
        references: Any,
        n_samples: int = 1,
        *,
        generator: torch.Generator | None = None,
        internal_batch_size: int | None = None,
        multiply_by_inputs: bool = True,
        layer: Layer | None = None,
    ) -> None:
        super().__init__(model, internal_batch_size, multiply_by_inputs=multiply_by_inputs, layer=layer)
        check_count("n_samples", n_samples)
        self.references = References.ensure(references)
        self.n_samples = n_samples
        self.generator = generator
        # Without a generator, a training step draws from the global random state, like dropout; other calls from here.
        self._private = private_generator()

    def _compute(self, call: AttributionCall) -> Computed:
        n, batch = self.n_samples, call.arguments.batch
        generator = self.generator or (None if call.is_training_step else self._private)
        drawn = self._draw(call.arguments, generator)
        alphas = torch.rand(n, batch, generator=generator, dtype=torch.float64)
        outputs = run(call.model, call.arguments, call.arguments.features) if call.wants_outputs else None
        attributions = self._integrate(call, drawn, alphas, torch.full((n,), 1 / n, dtype=torch.float64))
        return Computed(attributions, outputs, list(zip(*drawn, strict=True)))

    def _draw(self, arguments: Call, generator: torch.Generator | None) -> list[Tensor]:
        """``[n_samples, batch, ...]`` for each input."""
        features = arguments.features
        drawn = self.references.draw(arguments.batch * self.n_samples, len(features), generator)
        for x, r in zip(features, drawn, strict=True):
            if r.shape[1:] != x.shape[1:]:
                raise BaselineError(
                    f"references of shape {tuple(r.shape[1:])} for samples of shape {tuple(x.shape[1:])}."
                )
        return [r.to(x).unflatten(0, (self.n_samples, -1)) for x, r in zip(features, drawn, strict=True)]

    def _read_baselines(self, baselines: Any, arguments: Call) -> tuple[Tensor, ...]:
        if baselines is not None:
            raise BaselineError("ExpectedGradients draws its baselines from references=...; baselines= is not used.")
        return zeros_like(arguments.features)


@dataclass
class References:
    """Samples to draw without replacement; when all have been drawn, a fresh round begins.

    A loader is taken in its own order: its sampler decides about replacement and repeatability.
    """

    source: Any
    #: For how many inputs, where that was said.
    n_inputs: int | None = None
    _iterator: Iterator[Any] = field(default_factory=lambda: iter(()), repr=False)
    _left: tuple[Tensor, ...] = ()

    @classmethod
    def ensure(cls, source: Any) -> References:
        """Read a tensor, a tuple of tensors (one per input), a data set with a length, or a loader."""
        n_inputs = None
        tensors = (source,) if isinstance(source, Tensor) else source if isinstance(source, tuple | list) else ()
        if tensors and all(isinstance(tensor, Tensor) for tensor in tensors):
            sizes = {len(tensor) if tensor.dim() else 0 for tensor in tensors}
            if len(sizes) != 1:
                raise BaselineError(f"references with {sorted(sizes)} samples: expected the same number, at least one.")
            source, n_inputs = TensorDataset(*tensors), len(tensors)
        elif not isinstance(source, Iterable | Dataset) or isinstance(source, str | Mapping):
            raise BaselineError(
                f"references of type {type(source).__name__}: expected a tensor, a tuple of them, a data set or a "
                "loader."
            )
        if isinstance(source, Dataset) and isinstance(source, Sized) and not len(source):
            raise BaselineError("there are no references: expected at least one.")
        return cls(source, n_inputs)

    @property
    def from_loader(self) -> bool:
        """Whether it depends on the calls before what is drawn next."""
        return not (isinstance(self.source, Dataset) and isinstance(self.source, Sized))

    def settings(self) -> Any:
        """What two runs are compared by: all tensors, or the size of a data set with its first and last sample."""
        if isinstance(self.source, TensorDataset):
            return settings_of(self.source[:])
        return settings_of([len(self.source), self.source[0], self.source[len(self.source) - 1]])

    def draw(self, n: int, n_inputs: int, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        """``n`` references for each of ``n_inputs`` input tensors."""
        if self.n_inputs not in {None, n_inputs}:
            raise BaselineError(
                f"references for {self.n_inputs} inputs, but the model has {n_inputs}: give one tensor for each."
            )
        if self.from_loader:
            return self._next(n, n_inputs)
        size = len(self.source)
        order = torch.cat([torch.randperm(size, generator=generator) for _ in range(-(-n // size))])[:n]
        if not isinstance(self.source, TensorDataset):
            return _inputs(default_collate([self.source[int(i)] for i in order]), n_inputs)
        return _inputs([tensor[order.to(tensor.device)] for tensor in self.source.tensors], n_inputs)

    def _next(self, n: int, n_inputs: int) -> tuple[Tensor, ...]:
        while not self._left or len(self._left[0]) < n:
            batch = next(self._iterator, None)
            if batch is None:
                self._iterator = iter(self.source)
                batch = next(self._iterator, None)
            if batch is None:
                raise BaselineError("the loader of references is empty.")
            found = _inputs(batch, n_inputs)
            self._left = tuple(map(torch.cat, zip(self._left, found, strict=True))) if self._left else found
        drawn, self._left = tuple(t[:n] for t in self._left), tuple(t[n:] for t in self._left)
        return drawn


def _inputs(batch: Any, n_inputs: int) -> tuple[Tensor, ...]:
    """The inputs in a batch: labels and whatever else follows them are left out."""
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if len(parts) < n_inputs or not all(isinstance(part, Tensor) for part in parts[:n_inputs]):
        raise BaselineError(f"a batch of references with {len(parts)} parts for {n_inputs} input tensors.")
    return parts[:n_inputs]
