"""A callable class that attributes batch after batch: what a worker holds, and what it adds to a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from axiograd._calls import class_scores
from axiograd._extras import optional
from axiograd._io import digest, layers_of, settings_of
from axiograd._state import in_mode, like_of
from axiograd.attribution.base import Attribution
from axiograd.attribution.methods import find_method
from axiograd.attribution.rows import rows_of
from axiograd.attribution.x_gradient import XGradient
from axiograd.errors import ConfigurationError, InputError, NotFiniteError, TargetError
from axiograd.export.card import versions, weights_hash
from axiograd.scale.sources import Listed, as_sample
from axiograd.scale.summaries import Columns, InMasks, Summary, Windows, as_maps, gini

#: The key of the provenance in the schema's metadata.
KEY = b"axiograd"
#: The columns of every attribution, beside those of the summaries.
COLUMNS: Mapping[str, str] = {
    "label": "int64",
    "target": "int64",
    "prediction": "int64",
    "score": "float64",
    "difference": "float64",
    "total": "float64",
    "gini": "float64",
    "shape": "list<int32>",
    "error": "string",
}


class Attribute:
    """A batch of samples in, the same batch with attribution columns out, for `ray.data.Dataset.map_batches`.

    The model is a module, or a function without arguments that makes one (workers then build it themselves). It is
    proven once per worker, on its first batch, and runs in eval mode. Images in the column (arrays, encoded bytes,
    paths, Hugging Face's ``{"bytes", "path"}``) go through `preprocess`; numbers are taken as the model takes them.
    Columns added are `target`, `prediction`, `score` F(x), `difference` F(x) − F(0), `total` Σ A, `gini`, `shape`,
    `error`, and those of the summaries. A sample that cannot be read or attributed is a row with an `error`, and nulls.

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
        if isinstance(target, str) and target not in {"predicted", "label"}:
            raise ConfigurationError(f"target={target!r}: expected 'predicted', 'label', or a class by its number.")
        self.entry = find_method(method)
        self.summaries = (summary,) if isinstance(summary, Summary) else tuple(summary) or (Windows(),)
        self.target, self.column, self.label, self.keep = target, column, label, keep
        self.preprocess, self.preprocessing = preprocess, preprocessing
        self.steps, self.references, self.seed = steps, references, seed
        self._given = model
        self.kinds: dict[str, str] = dict(COLUMNS)
        for each in self.summaries:
            if twice := sorted(self.kinds.keys() & each.columns.keys()):
                raise ConfigurationError(
                    f"two summaries, or one and the attribution itself, have a column {twice[0]!r}."
                )
            self.kinds |= each.columns

    @cached_property
    def model(self) -> nn.Module:
        """The module; where a function makes it, this process's own."""
        made = self._given if isinstance(self._given, nn.Module) else self._given()
        if not isinstance(made, nn.Module):
            raise ConfigurationError(f"the model function returned a {type(made).__name__}, not a module.")
        return made

    def __getstate__(self) -> dict[str, Any]:
        # What was made here is made anew by the process that this is sent to.
        made = {name for name, value in vars(type(self)).items() if isinstance(value, cached_property)}
        return {name: value for name, value in vars(self).items() if name not in made}

    def __call__(self, batch: Mapping[str, Any]) -> Any:
        """A pyarrow table: the columns that are kept (all but the inputs, by default), and those of the attribution."""
        if self.column not in batch:
            raise InputError(
                f"the batch has the columns {', '.join(batch)}, and no {self.column!r}: name the column with column=."
            )
        labels = batch.get(self.label)
        kept = [name for name in batch if name not in {self.column, self.label}] if self.keep is None else self.keep
        inputs = batch[self.column]
        columns = self._rows(inputs, labels, [None] * len(inputs))
        if twice := sorted(set(kept) & columns.keys()):
            raise ConfigurationError(
                f"the batch has a column {twice[0]!r}, which the attribution writes too: rename it, or use keep=."
            )
        return self.table({name: list(batch[name]) for name in kept}, columns, self.provenance())

    def table(
        self, kept: Mapping[str, Sequence[Any]], columns: Mapping[str, Sequence[Any]], provenance: Mapping[str, Any]
    ) -> Any:
        """A pyarrow table: columns with the types that pyarrow finds, those of `rows`, and the provenance."""
        pa = optional("pyarrow", "scale", "tables of attributions")
        arrays = {name: pa.array(values) for name, values in kept.items()}
        for name, kind in self.kinds.items():
            inner = kind.removeprefix("list<").removesuffix(">")
            element = pa.type_for_alias(inner)
            arrays[name] = pa.array(columns[name], element if inner == kind else pa.list_(element))
        metadata = {KEY: json.dumps(dict(provenance), ensure_ascii=False, sort_keys=True)}
        return pa.table(arrays).replace_schema_metadata(metadata)

    def rows(self, source: Listed, places: Sequence[int]) -> dict[str, list[Any]]:
        """The columns for some rows of a source."""
        inputs, masks = source.read(places)
        labels = None if source.labels is None else [source.labels[place] for place in places]
        return self._rows(inputs, labels, masks)

    def _rows(
        self, values: Sequence[Any], labels: Sequence[Any] | None, masks: Sequence[Tensor | None]
    ) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {name: [None] * len(values) for name in self.kinds}
        if labels is not None:
            labels = columns["label"] = [_as_class(one, self.label) for one in labels]
        shapes: dict[torch.Size, dict[int, Tensor]] = {}
        for place, value in enumerate(values):
            sample = as_sample(value, self.preprocess)
            if isinstance(sample, Exception):
                columns["error"][place] = f"{type(sample).__name__}: {sample}"
            else:
                shapes.setdefault(sample.shape, {})[place] = sample
        with in_mode(self.model, training=False):
            for samples in shapes.values():
                x = torch.stack(list(samples.values())).to(like_of(self.model))
                self._fill(columns, list(samples), x, labels, masks)
        return columns

    def _fill(
        self,
        columns: dict[str, list[Any]],
        places: list[int],
        x: Tensor,
        labels: Sequence[int | None] | None,
        masks: Sequence[Tensor | None],
    ) -> None:
        try:
            own = None if labels is None else [labels[place] for place in places]
            found = self._attributed(x, own, [masks[place] for place in places])
        except (InputError, NotFiniteError) as error:
            if len(places) == 1:
                columns["error"][places[0]] = f"{type(error).__name__}: {error}"
            else:  # one row's numbers are at fault, and not the model: the others are attributed without it
                for i, place in enumerate(places):
                    self._fill(columns, [place], x[i : i + 1], labels, masks)
            return
        for name, values in found.items():
            for place, value in zip(places, values, strict=True):
                columns[name][place] = value

    def _attributed(self, x: Tensor, labels: list[int | None] | None, masks: list[Tensor | None]) -> Columns:
        if not bool(x.isfinite().all()):
            raise NotFiniteError("NaN or Inf in the inputs.")
        at_zero = self._output_at_zero(x)
        target = self._target(labels, at_zero.shape[1])
        call = {"baselines": None, "additional_forward_args": None}
        rows = rows_of(self._method(x), x, None, target, None, call)
        attributions, outputs = rows["attributions.0"], rows["outputs"]
        outputs = outputs[:, None] if outputs.dim() == 1 else outputs
        chosen = rows.get("target", torch.zeros(len(x), dtype=torch.long))
        score = outputs.gather(1, chosen[:, None])[:, 0].double()
        maps = as_maps(attributions)
        prediction = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()
        found: Columns = {
            "target": chosen.numpy(),
            "prediction": prediction.numpy(),
            "score": score.numpy(),
            "difference": (score - at_zero[0, chosen].double()).numpy(),
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
        if isinstance(self.target, int) and not 0 <= self.target < outputs:
            raise TargetError(f"target={self.target}: the model has classes 0 to {outputs - 1}.")
        if self.target != "label":
            return self.target
        if labels is None:
            raise TargetError(f"target='label', but there is no column {self.label!r}: say label=, or 'predicted'.")
        if wrong := [one for one in labels if one is None or not 0 <= one < outputs]:
            raise InputError(f"target='label', and the label is {wrong[0]}; the model has classes 0 to {outputs - 1}.")
        return torch.tensor(labels)

    @cached_property
    def _at_zero(self) -> dict[torch.Size, Tensor]:
        return {}

    def _output_at_zero(self, x: Tensor) -> Tensor:
        """F(0) for inputs of this shape, ``[1, outputs]``; InputError where the model does not take it."""
        shape = x.shape[1:]
        if shape not in self._at_zero:
            try:
                with torch.no_grad():
                    found = class_scores(self.model(torch.zeros_like(x[:1])), 1)
            except RuntimeError as error:
                raise InputError(f"the model does not take the shape {tuple(shape)}: {error}") from error
            self._at_zero[shape] = found.cpu()
        return self._at_zero[shape]

    @cached_property
    def _built(self) -> Attribution:
        return self._build(None)

    def _build(self, generator: torch.Generator | None) -> Attribution:
        return self.entry.build(self.model, steps=self.steps, references=self.references, generator=generator)

    def _method(self, x: Tensor) -> Attribution:
        """The method; one that draws is seeded by the batch itself, so that no worker and no restart changes it."""
        if "generator" not in self.entry.settings:
            return self._built
        return self._build(torch.Generator().manual_seed(int(digest(str(self.seed), x)[:15], 16)))

    @cached_property
    def _described_model(self) -> dict[str, Any]:
        layers = digest(repr(layers_of(self.model)))
        return {"type": type(self.model).__name__, "layers": layers, "sha256": weights_hash(self.model)}

    def provenance(self) -> dict[str, Any]:
        """What the numbers come from: certificate, method, baseline, preprocessing, the model's hash, versions."""
        method = vars(self).get("_built")
        certificate = method.certificate if isinstance(method, XGradient) else None
        how = self.preprocessing
        if how is None:
            how = "none: the model's inputs as they are" if self.preprocess is None else str(self.preprocess)
        return {
            "method": {"name": self.entry.name, "title": self.entry.titled(self.steps), "adds_up": self.entry.adds_up},
            "target": self.target,
            "baseline": "zero",
            "references": settings_of(self.references),
            "seed": self.seed,
            "preprocessing": how,
            "preprocess": settings_of(self.preprocess),
            "summaries": {type(one).__name__: settings_of(one) for one in self.summaries},
            "model": self._described_model,
            "certificate": None if certificate is None else json.loads(certificate.to_json()),
            "versions": versions(),
        }


def _as_class(value: Any, column: str) -> int | None:
    """A label as a number; None for one that is missing."""
    if value is None or value != value:  # noqa: PLR0124  # NaN, as pandas has it for what is missing
        return None
    try:
        if int(value) == value:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(
        f"the label {str(value)!r} in the column {column!r} is not a class's number: say another column, label=."
    )
