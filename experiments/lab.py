"""What all experiments share: remembered work, the record of a run, its page, and one look of figures."""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

import axiograd

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"

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
    """All experiments: the modules that have a function `run`.

    >>> "carried_quality" in names()
    True
    """
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if "\ndef run(" in path.read_text("utf-8"))


def page(name: str, result: Result) -> str:
    """The result as Markdown, with the record of how it was made."""
    picture = [f"![{result.title}]({name}.png)", ""] if result.figure is not None else []
    made = f"Made by `python -m experiments {name}`. Seed: {result.seed}. Data: {result.data}. {versions()}."
    return (
        "\n".join(
            [
                f"# {result.title}",
                "",
                f"**{result.verdict}**",
                "",
                *picture,
                markdown(result.table),
                "",
                result.note,
                "",
                made,
            ]
        )
        + "\n"
    )


def markdown(table: pd.DataFrame) -> str:
    """A table whose errors stand beside their values.

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
    if not isinstance(value, float | np.floating):
        return str(value)
    if pd.isna(value):
        return ""
    if error is None or pd.isna(error):
        return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
    digits = 1 if error >= 0.1 else 2
    return f"{value:.{digits}f} ± {error:.{digits}f}"


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
    """results/NAME.csv, .md and .png."""
    RESULTS.mkdir(exist_ok=True)
    result.table.to_csv(RESULTS / f"{name}.csv", index=False)
    (RESULTS / f"{name}.md").write_text(text, "utf-8")
    if result.figure is not None:
        result.figure.savefig(RESULTS / f"{name}.png", dpi=150)


def figure(width: float = 6.4, height: float = 3.2, columns: int = 1) -> tuple[Figure, list[Any]]:
    """An empty figure in inches and its axes, side by side."""
    drawn = Figure(figsize=(width, height), layout="constrained")
    axes = list(drawn.subplots(1, columns, squeeze=False).ravel())
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)
        each.grid(axis="y", color="#d5d8dc", linewidth=0.5)
        each.set_axisbelow(True)
    return drawn, axes
