"""What `axiograd explain` leaves in its folder: a figure per sample, the arrays, and the report."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from axiograd.cli.attributing import Attributed, completeness
from axiograd.cli.classes import ClassNames
from axiograd.cli.inputs import Given
from axiograd.cli.methods import Methods
from axiograd.cli.samples import Samples
from axiograd.errors import MissingExtraError
from axiograd.runs.files import write_atomically

if TYPE_CHECKING:
    from axiograd.homogeneity import Certificate

_IMAGE = 3
_BARS = 12


@dataclass(frozen=True)
class Story:
    """Everything that the files tell about."""

    methods: Methods
    samples: Samples
    found: list[Attributed]
    names: ClassNames
    certificate: Certificate | None
    given: Given

    def target(self, each: Attributed) -> str:
        """What was attributed, in words."""
        return "the output" if each.target is None else self.names[each.target]

    def row(self, each: Attributed) -> tuple[Sequence[str] | None, Any]:
        """The names of a row's features and its cells: as the table has them, or else as the model sees them."""
        if self.samples.table is not None:
            return self.samples.table.schema.names, self.samples.table.shown[self.samples.row(each.place)]
        return None, each.inputs

    def by_feature(self, attribution: Tensor) -> Tensor:
        """What the inputs of one category have together."""
        table = self.samples.table
        return attribution if table is None else table.schema.sum_categories(attribution)

    def picture(self, each: Attributed) -> Tensor:
        """The image as people see it."""
        return each.inputs if self.samples.pixels is None else self.samples.pixels.picture(each.inputs)


def draw(
    story: Story, folder: Path, kind: Literal["overlay", "signed", "positive"], progress: Callable[[], object]
) -> list[Path]:
    """One PNG per sample: its methods beside the image, or for a row of a table the bars of each method."""
    from axiograd.report import compare, feature_bars

    written = []
    for each in story.found:
        stem = f"{each.place:03d}-{_file_name(each.name)}"
        untrained = "" if story.given.warning is None else "UNTRAINED MODEL · "
        words = f"{untrained}{story.target(each)} · baseline: {story.samples.zero}"
        if each.inputs.dim() == _IMAGE:
            maps = {story.methods.title(name): a for name, a in each.attributions.items()}
            path = folder / f"{stem}.png"
            title = f"{each.name}\n{words}"
            compare([story.picture(each)], {k: [m] for k, m in maps.items()}, kind=kind, title=title, path=path)
            written.append(path)
        elif each.inputs.dim() == 1:
            for name, attribution in each.attributions.items():
                path = folder / (f"{stem}.png" if len(each.attributions) == 1 else f"{stem}-{name}.png")
                title = f"{untrained}{each.name} · {story.methods.title(name)} of {story.target(each)}"
                features, values = story.row(each)
                feature_bars(
                    story.by_feature(attribution),
                    features,
                    values=values,
                    top=_BARS,
                    title=title,
                    note=f"baseline: {story.samples.zero}",
                    path=path,
                )
                written.append(path)
        progress()
    return written


def save_arrays(story: Story, path: Path) -> Path:
    """Inputs, scores, targets and attributions as safetensors; the header says what they are."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise MissingExtraError("safetensors", "storage", "saving arrays") from error

    found = story.found
    # -1 stands for the single output of a model that has no classes.
    targets = torch.tensor([-1 if each.target is None else each.target for each in found])
    tensors: dict[str, Tensor] = {"targets": targets, "scores": torch.stack([each.scores for each in found])}
    groups: dict[str, list[Tensor]] = {"inputs": [each.inputs for each in found]}
    groups |= {name: [each.attributions[name] for each in found] for name in story.methods.names}
    for name, parts in groups.items():
        if len({part.shape for part in parts}) == 1:
            tensors[name] = torch.stack(parts)
        else:
            tensors |= {f"{name}/{each.place}": part for each, part in zip(found, parts, strict=True)}
    about = {
        "model": story.methods.spec,
        "baseline": story.samples.zero,
        "preprocessing": story.samples.prepared,
        "samples": "\n".join(each.name for each in found),
    }
    content: bytes = save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata=about)
    return write_atomically(path, content)


def write_report(story: Story, path: Path, costs: Sequence[dict[str, Any]]) -> Path:
    """The HTML page with every sample, the certificate and the cost of each method."""
    from axiograd.report import Report

    titles = {name: story.methods.title(name) for name in story.methods.names}
    report = Report(
        f"What {story.methods.spec} looks at",
        lead=_lead(story, ", ".join(titles.values())),
        command=shlex.join(["axiograd", *sys.argv[1:]]),
        model_name=story.methods.spec,
        data=story.samples.source,
        baseline=story.samples.zero,
        certificate=story.certificate,
        facts={"preprocessing": story.samples.prepared}
        | ({} if story.given.warning is None else {"weights": "random: the model is untrained"}),
        max_side=256,  # the usual crops of 224 and 227 stay as they are
    )
    errors = {name: completeness(story.found, name) for name in titles}
    for i, each in enumerate(story.found):
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
            completeness={titles[name]: values[i] for name, values in errors.items()},
            values=values,
            features=features,
            details={"target": story.target(each)},
        )
    rows = [{key.replace("_", " "): value for key, value in cost.items()} for cost in costs]
    report.add_table("What each method cost", rows, section="Cost", note="Measured in this run.")
    return report.write(path)


def _lead(story: Story, titles: str) -> str:
    lead = f"Attributions of {story.samples.source} by {titles}."
    return lead if story.given.warning is None else f"Untrained: {story.given.warning} {lead}"


def _lines(*parts: str, width: int) -> str:
    """A title of several lines, as wide as the figure."""
    return "\n".join(textwrap.fill(part, width) for part in parts)


def _file_name(name: str) -> str:
    stem = Path(name).name
    stem = stem[: -len(Path(stem).suffix)] if Path(stem).suffix.lower() in {".jpg", ".jpeg", ".png"} else stem
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:60] or "sample"
