"""What `axiograd explain` leaves in its folder, as samples come: a figure per sample, the arrays, and pages."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from axiograd.cli.attributing import AttributedSample, Methods, relative
from axiograd.cli.classes import ClassNames
from axiograd.cli.inputs import Given
from axiograd.cli.masked import outlined, share_inside
from axiograd.cli.samples import Samples
from axiograd.cli.streamed import StreamedTensors

if TYPE_CHECKING:
    from axiograd.homogeneity import Certificate
    from axiograd.report import Report

_IMAGE = 3
_BARS = 12
#: Characters of a name in a title.
_WIDTH = 40
#: Samples of one page: a browser stays fluid, and what is in memory stays small.
PAGE = 200
_OWN = re.compile(r"\d{3,}-.+\.png|report(-\d+)?\.html|attributions\.safetensors")


@dataclass(frozen=True)
class Story:
    """What all samples have in common."""

    methods: Methods
    samples: Samples
    names: ClassNames
    certificate: Certificate | None
    given: Given

    def target(self, each: AttributedSample) -> str:
        """What was attributed, in words."""
        return "the output" if each.target is None else self.names[each.target]

    def row(self, each: AttributedSample) -> tuple[Sequence[str] | None, Any]:
        """The names of a row's features and its cells: as the table has them, or else as the model sees them."""
        if self.samples.table is not None:
            return self.samples.table.schema.names, self.samples.table.shown(self.samples.row(each.place))
        return None, each.inputs

    def by_feature(self, attribution: Tensor) -> Tensor:
        """What the inputs of one category have together."""
        table = self.samples.table
        return attribution if table is None else table.schema.sum_categories(attribution)

    def picture(self, each: AttributedSample) -> Tensor:
        """The image as people see it, with the rim of its mask."""
        return (
            each.inputs
            if self.samples.pixels is None
            else outlined(self.samples.pixels.transform.picture(each.inputs), each.mask)
        )

    def inside(self, each: AttributedSample) -> dict[str, str]:
        """What the page says about a sample's mask."""
        if each.mask is None:
            return {}
        shares = {self.methods.title(name): share_inside(a, each.mask) for name, a in each.attributions.items()}
        lines = {
            f"{title} inside the mask": "the mask is outside of what the model sees"
            if share is None
            else f"{share:.0%}"
            for title, share in shares.items()
        }
        return lines | {"mask": f"{float(each.mask.double().mean()):.0%} of the image"}


@dataclass(frozen=True)
class Wishes:
    """What is to be written, and where."""

    folder: Path
    kind: Literal["overlay", "signed", "positive"] = "overlay"
    pool: int | None = None
    figures: bool = True
    arrays: bool = True
    report: bool = True


@dataclass
class Album:
    """The files of one run; a sample is drawn and stored when it comes, and then forgotten."""

    wishes: Wishes
    stream: StreamedTensors
    story: Story | None = None
    figures: list[Path] = field(default_factory=list)
    pages: list[Path] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _waiting: list[AttributedSample] = field(default_factory=list)
    _first: Report | None = None

    def add(self, story: Story, each: AttributedSample) -> None:
        """Draw and store one sample."""
        self.story = story
        self._names.append(each.name)
        if self.wishes.arrays:
            # -1 stands for the single output of a model that has no classes.
            target = torch.tensor(-1 if each.target is None else each.target)
            tensors = {"inputs": each.inputs, "scores": each.scores, "targets": target, **each.attributions}
            self.stream.add(str(each.place), tensors)
        if self.wishes.figures:
            self.figures += draw(story, each, self.wishes)
        if self.wishes.report:
            self._waiting.append(each)
            if len(self._waiting) == PAGE and len(story.samples) > PAGE:
                self._turn(story)

    def _turn(self, story: Story) -> None:
        """Make a page of the samples that wait; the first is kept until the costs are known."""
        number = 1 if self._first is None else len(self.pages) + 2
        report = new_report(story, self.wishes, number, -(-len(story.samples) // PAGE))
        errors = {name: _relative(self._waiting, name) for name in story.methods.names}
        for i, each in enumerate(self._waiting):
            add_sample(report, story, each, {name: found[i] for name, found in errors.items()})
        self._waiting.clear()
        if number == 1:
            self._first = report
        else:
            self.pages.append(report.write(self.wishes.folder / page_name(number)))

    def finish(self, costs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Write what is left, and remove what an earlier run with more samples left in the folder."""
        folder, story, files = self.wishes.folder, self.story, dict[str, Any]()
        if story is None:
            return files
        if self.wishes.arrays:
            about = {
                "model": story.methods.spec,
                "baseline": story.samples.zero,
                "preprocessing": story.samples.prepared,
                "samples": "\n".join(self._names),
            }
            files["arrays"] = str(self.stream.write(folder / "attributions.safetensors", about))
        if self.wishes.figures:
            files["figures"] = [str(path) for path in self.figures]
        if self.wishes.report:
            if self._waiting:
                self._turn(story)
            rows = [{key.replace("_", " "): value for key, value in cost.items()} for cost in costs]
            first = cast("Report", self._first)
            first.add_table("What each method cost", rows, note="Measured in this run.")
            self.pages.insert(0, first.write(folder / page_name(1)))
            files["report"] = str(self.pages[0])
            files["pages"] = [str(page) for page in self.pages]
        self._clear(folder)
        return files

    def _clear(self, folder: Path) -> None:
        """Old pictures beside new ones would be taken for this run's."""
        kept = {path.name for path in (*self.figures, *self.pages)} | {"attributions.safetensors"}
        marks = ("report.html", "attributions.safetensors")
        if not any((folder / mark).is_file() for mark in marks):
            return
        for path in folder.iterdir():
            stale = path.name not in kept and _OWN.fullmatch(path.name) and path.is_file()
            kind_written = self.wishes.figures if path.suffix == ".png" else self.wishes.report
            if stale and kind_written:
                path.unlink()


@contextmanager
def album(wishes: Wishes) -> Iterator[Album]:
    """The files of a run; without an end, none of the arrays is kept."""
    with StreamedTensors() as stream:
        yield Album(wishes, stream)


def page_name(number: int) -> str:
    """report.html, report-2.html, …"""
    return "report.html" if number == 1 else f"report-{number}.html"


def draw(story: Story, each: AttributedSample, wishes: Wishes) -> list[Path]:
    """The PNG of a sample: its methods beside the image, or for a row of a table the bars of each method."""
    from axiograd.report import compare, feature_bars

    stem = f"{each.place:03d}-{_file_name(each.name)}"
    untrained = "" if story.given.warning is None else "UNTRAINED MODEL · "
    note = f"baseline: {story.samples.zero}"
    if each.inputs.dim() == _IMAGE:
        maps = {story.methods.title(name): [a] for name, a in each.attributions.items()}
        path = wishes.folder / f"{stem}.png"
        title = f"{untrained}{_short(each.name)} · {_short(story.target(each))}"
        image = [story.picture(each)]
        compare(image, maps, kind=wishes.kind, pool=wishes.pool, title=title, note=note, path=path)
        return [path]
    written = []
    for name, attribution in each.attributions.items() if each.inputs.dim() == 1 else ():
        path = wishes.folder / (f"{stem}.png" if len(each.attributions) == 1 else f"{stem}-{name}.png")
        title = f"{untrained}{_short(each.name)} · {story.methods.title(name)} of {_short(story.target(each))}"
        features, values = story.row(each)
        summed = story.by_feature(attribution)
        feature_bars(summed, features, values=values, top=_BARS, title=title, note=note, path=path)
        written.append(path)
    return written


def new_report(story: Story, wishes: Wishes, number: int, count: int) -> Report:
    """A page with everything but its samples."""
    from axiograd.report import Report

    titles = ", ".join(story.methods.title(name) for name in story.methods.names)
    others = {f"Page {i}": page_name(i) for i in range(1, count + 1) if i != number}
    return Report(
        f"What {story.methods.spec} looks at" + (f", page {number} of {count}" if count > 1 else ""),
        lead=_lead(story, titles),
        command=shlex.join(["axiograd", *sys.argv[1:]]),
        model_name=story.methods.spec,
        data=story.samples.source,
        baseline=story.samples.zero,
        certificate=story.certificate if number == 1 else None,
        facts={"preprocessing": story.samples.prepared}
        | ({} if story.given.warning is None else {"weights": "random: the model is untrained"}),
        max_side=256,  # the usual crops of 224 and 227 stay as they are
        pool=wishes.pool,
        others=others,
    )


def add_sample(report: Report, story: Story, each: AttributedSample, errors: dict[str, float | None]) -> None:
    """One sample of a page."""
    titles = {name: story.methods.title(name) for name in story.methods.names}
    image = each.inputs.dim() == _IMAGE
    features, values = (None, None) if image else story.row(each)
    labelled = each.label is not None and len(each.scores) > each.label
    report.add_sample(
        each.name,
        {titles[name]: a if image else story.by_feature(a) for name, a in each.attributions.items()},
        image=story.picture(each) if image else None,
        label=story.names[cast("int", each.label)] if labelled else each.label,
        prediction=story.names[each.predicted] if len(each.scores) > 1 else each.predicted,
        score=float(each.scores[0 if each.target is None else each.target]),
        completeness={titles[name]: error for name, error in errors.items()},
        values=values,
        features=features,
        details={"target": story.target(each)}
        | ({} if each.energy is None else {"energy part": f"{each.energy:.0%} of the score"})
        | story.inside(each),
    )


def _relative(found: Sequence[AttributedSample], name: str) -> list[float | None]:
    return relative([a.deltas.get(name, math.nan) for a in found], [a.difference for a in found])


def _lead(story: Story, titles: str) -> str:
    lead = f"Attributions of {story.samples.source} by {titles}."
    return lead if story.given.warning is None else f"Untrained: {story.given.warning} {lead}"


def _short(name: str) -> str:
    """A name that leaves a title in one line, its end kept: files of one folder begin alike."""
    return name if len(name) <= _WIDTH else f"…{name[1 - _WIDTH :]}"


def _file_name(name: str) -> str:
    stem = Path(name).name
    stem = stem[: -len(Path(stem).suffix)] if Path(stem).suffix.lower() in {".jpg", ".jpeg", ".png"} else stem
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:60] or "sample"
