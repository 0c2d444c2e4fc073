"""Attributions of a table's rows by the names of its columns, categories as one feature each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from axiograd._calls import class_scores
from axiograd._extras import optional
from axiograd._names import choose_from
from axiograd._notebook import shown_by
from axiograd._state import like_of
from axiograd.attribution import Attribution
from axiograd.attribution.methods import find_method
from axiograd.attribution.shap_values import shap_explanation
from axiograd.datasets import Schema
from axiograd.datasets.tables import as_frame
from axiograd.errors import InputError, TargetError
from axiograd.homogeneity.conversion.edits import running
from axiograd.priors.shapley import draw_subset, shapley_error_bound

#: R² from which attributions are called Shapley values.
NEAR = 0.96
_SUBSETS = 16


@dataclass(frozen=True, repr=False)
class TableExplanation:
    """Attributions and scores of a table's rows, as DataFrames with its index.

    `base` is what the score is without any feature: score = base + Σ attributions, in every row.
    `shapley_error` is how far each row is from the Shapley values against zero, at most: a bound on the root mean
    square over its columns, estimated from 16 random subsets of them (`axiograd.priors.shapley.shapley_error_bound`).
    """

    attributions: Any
    outputs: Any
    data: Any
    target: tuple[str, ...]
    base: Any
    shapley_error: Any
    method: str
    baseline: str
    schema: Schema

    _repr_html_ = shown_by("table_explanation_html")

    def __repr__(self) -> str:
        rows, features = self.attributions.shape
        what = f"{self.method} of {', '.join(sorted(set(self.target)))}"
        return f"TableExplanation({rows} rows × {features} features, {what}, baseline: {self.baseline}; {self.kind})"

    @property
    def shapley_r2(self) -> float:
        """R² of the attributions with the Shapley values, at least: 1 − Σ error²/Σ(a − mean a)²."""
        values = self.attributions.to_numpy()
        error = values.shape[1] * np.square(self.shapley_error).sum()
        return float(1 - error / max(np.square(values - values.mean()).sum(), np.finfo(float).tiny))

    @property
    def kind(self) -> str:
        """Whether they are Shapley values, in words.

        X-Gradient is Integrated Gradients against the mean row, which are Shapley values of a network that adds its
        columns up; `axiograd.priors.Shapley` trains one that nearly does.
        """
        near = self.shapley_r2 >= NEAR
        known = "Shapley values" if near else "not shown to be Shapley values"
        return f"{known}, R² ≥ {min(max(math.floor(1000 * self.shapley_r2) / 1000, 0), 0.999):g}"

    def to_shap(self) -> Any:
        """A `shap.Explanation`, for shap's waterfall, beeswarm and bar plots."""
        coded = [_codes(column, self.data[column.name]) for column in self.schema.columns]
        return shap_explanation(
            self.attributions.to_numpy(),
            self.base.to_numpy(),
            np.stack(coded, axis=1),
            self.schema.names,
            display=self.data.to_numpy(),
        )


def explain(
    model: nn.Module,
    frame: Any,
    schema: Schema,
    target: Any = None,
    *,
    method: str | type[Attribution] | Attribution = "x-gradient",
    batch_size: int = 1024,
    **options: Any,
) -> TableExplanation:
    """Attribute a model's scores to the columns of a table, by their names and in the table's order of rows.

    `schema` prepares the rows: that of the data the model was trained on (`axiograd.datasets.table(...).schema`, or
    `Schema.read(file)` of what `axiograd train` wrote). `target` is a class by name or number, one for each row,
    or, by default, the predicted one. `method` is a name ("integrated-gradients"), a class or an object;
    further options go to it, `references` of Expected Gradients as rows of the table.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [30, 50], "sex": ["f", "m"]}, index=["ann", "bob"])
    >>> schema = Schema.fit(frame)
    >>> model = nn.Linear(3, 1, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 2.0, 3.0]]))
    >>> explain(model, frame, schema).attributions
         age  sex
    ann -1.0  2.0
    bob  1.0  3.0
    """
    pandas = optional("pandas", "tables", "axiograd.tables")
    data = frame if isinstance(frame, pandas.DataFrame) else as_frame(frame)
    if not len(data):
        raise InputError("the table has no rows to explain.")
    inputs = schema.encode(data).to(like_of(model))
    if "references" in options:
        options["references"] = schema.encode(options["references"]).to(inputs)
    attribution = method if isinstance(method, Attribution) else find_method(method).build(model, **options)
    names = schema.classes

    def scores(rows: Tensor) -> Tensor:
        with torch.no_grad():
            return class_scores(model(rows), len(rows))

    with running(model):
        outputs = torch.cat([scores(x) for x in inputs.split(batch_size)])
        single = outputs.shape[1] == 1
        targets = _targets(target, outputs, names)
        found, errors = [], []
        for x, at in zip(inputs.split(batch_size), targets.split(batch_size), strict=True):
            found.append(schema.sum_categories(attribution.attribute(x, None if single else at).detach()))
            score = lambda rows, at=at: scores(rows).gather(1, at[:, None])[:, 0]  # noqa: E731
            errors.append(_shapley_error(found[-1], x, score, schema))
    attributions, outputs, targets = torch.cat(found).cpu(), outputs.cpu(), targets.cpu()
    base = outputs.gather(1, targets[:, None])[:, 0].double() - attributions.double().sum(1)
    named = names if len(names) == outputs.shape[1] else [schema.label or "output"] if single else None
    return TableExplanation(
        pandas.DataFrame(attributions.numpy(), index=data.index, columns=list(schema.names)),
        pandas.DataFrame(outputs.numpy(), index=data.index, columns=named if named is None else list(named)),
        data[list(schema.names)],
        ("the output",) * len(data) if single else tuple(_called(names, i) for i in targets.tolist()),
        pandas.Series(base.numpy(), index=data.index, name="base"),
        pandas.Series(torch.cat(errors).cpu().numpy(), index=data.index, name="shapley_error"),
        type(attribution).__name__,
        schema.zero,
        schema,
    )


def _shapley_error(attributions: Tensor, x: Tensor, score: Callable[[Tensor], Tensor], schema: Schema) -> Tensor:
    """A bound on the root mean square of φᵢ − aᵢ over the columns of each row.

    All rows have the same subsets, so that a row alone is what it is among others. What a lacks of F(x) − F(0) is
    spread over the columns, at right angles to errors that add up to 0.
    """
    n, generator = len(schema.columns), torch.Generator().manual_seed(0)
    widths = torch.tensor([column.width for column in schema.columns])
    zero = score(torch.zeros_like(x))
    missing = (score(x) - zero - attributions.sum(1)) / n
    gaps = []
    for _ in range(_SUBSETS):
        subset = draw_subset(torch.empty(1, n), generator)
        present = score(x * subset.repeat_interleave(widths, 1).to(x)) - zero
        gaps.append(present - ((attributions + missing[:, None]) * subset.to(x)).sum(1))
    return (shapley_error_bound(torch.stack(gaps), n).square() + missing.square()).sqrt()


def _targets(target: Any, outputs: Tensor, names: Sequence[str]) -> Tensor:
    count, n = outputs.shape
    if target is None:
        return outputs.argmax(1)
    each = [target] * count if isinstance(target, int | str) else list(target)
    if len(each) != count:
        raise TargetError(f"{len(each)} targets for {count} rows: give one, or one for each.")
    places = [_place(one, names) for one in each]
    if wrong := [place for place in places if not 0 <= place < n]:
        raise TargetError(f"target {wrong[0]} of a model with outputs 0 to {n - 1}.")
    return torch.tensor(places, device=outputs.device)


def _place(target: Any, names: Sequence[str]) -> int:
    if not isinstance(target, str):
        return int(target)
    if target not in names:
        raise TargetError(
            f"no class {target!r}: {choose_from(target, names) if names else 'the classes have no names'}."
        )
    return list(names).index(target)


def _called(names: Sequence[str], place: int) -> str:
    return names[place] if place < len(names) else f"output {place}"


def _codes(column: Any, cells: Sequence[Any]) -> Any:
    """Numbers as they are; of a category the place of its value, which colours need."""
    found = column.encode(cells, "zero")
    return found.argmax(1).astype(float) if column.is_category else found[:, 0]
