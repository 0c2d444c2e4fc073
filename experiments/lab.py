"""What all experiments share: remembered work, the record of a run, its page, and one look of figures."""

import io
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from PIL import Image

import axiograd

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"

_memory = joblib.Memory(os.environ.get("AXIOGRAD_EXPERIMENTS", ROOT / ".experiments"), verbose=0)
#: Decorates a function whose results are kept on disk, by its arguments and its own code: `lab.remember`.
remember = _memory.cache

#: One colour for each form of a network, in every figure.
COLOURS = {
    "regular": "#6b6f76",
    "strict X": "#e06a10",
    "carried": "#135fa7",
    "calibrated": "#3f8f6b",
    "lift": "#7a4fa3",
}


@dataclass(frozen=True)
class Result:
    """What a script returns."""

    title: str
    #: Numbers; columns that end in " ±" are standard errors, shown beside the column before them.
    table: pd.DataFrame
    #: One sentence: what came out, against the paper or against what we claim.
    verdict: str
    #: How to read the table: what was measured, on how many, with what errors.
    note: str
    data: str
    seed: str
    figure: Figure | None = None


def names() -> list[str]:
    """All experiments: the modules here that have a `run`.

    >>> "table1" in names(), "lab" in names()
    (True, False)
    """
    scripts = Path(__file__).parent.glob("[a-z]*.py")
    return sorted(path.stem for path in scripts if "\ndef run(" in path.read_text("utf-8"))


def mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error, which one value alone does not have.

    >>> mean([1.0, 3.0])
    (2.0, 1.0)
    """
    found = np.asarray(values, dtype=float)
    error = found.std(ddof=1) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return float(found.mean()), float(error)


def span(values: Sequence[float], digits: str = ".2g") -> str:
    """The smallest to the largest.

    >>> span([0.5, 2.0]), span([1.0])
    ('0.5 to 2', '1')
    """
    low, high = (f"{value:{digits}}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def page(name: str, result: Result) -> str:
    """The result as Markdown, with the record of how it was made."""
    picture = [f"![{result.title}]({name}.png)"] if result.figure is not None else []
    made = f"Made by `python -m experiments {name}`. Seed: {result.seed}. Data: {result.data}. {versions()}."
    parts = [f"# {result.title}", f"**{result.verdict}**", *picture, markdown(result.table), result.note, made]
    return "\n\n".join(parts) + "\n"


def markdown(table: pd.DataFrame) -> str:
    """A table with errors next to their values.

    >>> print(markdown(pd.DataFrame({"form": ["a"], "top-1": [52.84], "top-1 ±": [0.3]})))
    | form | top-1 |
    |---|---|
    | a | 52.8 ± 0.3 |
    """
    shown = [column for column in table if not str(column).endswith(" ±")]
    lines = [f"| {' | '.join(map(str, shown))} |", "|---" * len(shown) + "|"]
    for _, row in table.iterrows():
        cells = [_written(row[column], row.get(f"{column} ±")) for column in shown]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _written(value: Any, error: Any) -> str:
    if value is None or pd.isna(value):
        return ""
    if not isinstance(value, float | np.floating):
        return str(value).replace("|", "\\|")
    if error is None or pd.isna(error):
        return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
    rounding = error <= 1e-6 * abs(value)
    digits = 1 if error >= 0.1 else 2 if error >= 0.01 or rounding else 1 - math.floor(math.log10(error))
    return f"{value:z.{digits}f} ± {error:.{digits}f}"


def versions() -> str:
    """Commit and versions that made a result."""
    asked = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    commit = asked.stdout.strip() or "unknown"
    return (
        f"axiograd {axiograd.__version__}, commit {commit}, torch {torch.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}"
    )


def write(name: str, result: Result, text: str) -> None:
    """docs/results/NAME.csv, .md and .png."""
    RESULTS.mkdir(exist_ok=True)
    result.table.to_csv(RESULTS / f"{name}.csv", index=False, float_format="%.6g")
    (RESULTS / f"{name}.md").write_text(text, "utf-8")
    if result.figure is not None:
        drawn = io.BytesIO()
        result.figure.savefig(drawn, dpi=120)
        Image.open(drawn).convert("RGB").quantize(128).save(RESULTS / f"{name}.png", optimize=True)


def verdicts() -> str:
    """docs/what-reproduces.md: one line for each page of results, those about the paper first."""
    lines: dict[bool, list[str]] = {True: [], False: []}
    for path in sorted(RESULTS.glob("*.md")):
        title, verdict, *_ = path.read_text("utf-8").split("\n\n")
        of_the_paper = verdict.startswith(("**Reproduces", "**In part", "**Does not reproduce"))
        lines[of_the_paper].append(f"| [{title.removeprefix('# ')}](results/{path.name}) | {verdict.strip('*')} |")
    header = ["| what | found |", "|---|---|"]
    parts = [
        _VERDICTS,
        "## The paper's claims",
        "\n".join(header + lines[True]),
        "## Ours",
        "\n".join(header + lines[False]),
    ]
    return "\n\n".join([*parts, _PAGES]) + "\n"


_VERDICTS = """# Results: what reproduces, and what does not

One line for each script in `experiments/`: what was measured and what was found, compared with the paper or with our
claims. Each line links to a table with its command, seed, data, commit and versions. To repeat it, clone the repository
and run `python -m experiments NAME`; `--quick` takes seconds on little data. ± is a standard error.

The paper's networks are AlexNet, VGG16 and ResNet-50 on ImageNet. Ours are smaller networks trained here, and converted
pretrained ones, some measured on few images. For converted networks, the results on contrast and on the difference to
Integrated Gradients follow from the conversion; they hold even for a stripped network that classifies nothing."""

_PAGES = """```{toctree}
:hidden:
:glob:

results/*
```"""


def figure(width: float = 6.4, height: float = 3.2, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Any]]:
    """An empty figure in inches and its axes, row by row."""
    drawn = Figure(figsize=(width, height), layout="constrained")
    axes = list(drawn.subplots(rows, columns, squeeze=False).ravel())
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)
        each.grid(axis="y", color="#d5d8dc", linewidth=0.5)
        each.set_axisbelow(True)
    return drawn, axes
