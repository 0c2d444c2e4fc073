"""A callable class that attributes batch after batch: what a worker holds, and what it adds to a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from axiograd._calls import class_scores
from axiograd._io import digest, model_settings, settings_of
from axiograd._state import modules_behind
from axiograd.attribution.base import Attribution
from axiograd.attribution.methods import find_method
from axiograd.attribution.rows import rows_of
from axiograd.attribution.x_gradient import XGradient
from axiograd.errors import AxiogradError, ConfigurationError, InputError, NotFiniteError, TargetError
from axiograd.export.card import versions, weights_hash
from axiograd.scale.masked import InMasks
from axiograd.scale.reading import Broken, as_class, as_sample
from axiograd.scale.summaries import Columns, Summary, Windows, as_maps, gini
from axiograd.scale.table import COLUMNS, as_table, schema_of

#: Whether one row's numbers are at fault and not the model: the others of its batch are attributed without it.
_OF_A_ROW = (InputError, NotFiniteError)


class Attribute:
    """A batch of samples in, the same batch with attribution columns out, for `ray.data.Dataset.map_batches`.

    The model is a module, or a function without arguments that makes one (workers then build it themselves). It is
    proven once per worker, on its first batch. Images in the column (arrays, encoded bytes, paths, Hugging Face's
    ``{"bytes", "path"}``) go through `preprocess`; numbers are taken as the model takes them. Columns added are
    `target`, `prediction`, `score` F(x), `difference` F(x) − F(0), `total` Σ A, `gini`, `shape`, `error`, and those of
    the summaries. A sample that cannot be read or attributed is a row with an `error`, and nulls.

    >>> model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    >>> attribute = Attribute(model, column="x")
    >>> table = attribute({"x": np.ones((2, 3), dtype=np.float32), "name": np.array(["a", "b"])})
    >>> table.column_names[:4], table["error"].null_count
    (['name', 'label', 'target', 'prediction'], 2)
    """

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        method: str = "x-gradient",
        *,
        summary: Summary | Sequence[Summary] = (),
        target: int | str = "predicted",
        column: str = "image",
        label: str = "label",
        keep: Sequence[str] | None = None,
        preprocess: Callable[..., Tensor] | None = None,
        preprocessing: str | None = None,
        steps: int | None = None,
        references: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        self.entry = find_method(method)
        if isinstance(target, str) and target not in {"predicted", "label"}:
            raise ConfigurationError(f"target={target!r}: expected 'predicted', 'label', or a class by its number.")
        self.model = model if isinstance(model, nn.Module) else model()
        if not isinstance(self.model, nn.Module):
            raise ConfigurationError(f"the function that makes the model made a {type(self.model).__name__}.")
        self.model.eval()
        self.summaries = _read_summaries(summary)
        self.target, self.column, self.label, self.keep = target, column, label, keep
        self.preprocess, self.preprocessing = preprocess, preprocessing
        self.steps, self.references, self.seed = steps, references, seed
        self._method: Attribution | None = None
        self._at_zero: dict[torch.Size, Tensor] = {}
        self._taken: set[torch.Size] = set()
        self._weights: str | None = None
        parameter = next((p for p in self.model.parameters() if p.is_floating_point()), torch.empty(0))
        self._like = parameter.detach().new_empty(0)

    def __call__(self, batch: Mapping[str, Any]) -> Any:
        """A pyarrow table: the columns that are kept (all but the inputs, by default), and those of the attribution."""
        if self.column not in batch:
            raise InputError(f"the batch has the columns {', '.join(batch)}, and no {self.column!r}: say column=.")
        values = batch[self.column]
        samples = [as_sample(value, self.preprocess) for value in values]
        labels = batch.get(self.label)
        kept = [name for name in batch if name not in {self.column, self.label}] if self.keep is None else self.keep
        columns = self.rows(samples, None if labels is None else [as_class(one, self.label) for one in labels])
        before = {name: list(batch[name]) for name in kept}
        if twice := sorted(before.keys() & columns.keys()):
            raise ConfigurationError(
                f"the batch has a column {twice[0]!r}, which the attribution writes too: rename it, or use keep=."
            )
        return as_table(before | columns, self.schema(None))

    def schema(self, provenance: Mapping[str, Any] | None) -> Any:
        """The columns that are added, as a pyarrow schema that carries the provenance."""
        return schema_of(self.summaries, self.provenance() if provenance is None else provenance)

    def rows(
        self,
        samples: Sequence[Tensor | Broken],
        labels: Sequence[int | None] | None,
        masks: Sequence[Tensor | None] | None = None,
    ) -> dict[str, list[Any]]:
        """The columns for some samples, in their order; `masks` are for `InMasks`."""
        n = len(samples)
        names = [*COLUMNS, *(name for summary in self.summaries for name in summary.columns)]
        columns: dict[str, list[Any]] = {name: [None] * n for name in names}
        columns["label"] = [None] * n if labels is None else list(labels)
        columns["error"] = [sample.reason if isinstance(sample, Broken) else None for sample in samples]
        shapes: dict[torch.Size, list[int]] = {}
        for place, sample in enumerate(samples):
            if not isinstance(sample, Broken):
                shapes.setdefault(sample.shape, []).append(place)
        for places in shapes.values():
            x = torch.stack([sample for i in places if isinstance(sample := samples[i], Tensor)]).to(self._like)
            of_places = [None] * n if masks is None else masks
            self._fill(columns, places, x, None if labels is None else [labels[i] for i in places], of_places)
        return columns

    def _fill(
        self,
        columns: dict[str, list[Any]],
        places: list[int],
        x: Tensor,
        labels: list[int | None] | None,
        masks: Sequence[Tensor | None],
    ) -> None:
        try:
            found = self._attributed(x, labels, [masks[place] for place in places])
        except _OF_A_ROW as error:
            if len(places) == 1:
                columns["error"][places[0]] = _sentence(error)
                return
            for i, place in enumerate(places):
                self._fill(columns, [place], x[i : i + 1], None if labels is None else labels[i : i + 1], masks)
            return
        except RuntimeError as error:  # torch's, for a shape that the model does not take
            if not self._taken or x.shape[1:] in self._taken:
                raise
            for place in places:
                columns["error"][place] = f"{type(error).__name__} for the shape {tuple(x.shape[1:])}: {error}"
            return
        self._taken.add(x.shape[1:])
        for name, values in found.items():
            for place, value in zip(places, values, strict=True):
                columns[name][place] = value

    def _attributed(self, x: Tensor, labels: list[int | None] | None, masks: list[Tensor | None]) -> Columns:
        if not bool(x.isfinite().all()):
            raise NotFiniteError("NaN or Inf in the inputs.")
        at_zero = self._output_at_zero(x)
        target = self._target(labels, at_zero.shape[1])
        given = torch.tensor(labels) if labels is not None and None not in labels else None
        call = {"baselines": None, "additional_forward_args": None}
        method = self._built(x)
        rows = rows_of(method, x, given, target, None, call)
        attributions, outputs = rows["attributions.0"], rows["outputs"]
        outputs = outputs[:, None] if outputs.dim() == 1 else outputs
        chosen = rows.get("target", torch.zeros(len(x), dtype=torch.long))
        score = outputs.gather(1, chosen[:, None])[:, 0].double()
        difference = score - at_zero.expand(len(x), -1).gather(1, chosen[:, None])[:, 0].double()
        maps = as_maps(attributions)
        prediction = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()
        found: Columns = {
            "target": chosen.numpy(),
            "prediction": prediction.numpy(),
            "score": score.numpy(),
            "difference": difference.numpy(),
            "total": maps.flatten(1).sum(1).numpy(),
            "gini": gini(maps).numpy(),
            "shape": np.tile(np.array(x.shape[1:], dtype=np.int32), (len(x), 1)),
        }
        for summary in self.summaries:
            found |= summary(attributions, masks) if isinstance(summary, InMasks) else summary(attributions)
        return found

    def _target(self, labels: list[int | None] | None, outputs: int) -> Any:
        if outputs == 1:
            return None
        if self.target != "label":
            if isinstance(self.target, int) and not 0 <= self.target < outputs:
                raise TargetError(f"target={self.target}: the model has classes 0 to {outputs - 1}.")
            return self.target
        if labels is None:
            raise TargetError(f"target='label', but there is no column {self.label!r}: say label=, or 'predicted'.")
        if wrong := [one for one in labels if one is None or not 0 <= one < outputs]:
            raise InputError(f"target='label', and the label is {wrong[0]}; the model has classes 0 to {outputs - 1}.")
        return "label"

    def _output_at_zero(self, x: Tensor) -> Tensor:
        """F(0) for inputs of this shape, ``[1, outputs]``."""
        if x.shape[1:] not in self._at_zero:
            with torch.no_grad():
                found = class_scores(self.model(torch.zeros_like(x[:1])), 1)
            if len(self._at_zero) > 64:  # noqa: PLR2004  # shapes; images that are not cropped have many
                self._at_zero.clear()
            self._at_zero[x.shape[1:]] = found.cpu()
        return self._at_zero[x.shape[1:]]

    def _built(self, x: Tensor) -> Attribution:
        """The method; one that draws is seeded by the batch itself, so that no worker and no restart changes it."""
        draws = "generator" in self.entry.settings
        if self._method is None or draws:
            seed = int(digest(str(self.seed), x)[:15], 16) if draws else 0
            self._method = self.entry.build(
                self.model,
                steps=self.steps,
                references=self.references,
                generator=torch.Generator().manual_seed(seed) if draws else None,
                internal_batch_size=None,
            )
        return self._method

    def provenance(self) -> dict[str, Any]:
        """What the numbers come from: certificate, method, baseline, preprocessing, the model's hash, versions."""
        certificate = self._method.certificate if isinstance(self._method, XGradient) else None
        if self._weights is None:
            self._weights = weights_hash(self.model)
        how = self.preprocessing
        if how is None:
            how = "none: the model's inputs as they are" if self.preprocess is None else str(self.preprocess)
        return {
            "method": {"name": self.entry.name, "title": self.entry.titled(self.steps), "adds_up": self.entry.adds_up},
            "target": self.target,
            "baseline": "zero",
            "preprocessing": how,
            "summaries": {type(one).__name__: settings_of(one) for one in self.summaries},
            "model": {"type": type(self.model).__name__, "sha256": self._weights},
            "certificate": None if certificate is None else json.loads(certificate.to_json()),
            "versions": versions(),
        }

    def settings(self) -> dict[str, Any]:
        """What a resumed run must have in common with the one that it resumes, as JSON."""
        modules = modules_behind(self.model)
        return {
            "model": model_settings(modules[0]) if modules else settings_of(self.model),
            "method": self.entry.name,
            "steps": self.steps,
            "references": settings_of(self.references),
            "seed": self.seed,
            "target": self.target,
            "preprocessing": self.preprocessing,
            "preprocess": settings_of(self.preprocess),
            "summaries": settings_of(self.summaries),
        }


def _read_summaries(given: Summary | Sequence[Summary]) -> tuple[Summary, ...]:
    summaries = (given,) if isinstance(given, Summary) else tuple(given) or (Windows(),)
    names = [*COLUMNS, *(name for summary in summaries for name in summary.columns)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(f"two summaries, or one and the attribution itself, have a column {twice[0]!r}.")
    return summaries


def _sentence(error: AxiogradError) -> str:
    return f"{type(error).__name__}: {error}"


def first_sample(samples: Sequence[Tensor | Broken], where: str | Path) -> Tensor:
    """The first sample that can be read."""
    found = next((sample for sample in samples if isinstance(sample, Tensor)), None)
    if found is None:
        reason = next((sample.reason for sample in samples if isinstance(sample, Broken)), "")
        raise InputError(
            f"{where}: none of the first {len(samples)} samples can be read; the first one: {reason.rstrip('.')}."
        )
    return found


def prove_on(
    attribute: Attribute, samples: Sequence[Tensor | Broken], labels: Sequence[int | None], where: str | Path
) -> None:
    """Attribute the first sample that can be, so that what is wrong with all of them is said before the work."""
    first = first_sample(samples, where)
    reasons = []
    for sample, label in zip(samples, labels, strict=True):
        if isinstance(sample, Broken):
            continue
        try:
            error = attribute.rows([sample], [label] if attribute.target == "label" else None)["error"][0]
        except RuntimeError as raised:
            raise InputError(f"{where}: the model does not take the shape {tuple(first.shape)}: {raised}.") from raised
        if error is None:
            return
        reasons.append(str(error))
    raise InputError(
        f"{where}: none of the first {len(samples)} samples can be attributed; the first one: {reasons[0].rstrip('.')}."
    )
