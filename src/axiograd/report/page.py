"""The report: one HTML file with everything in it, for a browser without a network."""

import base64
import hashlib
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from axiograd._io import write_atomically
from axiograd._version import __version__
from axiograd.errors import InputError
from axiograd.report.arrays import Array, data_uri, to_array, to_image, to_map, window_for, window_sums
from axiograd.report.charts import Bar, Strip, bars, labelled, overview
from axiograd.report.colours import CLIP, asset, shared_assets
from axiograd.report.templates import render

#: Of a byte with a sign.
LEVELS = 127
#: Bars of a row in the gallery, and samples of a table from which on it has an overview.
_BARS, _MANY = 8, 5
#: A sum this near to the score adds up, also after single precision and a fine quadrature.
_NEAR = 1e-2


@dataclass(frozen=True)
class View:
    """One attribution of a sample: its map or its bars, and its model's prediction."""

    name: str
    prediction: str | None
    #: Whether the prediction is the label, where both are known.
    right: bool | None
    score: float | None
    #: The relative completeness error.
    error: float | None
    sum: float
    map: Mapping[str, Any] | None = None
    bars: Sequence[Bar] = ()


@dataclass(frozen=True)
class Sample:
    """What is known about a sample; its views are its attributions by name: methods, or before and after."""

    name: str
    label: str | None
    views: list[View]
    details: Mapping[str, Any]
    featured: bool
    #: The picture's address, and its outlines as CSS insets.
    image: str | None = None
    boxes: Sequence[str] = ()
    #: Height and width of its maps before they are made smaller, () for rows of a table.
    size: tuple[int, ...] = ()
    #: Of a row of a table: the names of its features, the values, and the first attribution.
    row: tuple[Sequence[str], Sequence[Any], Array] | None = None

    @property
    def index(self) -> dict[str, Any]:
        """The keys by which the page searches and sorts; numbers that are not finite come last."""
        words = [self.name, self.label or "", *(view.prediction or "" for view in self.views)]
        finite = [abs(v.error) for v in self.views if v.error is not None and math.isfinite(v.error)]
        scores = [v.score for v in self.views if v.score is not None and math.isfinite(v.score)]
        wrong = sum(view.right is False for view in self.views)
        return {
            "words": " ".join(words).lower(),
            "name": self.name,
            "wrong": wrong,
            "error": max(finite, default=-1.0),
            "score": max(scores, default=None),
        }


class Report:
    """Collects steps, samples and tables, and writes them as one self-contained page.

    >>> import tempfile, torch
    >>> report = Report("Right for the right reasons", model_name="ShapesNet", command="axiograd demo")
    >>> report.add_step("A regular network learns the shortcut", numbers={"accuracy": "99 %", "without it": "41 %"})
    >>> x = torch.rand(3, 8, 8)
    >>> report.add_sample("shape 1", {"before": x, "after": -x}, image=x, label="circle", prediction="circle")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report.write(f"{folder}/report.html").name
    'report.html'
    """

    def __init__(
        self,
        title: str,
        *,
        lead: str = "",
        headline: Mapping[str, Any] | None = None,
        command: str = "",
        model_name: str = "",
        data: str = "",
        baseline: str = "",
        certificate: Any = None,
        facts: Mapping[str, Any] | None = None,
        max_side: int = 224,
        pool: int | None = None,
        others: Mapping[str, str] | None = None,
    ) -> None:
        self.title, self.lead, self.headline, self.command = str(title), lead, dict(headline or {}), command
        self.facts = {"model": model_name, "data": data, "baseline": baseline, **(facts or {})}
        self.max_side = max_side
        #: The side of the windows that maps are first shown in, None for photos alone; and pages beside this one.
        self.pool, self.others = pool, dict(others or {})
        named = certificate if isinstance(certificate, Mapping) else {model_name or "model": certificate}
        self.certificates = {str(name): each for name, each in named.items() if each is not None}
        self.steps: list[dict[str, Any]] = []
        self.tables: list[dict[str, Any]] = []
        self.samples: list[Sample] = []

    def add_step(self, title: str, body: str = "", *, numbers: Mapping[str, Any] | None = None, code: str = "") -> None:
        """A numbered step of the story; a number that is a pair is shown as before → after."""
        self.steps.append({"title": title, "body": body, "numbers": dict(numbers or {}), "code": code})

    def add_table(self, title: str, rows: Any, *, columns: Sequence[str] | None = None, note: str = "") -> None:
        """A table; rows are mappings, or sequences with ``columns``."""
        listed = list(rows)
        if columns is None:
            columns = list(dict.fromkeys(name for row in listed for name in row))
            listed = [[row.get(name) for name in columns] for row in listed]
        if any(len(row) != len(columns) for row in listed):
            raise InputError(f"Rows of {[len(row) for row in listed]} cells need as many columns, not {len(columns)}.")
        self.tables.append({"title": title, "columns": columns, "rows": listed, "note": note})

    def add_sample(
        self,
        name: str,
        attributions: Any,
        *,
        image: Any = None,
        label: Any = None,
        prediction: Any = None,
        score: Any = None,
        completeness: Any = None,
        values: Any = None,
        features: Sequence[str] | None = None,
        base: float | None = None,
        boxes: Sequence[Sequence[float]] = (),
        details: Mapping[str, Any] | None = None,
        featured: bool = False,
    ) -> None:
        """One sample: its attributions by name (methods, or before and after), and what is known about it.

        Attributions are [height, width] or [channels, height, width] with an optional ``image``, or [features] with
        ``features`` names and ``values``: a waterfall from ``base``, the score without any feature, if they add up
        to the score. Prediction, score and relative completeness error are one for all views or {view: one}. ``boxes``
        are (left, top, right, bottom) in pixels, outlined in the picture. What is ``featured`` is also shown at the
        top, all views side by side.
        """
        named: dict[str, Any] = (
            dict(attributions) if isinstance(attributions, Mapping) else {"attribution": attributions}
        )
        if not named:
            raise InputError(f"Sample {name!r} has no attribution: pass one, or {{'method': attribution, …}}.")
        arrays = {view: to_array(a, f"attribution {view!r} of sample {name!r}") for view, a in named.items()}
        flat = {array.ndim <= 1 for array in arrays.values()}
        if len(flat) > 1:
            shapes = [array.shape for array in arrays.values()]
            raise InputError(f"Sample {name!r} mixes feature vectors and maps: shapes {shapes}.")
        drawn: dict[str, dict[str, Any]]
        if flat == {True}:
            scores = {view: _of_view(score, view, named) for view in named}
            drawn, more = _rows(arrays, features, values, base, scores)
        else:
            drawn, more = self._maps(name, arrays, image, boxes)
        label = None if label is None else str(label)
        known = {"prediction": prediction, "score": score, "error": completeness}
        views = []
        for view in named:
            own = {key: _of_view(given, view, named) for key, given in known.items()}
            own["prediction"] = None if own["prediction"] is None else str(own["prediction"])
            right = None if None in {label, own["prediction"]} else own["prediction"] == label
            views.append(View(name=str(view), right=right, **own, **drawn[view]))
        self.samples.append(Sample(str(name), label, views, dict(details or {}), featured, **more))

    def _maps(self, name: str, arrays: Mapping[str, Array], image: Any, boxes: Sequence[Sequence[float]]) -> Any:
        """What is drawn of each view, and what the views of an image share."""
        maps = {view: to_map(array) for view, array in arrays.items()}
        height, width = next(iter(maps.values())).shape
        picture = None if image is None else to_image(image)
        sizes = {each.shape for each in maps.values()} | ({picture.shape[:2]} if picture is not None else set())
        if len(sizes) > 1:
            raise InputError(f"Sample {name!r}: image and attributions differ in size: {sorted(sizes)}.")
        block = -(-max(height, width) // self.max_side)
        drawn = {
            view: {"map": pack(window_sums(each, block), block), "sum": float(each.sum())}
            for view, each in maps.items()
        }
        insets = [
            (top / height, 1 - right / width, 1 - bottom / height, left / width) for left, top, right, bottom in boxes
        ]
        return drawn, {
            "size": (height, width),
            "image": None if picture is None else data_uri(shrink(picture, block)),
            "boxes": [" ".join(f"{100 * inset:.2f}%" for inset in each) for each in insets],
        }

    def to_html(self) -> str:
        """The page as text."""
        views = list(dict.fromkeys(view.name for sample in self.samples for view in sample.views))
        made = {
            **{key: value for key, value in self.facts.items() if value not in {"", None}},
            "axiograd": __version__,
            "torch": torch.__version__,
            "Python": platform.python_version(),
            "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        }
        script = f"{shared_assets()['heat.js']}\n{asset('report.js')}"
        return render(
            "page.html",
            report=self,
            views=views,
            clip=CLIP,
            overview=self._overview(),
            window=max((window_for(sample.size, self.pool) for sample in self.samples if sample.size), default=1),
            made=made,
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; an interruption leaves the old file or none."""
        return write_atomically(path, self.to_html().encode("utf-8", "replace"))

    def _overview(self) -> list[Strip]:
        """Of the rows of one table, if there are enough of them."""
        rows = [sample.row for sample in self.samples if sample.row is not None]
        if len(rows) < _MANY or len({tuple(names) for names, _, _ in rows}) > 1:
            return []
        return overview(rows[0][0], np.stack([row[2] for row in rows]), [row[1] for row in rows])


def _rows(
    arrays: Mapping[str, Array],
    features: Sequence[str] | None,
    values: Any,
    base: float | None,
    scores: Mapping[str, float | None],
) -> Any:
    """What is drawn of each view, and what the views of a row of a table share."""
    drawn = {}
    for view, array in arrays.items():
        total, score = float(array.sum()), scores[view]
        adds_up = score is None or math.isclose(total, score - (base or 0), rel_tol=_NEAR, abs_tol=1e-6)
        labels = labelled(features, values, array.size)
        drawn[view] = {"bars": bars(labels, array.ravel(), top=_BARS, base=base if adds_up else None), "sum": total}
    first = next(iter(arrays.values())).ravel()
    given = ["?"] * first.size if values is None else list(values)
    return drawn, {"row": (labelled(features, None, first.size), given, first)}


def _of_view(given: Any, view: str, views: Mapping[str, Any]) -> Any:
    """What belongs to a view, of one thing for all views or {view: one}; numbers as Python has them."""
    if isinstance(given, Mapping):
        if unknown := [key for key in given if key not in views]:
            raise InputError(f"{unknown} are not among the attributions {list(views)}.")
        given = given.get(view)
    return given.item() if hasattr(given, "item") else given


def shrink(picture: Array, block: int) -> Array:
    """The mean colour of block × block pixels; blocks at the far edges may be smaller."""
    ones = window_sums(np.ones(picture.shape[:2]), block)
    return np.stack([window_sums(picture[..., c], block) / ones for c in range(picture.shape[2])], axis=-1)


def pack(values: Array, block: int = 1) -> dict[str, Any]:
    """q = round(127·sign(a)·√(|a| / max|a|)), so that a = sign(q)·(q / 127)²·max|a| to within 0.8 % of max|a|.

    >>> pack(np.array([[0.0, -2.0]]))["largest"]
    2.0
    """
    largest = float(np.abs(values).max())
    # A subnormal divisor would overflow.
    divisor = max(largest, float(np.finfo(np.float64).tiny))
    levels = np.round(LEVELS * np.sign(values) * np.sqrt(np.abs(values) / divisor)).astype(np.int8)
    height, width = values.shape
    packed = base64.b64encode(levels.tobytes()).decode()
    return {"levels": packed, "largest": largest, "height": height, "width": width, "block": block}
