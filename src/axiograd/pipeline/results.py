"""What `axiograd explain` leaves in its folder: figures of the first samples, and for every 200 arrays and a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from axiograd._io import check_writable, save_tensors
from axiograd.attribution import Completeness
from axiograd.metrics import energy_inside
from axiograd.pipeline.attributor import Attributor, Batch
from axiograd.pipeline.classes import ClassNames
from axiograd.pipeline.samples import Samples
from axiograd.report import Report, compare, feature_bars

_IMAGE = 3
_BARS = 12
#: Characters of a name in a title.
_WIDTH = 40
#: Samples of one page and of one file of arrays: a browser stays fluid, and what is in memory stays small.
PAGE = 200
#: Samples that have a figure of their own: drawing one takes longer than attributing it, and the pages have them all.
FIGURES = 50
_OWN = re.compile(r"\d{3,}-.+\.png|report(-\d+)?\.html|attributions(-\d+)?\.safetensors")


@dataclass
class Results:
    """A sink of batches: the first samples are drawn as they come, and the numbers of all are kept in `rows`."""

    folder: Path
    attributor: Attributor
    samples: Samples
    #: Windows that maps are summed over, by default those that suit their size; and the command that is repeated.
    pool: int | None = None
    command: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    figures: list[Path] = field(default_factory=list)
    pages: list[Path] = field(default_factory=list)
    arrays: list[Path] = field(default_factory=list)
    _waiting: list[_Sample] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        check_writable(self.folder)
        if (self.folder / "report.html").is_file():  # what an earlier run left, and nothing else
            for path in filter(Path.is_file, self.folder.iterdir()):
                if _OWN.fullmatch(path.name):
                    path.unlink()

    def add(self, batch: Batch) -> None:
        """Draw and note every sample of a batch."""
        names = self.samples.class_names(self.attributor.loaded, batch.scores.shape[1])
        for i in range(len(batch.places)):
            sample = _Sample.of(batch, i, names)
            if len(self.rows) + len(self._waiting) < FIGURES:
                self.figures += self._draw(sample)
            self._waiting.append(sample)
            if len(self._waiting) == PAGE:
                self._turn()

    def finish(self) -> dict[str, Any]:
        """The names of all files."""
        if self._waiting:
            self._turn()
        return {
            "figures": [str(path) for path in self.figures],
            "arrays": [str(path) for path in self.arrays],
            "report": str(self.pages[0]),
            "pages": [str(path) for path in self.pages],
        }

    def _turn(self) -> None:
        """Write the arrays and the page of the samples that wait, and forget them."""
        number, count = len(self.pages) + 1, -(-len(self.samples) // PAGE)
        waiting, self._waiting = self._waiting, []
        tensors = {f"{sample.place}/{name}": value for sample in waiting for name, value in sample.tensors().items()}
        self.arrays.append(self.folder / _numbered("attributions", number, "safetensors"))
        save_tensors(self.arrays[-1], tensors)
        report = self._report(number, count)
        errors = {name: _relative(waiting, name) for name in self.attributor.methods}
        for i, sample in enumerate(waiting):
            of_sample = {name: error[i] for name, error in errors.items()}
            self._add_to(report, sample, of_sample)
            self.rows.append(sample.row(of_sample))
        self.pages.append(report.write(self.folder / _numbered("report", number, "html")))

    def _draw(self, sample: _Sample) -> list[Path]:
        """The PNG of a sample: its methods beside the image, or for a row of a table the bars of each method."""
        stem = f"{sample.place:03d}-{_file_name(sample.name)}"
        untrained = "UNTRAINED MODEL · " if self.attributor.loaded.warning else ""
        note = f"baseline: {self.samples.zero}"
        titles = {name: self.attributor.title(name) for name in sample.attributions}
        if sample.inputs.dim() == _IMAGE:
            path = self.folder / f"{stem}.png"
            title = f"{untrained}{_short(sample.name)} · {_short(sample.target_name)}"
            maps = {titles[name]: [found] for name, found in sample.attributions.items()}
            compare([self._picture(sample)], maps, kind="overlay", pool=self.pool, title=title, note=note, path=path)
            return [path]
        written = []
        for name, found in sample.attributions.items() if sample.inputs.dim() == 1 else ():
            path = self.folder / (f"{stem}.png" if len(titles) == 1 else f"{stem}-{name}.png")
            title = f"{untrained}{_short(sample.name)} · {titles[name]} of {_short(sample.target_name)}"
            features, values = self._cells(sample)
            feature_bars(self._by_feature(found), features, values=values, top=_BARS, title=title, note=note, path=path)
            written.append(path)
        return written

    def _report(self, number: int, count: int) -> Report:
        attributor, samples = self.attributor, self.samples
        titles = ", ".join(attributor.title(name) for name in attributor.methods)
        lead = f"Attributions of {samples.source.name} by {titles}."
        warning = attributor.loaded.warning
        spec = attributor.loaded.spec
        return Report(
            f"What {spec} looks at" + (f", page {number} of {count}" if count > 1 else ""),
            lead=lead if warning is None else f"Untrained: {warning} {lead}",
            command=self.command,
            model_name=spec,
            data=samples.source.name,
            baseline=samples.zero,
            certificate=attributor.certificate if number == 1 else None,
            facts={"preprocessing": samples.prepared}
            | ({} if warning is None else {"weights": "random: the model is untrained"}),
            max_side=256,  # the usual crops of 224 and 227 stay as they are
            pool=self.pool,
            others={f"Page {i}": _numbered("report", i, "html") for i in range(1, count + 1) if i != number},
        )

    def _add_to(self, report: Report, sample: _Sample, errors: dict[str, float | None]) -> None:
        titles = {name: self.attributor.title(name) for name in sample.attributions}
        image = sample.inputs.dim() == _IMAGE
        features, values = (None, None) if image else self._cells(sample)
        details = {"target": sample.target_name}
        score = float(sample.scores[sample.target or 0])
        if sample.energy is not None:
            details["energy part"] = f"{sample.energy:.0%} of the score"
        if sample.mask is not None:
            for name, share in sample.inside().items():
                what = "the mask is outside of what the model sees" if share is None else f"{share:.0%}"
                details[f"{titles[name]} inside the mask"] = what
            details["mask"] = f"{float(sample.mask.double().mean()):.0%} of the image"
        report.add_sample(
            sample.name,
            {titles[name]: a if image else self._by_feature(a) for name, a in sample.attributions.items()},
            image=self._picture(sample) if image else None,
            label=None if sample.label is None else sample.names[sample.label],
            prediction=sample.names[sample.predicted] if len(sample.scores) > 1 else sample.predicted,
            score=score,
            completeness={titles[name]: error for name, error in errors.items()},
            values=values,
            features=features,
            base=score - sample.difference,
            details=details,
        )

    def _picture(self, sample: _Sample) -> Tensor:
        """The image as people see it, with the rim of its mask."""
        pixels = self.samples.pixels
        return sample.inputs if pixels is None else _outlined(pixels.picture(sample.inputs), sample.mask)

    def _cells(self, sample: _Sample) -> tuple[Sequence[str] | None, Any]:
        """The names of a row's features and its cells: as the table has them, or else as the model sees them."""
        if self.samples.schema is not None:
            return self.samples.schema.names, self.samples.cells[sample.place]
        return self.samples.source.features or None, sample.inputs

    def _by_feature(self, attribution: Tensor) -> Tensor:
        """What the inputs of one category have together."""
        return attribution if self.samples.schema is None else self.samples.schema.sum_categories(attribution)


@dataclass(frozen=True)
class _Sample:
    """One sample of a batch, in memory until its page is written."""

    place: int
    name: str
    names: ClassNames
    inputs: Tensor
    scores: Tensor
    label: int | None
    target: int | None
    difference: float
    attributions: dict[str, Tensor]
    deltas: dict[str, float | None]
    mask: Tensor | None
    energy: float | None

    @classmethod
    def of(cls, batch: Batch, i: int, names: ClassNames) -> _Sample:
        deltas = {name: batch.sums_minus_difference(name) for name in batch.attributions}
        return cls(
            batch.places[i],
            batch.names[i],
            names,
            batch.inputs[i].cpu(),
            batch.scores[i].cpu(),
            None if batch.labels is None else batch.labels[i],
            None if batch.targets is None else int(batch.targets[i]),
            float(batch.difference[i]),
            {name: found[i].cpu() for name, found in batch.attributions.items()},
            {name: None if delta is None else float(delta[i]) for name, delta in deltas.items()},
            batch.masks[i],
            None if batch.energy is None else float(batch.energy[i]),
        )

    @property
    def predicted(self) -> int:
        """The class with the largest score; of a single score, whether it is positive."""
        return int(self.scores.argmax()) if len(self.scores) > 1 else int(self.scores[0] > 0)

    @property
    def target_name(self) -> str:
        return "the output" if self.target is None else self.names[self.target]

    def inside(self) -> dict[str, float | None]:
        """The share of positive attribution inside the mask; None where it has no pixel in what the model saw."""
        if self.mask is None or not bool(self.mask.any()):
            return dict.fromkeys(self.attributions)
        return {n: float(energy_inside(a[None], self.mask[None])[0]) for n, a in self.attributions.items()}

    def tensors(self) -> dict[str, Tensor]:
        # -1 stands for the single output of a model that has no classes.
        target = torch.tensor(-1 if self.target is None else self.target)
        return {"inputs": self.inputs, "scores": self.scores, "target": target, **self.attributions}

    def row(self, errors: dict[str, float | None]) -> dict[str, Any]:
        """For JSON and the terminal."""
        inside = self.inside() if self.mask is not None else {}
        row: dict[str, Any] = {
            "name": self.name,
            "label": self.label,
            "top": self._top(),
            "target": self.target,
            "target_name": self.target_name,
            "difference_to_baseline": self.difference,
            "methods": {
                name: {"sum": float(found.double().sum()), "completeness_error": errors[name]}
                | ({"inside": inside[name]} if inside else {})
                for name, found in self.attributions.items()
            },
        }
        return row | ({} if self.mask is None else {"mask_area": float(self.mask.double().mean())})

    def _top(self) -> list[dict[str, Any]]:
        """The three top classes; a single score stands alone."""
        if len(self.scores) == 1:
            return [{"score": float(self.scores[0])}]
        shares, best = self.scores.double().softmax(0), self.scores.topk(min(3, len(self.scores))).indices.tolist()
        return [
            {"class": i, "name": self.names[i], "score": float(self.scores[i]), "probability": float(shares[i])}
            for i in best
        ]


def _relative(found: Sequence[_Sample], name: str) -> list[float | None]:
    return relative([sample.deltas[name] for sample in found], [sample.difference for sample in found])


def relative(deltas: Sequence[float | None], differences: Sequence[float]) -> list[float | None]:
    """|Σ A − (F(x) − F(0))| per sample, relative to the root mean square of F(x) − F(0) over all that are given."""
    if any(delta is None for delta in deltas):
        return [None] * len(deltas)
    numbers = [torch.tensor(each, dtype=torch.float64) for each in (deltas, differences)]
    return list(Completeness.of(numbers[0], numbers[1], "zero").relative.tolist())


def _outlined(picture: Tensor, mask: Tensor | None) -> Tensor:
    """A picture [3, height, width] in [0, 1] with the mask's rim in white, and black beside it."""
    if mask is None:
        return picture
    inside = mask.float()[None, None]
    thick = 1 + max(mask.shape) // 400
    grown = F.max_pool2d(inside, 2 * thick + 1, 1, thick)[0, 0] > 0
    shrunk = -F.max_pool2d(F.pad(-inside, (thick,) * 4), 2 * thick + 1, 1)[0, 0] > 0
    drawn = torch.where(grown & ~mask, 0.0, picture)
    return torch.where(mask & ~shrunk, 1.0, drawn)


def _numbered(name: str, number: int, suffix: str) -> str:
    """report.html, report-2.html, …"""
    return f"{name}.{suffix}" if number == 1 else f"{name}-{number}.{suffix}"


def _short(name: str) -> str:
    """A name that leaves a title in one line, its end kept: files of one folder begin alike."""
    return name if len(name) <= _WIDTH else f"…{name[1 - _WIDTH :]}"


def _file_name(name: str) -> str:
    stem = Path(name).name
    stem = stem[: -len(Path(stem).suffix)] if Path(stem).suffix.lower() in {".jpg", ".jpeg", ".png"} else stem
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:60] or "sample"
