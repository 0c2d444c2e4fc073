"""Attributions of a table's rows by the names of its columns, categories as one feature each."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True, repr=False)
class TableExplanation:
    """Attributions and scores of a table's rows, as DataFrames with its index.

    `base` is what the score is where no feature speaks: score = base + Σ attributions, in every row.
    """

    attributions: Any
    outputs: Any
    data: Any
    target: tuple[str, ...]
    base: Any
    method: str
    baseline: str
    schema: Schema

    _repr_html_ = shown_by("table_explanation_html")

    def __repr__(self) -> str:
        rows, features = self.attributions.shape
        what = f"{self.method} of {', '.join(sorted(set(self.target)))}"
        return f"TableExplanation({rows} rows × {features} features, {what}, baseline: {self.baseline})"

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
    if isinstance(method, str):
        method = find_method(method).build(model, **options)
    attribution = method if isinstance(method, Attribution) else method(model, **options)
    names = schema.classes
    found: list[tuple[Tensor, Tensor, Tensor | None]] = []
    for start in range(0, len(inputs), batch_size):
        rows = slice(start, start + batch_size)
        with torch.no_grad():
            scores = class_scores(model(inputs[rows]), len(inputs[rows]))
        chosen = _targets(target, scores, names, rows, len(inputs))
        found.append((attribution.attribute(inputs[rows], chosen).detach().cpu(), scores.cpu(), chosen))
    encoded, outputs = torch.cat([each[0] for each in found]), torch.cat([each[1] for each in found])
    picked = None if found[0][2] is None else torch.cat([each[2] for each in found if each[2] is not None]).cpu()
    score = outputs[:, 0] if picked is None else outputs.gather(1, picked[:, None])[:, 0]
    summed = schema.sum_categories(encoded)
    named = names if len(names) == outputs.shape[1] else [schema.label or "output"] if outputs.shape[1] == 1 else None
    return TableExplanation(
        pandas.DataFrame(summed.numpy(), index=data.index, columns=list(schema.names)),
        pandas.DataFrame(outputs.numpy(), index=data.index, columns=named if named is None else list(named)),
        data[list(schema.names)],
        tuple(_called(names, i) for i in picked.tolist()) if picked is not None else ("the output",) * len(data),
        pandas.Series((score.double() - encoded.double().sum(1)).numpy(), index=data.index, name="base"),
        type(attribution).__name__,
        schema.zero,
        schema,
    )


def _targets(target: Any, scores: Tensor, names: Sequence[str], rows: slice, count: int) -> Tensor | None:
    n = scores.shape[1]
    if target is None:
        return None if n == 1 else scores.argmax(1)
    each = [target] * count if isinstance(target, int | str) else list(target)
    if len(each) != count:
        raise TargetError(f"{len(each)} targets for {count} rows: give one, or one for each.")
    places = [_place(one, names) for one in each[rows]]
    if n == 1 and set(places) == {0}:
        return None
    if wrong := [place for place in places if not 0 <= place < n]:
        raise TargetError(f"target {wrong[0]} of a model with outputs 0 to {n - 1}.")
    return torch.tensor(places, device=scores.device)


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
