"""The report: one HTML file with everything in it, for a browser without a network."""

import os
import platform
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from axiograd._io import write_atomically
from axiograd._version import __version__
from axiograd.errors import ConfigurationError, InputError, StorageError
from axiograd.report import _markup as markup
from axiograd.report._escape import paragraphs, text
from axiograd.report._png import as_uri
from axiograd.report._tables import as_rows, table
from axiograd.report.arrays import CLIP, Channels, window_for
from axiograd.report.canvas import render
from axiograd.report.colours import ANCHORS
from axiograd.report.sample import Sample, read_sample


class Report:
    """Collects steps, samples, tables and figures, and writes them as one self-contained page.

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
        channels: Channels = "sum",
        clip: float = CLIP,
        max_side: int = 224,
        pool: int | None = None,
        others: Mapping[str, str] | None = None,
    ) -> None:
        if max_side < 1:
            raise ConfigurationError(f"max_side={max_side}: expected at least one pixel.")
        self.title, self.lead, self.headline = str(title), lead, dict(headline or {})
        self.summary = {"model": model_name, "data": data, "baseline": baseline, **(facts or {})}
        self.channels, self.clip, self.max_side = channels, clip, max_side
        #: The side of the windows that maps are first shown in, None for photos alone; and pages beside this one.
        self.pool, self.others = pool, dict(others or {})
        self._commands: list[tuple[str, str]] = [(command, "")] if command else []
        self._certificates: dict[str, Any] = {}
        self._steps: list[markup.StoryStep] = []
        self._sections: list[markup.Section] = []
        self._samples: list[Sample] = []
        self._featured: list[int] = []
        if certificate is not None:
            named = certificate if isinstance(certificate, Mapping) else {model_name or "model": certificate}
            for name, each in named.items():
                self.add_certificate(name, each)

    def add_certificate(self, name: str, certificate: Any) -> None:
        """The certificate of one model."""
        self._certificates[str(name)] = certificate

    def add_step(
        self,
        title: str,
        body: str = "",
        *,
        numbers: Mapping[str, Any] | None = None,
        code: str = "",
        figure: Any = None,
    ) -> None:
        """A numbered step of the story; a number that is a pair is shown as before → after."""
        drawn = "" if figure is None else markup.figure_markup(_uri(figure), "", title)
        self._steps.append(markup.StoryStep(title, body, dict(numbers or {}), code, drawn))

    def add_section(self, title: str, body: str = "") -> None:
        """A heading; tables, figures and text that follow are below it."""
        self._sections.append(markup.Section(title, [paragraphs(body)]))

    def add_table(
        self, title: str, rows: Any, *, columns: Sequence[str] | None = None, note: str = "", section: str = ""
    ) -> None:
        """A table whose columns sort; rows are mappings, sequences with ``columns``, or {name: mapping}."""
        names, cells = as_rows(rows, columns)
        self._block(section, f"<h3>{text(title)}</h3>{paragraphs(note)}{table(names, cells, label=title)}")

    def add_figure(self, title: str, figure: Any, *, caption: str = "", section: str = "") -> None:
        """A matplotlib figure, the bytes of a PNG, or its path."""
        self._block(section, f"<h3>{text(title)}</h3>{markup.figure_markup(_uri(figure), caption, title)}")

    def add_text(self, title: str, content: Any, *, section: str = "") -> None:
        """Anything that has a `str()`, kept in its lines: an axiom report, a verification, a log."""
        self._block(section, f"<h3>{text(title)}</h3><pre tabindex=0>{text(content)}</pre>")

    def add_axioms(self, *reports: Any, section: str = "Axioms") -> None:
        """Reports of `axiograd.audit`: a row per method, a column per axiom, and what contradicts those that fail."""
        rows = [
            {"method": r.method, "models": r.models} | {x.axiom: bool(x.passed) for x in r.results} for r in reports
        ]
        failures = [
            {"method": r.method, "axiom": x.axiom, "violation": x.violation, "counterexample": str(x.counterexample)}
            for r in reports
            for x in r.results
            if not x.passed
        ]
        self.add_table("Which axioms hold", rows, section=section)
        if failures:
            self.add_table("Counterexamples", failures, section=section)

    def add_command(self, command: str, note: str = "") -> None:
        """A command that made this page or repeats it."""
        self._commands.append((command, note))

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
        boxes: Sequence[Sequence[float]] = (),
        details: Mapping[str, Any] | None = None,
        featured: bool = False,
    ) -> None:
        """One sample: its attributions by name (methods, or before and after), and what is known about it.

        Attributions are [height, width] or [channels, height, width] with an optional ``image``, or [features] with
        ``features`` names and ``values``. Prediction, score and relative completeness error are one for all views
        or {view: one}. ``boxes`` are (left, top, right, bottom) in pixels, outlined in the picture. What is
        ``featured`` is also shown at the top, all views side by side.
        """
        if featured:
            self._featured.append(len(self._samples))
        self._samples.append(
            read_sample(
                name,
                attributions,
                image=image,
                label=label,
                prediction=prediction,
                score=score,
                completeness=completeness,
                values=values,
                features=features,
                boxes=boxes,
                details=details or {},
                channels=self.channels,
                clip=self.clip,
                max_side=self.max_side,
            )
        )

    def add_samples(
        self,
        names: Sequence[str],
        attributions: Any,
        *,
        features: Sequence[str] | None = None,
        featured: Collection[int] = (),
        **columns: Any,
    ) -> None:
        """A batch of samples: attributions [batch, …] or {view: [batch, …]}, and everything else one per sample.

        ``featured`` are the places in the batch of those that are shown at the top.

        >>> report = Report("two")
        >>> x = torch.rand(2, 1, 4, 4)
        >>> report.add_samples(["a", "b"], {"before": x, "after": -x}, image=x, label=["cat", "dog"], featured=[0])
        """
        for i, name in enumerate(names):
            each = {key: _row(column, i, len(names), key) for key, column in columns.items()}
            row = _row(attributions, i, len(names), "attributions")
            self.add_sample(name, row, features=features, featured=i in featured, **each)

    def to_html(self) -> str:
        """The page as text."""
        made = {
            **{k: v for k, v in self.summary.items() if v not in {"", None}},
            "samples": len(self._samples),
            "axiograd": __version__,
            "torch": torch.__version__,
            "Python": platform.python_version(),
            "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        }
        entries = [
            ("story", "Step by step", bool(self._steps)),
            ("samples", "Samples", bool(self._samples)),
            ("certificate", "Certificate", bool(self._certificates)),
            *((f"section-{i}", s.title, True) for i, s in enumerate(self._sections)),
            ("made", "How this was made", True),
        ]
        body = [
            markup.steps_markup(self._steps),
            markup.samples_markup(self._legend()) if self._samples else "",
            markup.certificates_markup(self._certificates),
            markup.sections_markup(self._sections),
            markup.made_markup(made, self._commands),
        ]  # fmt: skip
        return markup.document(
            title=self.title,
            header=self._header(),
            navigation=markup.navigation_markup(
                [(f"#{target}", name) for target, name, there in entries if there]
                + [(quote(file), name) for name, file in self.others.items()]
            ),
            body="\n".join(part for part in body if part),
            data=self._data(),
            payloads=[s.payload for s in self._samples],
        )

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; an interruption leaves the old file or none."""
        return write_atomically(path, self.to_html().encode("utf-8", "replace"))

    def _header(self) -> str:
        facts = "".join(
            f"<span>{text(k)} <b>{text(v)}</b></span>" for k, v in self.summary.items() if v not in {"", None}
        )
        return (
            f"<header><h1>{text(self.title)}</h1><div class=lead>{paragraphs(self.lead)}</div>"
            f"{markup.numbers_markup(self.headline, 'headline')}"
            f"{'<div id=featured class=featured></div>' if self._featured else ''}"
            f"{f'<p class=summary>{facts}</p>' if facts else ''}</header>"
        )

    def _legend(self) -> str:
        """What a reader must know to read the colours."""
        maps = any("maps" in s.payload for s in self._samples)
        if not maps:
            return paragraphs("Orange features support the target, blue ones oppose it.")
        return paragraphs(
            f"Orange pixels support the target, blue ones oppose it: the {self.channels} over channels, in colours "
            f"that end at the {self.clip:g}th percentile of each map. The slider sums over windows of pixels, which "
            "keeps the total; neighbours of opposite sign hide each other. Values that you read by pointing are "
            "rounded, by at most 0.8 % of the largest pixel."
        )

    def _data(self) -> dict[str, Any]:
        """What the script knows before it reads a payload; names that many samples share are stored once."""
        views = list(dict.fromkeys(v for s in self._samples for v in s.views))
        features = list(dict.fromkeys(s.features for s in self._samples))
        samples = [
            {**s.index, "views": [views.index(v) for v in s.views], "features": features.index(s.features)}
            for s in self._samples
        ]
        return {
            "anchors": ANCHORS, "views": views, "features": features, "samples": samples,
            "featured": self._featured, "clip": self.clip, "pool": self._window(),
        }  # fmt: skip

    def _window(self) -> int:
        """By default that of photos, if there are any."""
        shapes = [s.size for s in self._samples if s.size]
        return max((window_for(shape, self.pool) for shape in shapes), default=1)

    def _block(self, section: str, block: str) -> None:
        if section:
            found = next((s for s in self._sections if s.title == section), None)
            if found is None:
                self.add_section(section)
                found = self._sections[-1]
            found.blocks.append(block)
            return
        if not self._sections:
            self.add_section("Results")
        self._sections[-1].blocks.append(block)


def _row(column: Any, index: int, count: int, what: str) -> Any:
    if column is None:
        return None
    if isinstance(column, Mapping):
        return {key: _row(values, index, count, what) for key, values in column.items()}
    if len(column) != count:
        raise InputError(f"{len(column)} {what} for {count} samples: expected one each.")
    return column[index]


def _uri(figure: Any) -> str:
    if hasattr(figure, "savefig"):
        return as_uri(render(figure))
    if isinstance(figure, bytes):
        content = figure
    elif isinstance(figure, str | os.PathLike):
        try:
            content = Path(figure).read_bytes()
        except OSError as error:
            raise StorageError(f"Cannot read the figure {str(figure)!r}: {error.strerror}.") from error
    else:
        raise ConfigurationError(f"A figure is a matplotlib figure, PNG bytes or a path, got {type(figure).__name__}.")
    if not content.startswith(b"\x89PNG"):
        raise ConfigurationError("Only PNG files go into a page; save the figure with the ending .png.")
    return as_uri(content)
