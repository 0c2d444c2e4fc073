"""Figures without pyplot: no global state, safe in threads and servers, one plain look."""

import io
import os
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from axiograd._extras import optional
from axiograd._io import write_atomically
from axiograd.errors import ConfigurationError

#: Where a figure goes: one file or several, PNG, PDF or SVG by their endings.
Destination: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None

INK, QUIET, RULE = "#1c1e21", "#5d636b", "#d5d8dc"
SMALL, NORMAL, LARGE = 7.5, 8.5, 10.5
CHARACTERS_PER_INCH = 15  # of SMALL text
TITLE_CHARACTERS_PER_INCH = 10
TITLE_LINE = 0.19  # inches


def new_figure(width: float, height: float) -> Any:
    """An empty figure in inches, with its own canvas; a notebook shows it where it is a cell's last line."""
    matplotlib = optional("matplotlib.figure", "plots", "drawing figures")
    agg = optional("matplotlib.backends.backend_agg", "plots", "drawing figures")
    figure = matplotlib.Figure(figsize=(width, height), dpi=150, layout="constrained", facecolor="white")
    agg.FigureCanvasAgg(figure)
    figure._repr_png_ = partial(_png, figure)
    return figure


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def write_text(text: Any) -> None:
    """Names are text, also where they contain dollar signs."""
    text.set_parse_math(False)


def title_axes(axes: Any, title: str) -> None:
    write_text(axes.set_title(title, fontsize=NORMAL, color=INK, pad=4))


def title_lines(title: str | None, width: float) -> list[str]:
    """A title in lines that fit into a figure of a width in inches.

    >>> title_lines("tench.jpg\\nattribution of tench, baseline zero", 2.5)
    ['tench.jpg', 'attribution of tench,', 'baseline zero']
    """
    most = int(width * TITLE_CHARACTERS_PER_INCH)
    return [short for line in (title or "").splitlines() for short in textwrap.wrap(line, most)]


def title_figure(figure: Any, title: str | None) -> None:
    if lines := title_lines(title, figure.get_figwidth()):
        write_text(figure.suptitle("\n".join(lines), fontsize=LARGE, color=INK, fontweight="bold"))


def note_figure(figure: Any, notes: Iterable[str]) -> None:
    """A note below the figure that explains the colours."""
    text = " · ".join(n for n in notes if n)
    if text:
        wrapped = textwrap.fill(text, int(figure.get_figwidth() * CHARACTERS_PER_INCH))
        write_text(figure.supxlabel(wrapped, fontsize=SMALL, color=QUIET))


def plain_chart(axes: Any, x_label: str) -> None:
    """Bars to the right and left: thin rules, no box."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(RULE)
    axes.tick_params(labelsize=SMALL, colors=QUIET, length=2.5, width=0.6)
    axes.grid(visible=True, axis="x", color=RULE, linewidth=0.5)
    axes.set_axisbelow(True)
    write_text(axes.set_xlabel(x_label, fontsize=NORMAL, color=INK))


def picture_axes(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(RULE)
        spine.set_linewidth(0.6)


def save(figure: Any, path: Destination, *, dpi: int = 200) -> Any:
    """Write the figure to each path, atomically and without a date in it, and give it back.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save(new_figure(1, 1), [f"{folder}/a.png", f"{folder}/a.pdf"])
    ...     sorted(p.name for p in Path(folder).iterdir())
    ['a.pdf', 'a.png']
    """
    import matplotlib as mpl

    paths = [] if path is None else [path] if isinstance(path, str | os.PathLike) else list(path)
    undated = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    for target in map(Path, paths):
        kind = target.suffix.lower()
        if kind not in undated:
            raise ConfigurationError(f"{target.name!r}: a figure's name ends in one of {', '.join(undated)}.")
        file = io.BytesIO()
        # Type 42 keeps text as text, which print shops and screen readers want.
        with mpl.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "axiograd"}), warnings.catch_warnings():
            # Names have letters that the font lacks; it draws boxes for them, and the page has the names.
            warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
            figure.savefig(file, format=kind[1:], dpi=dpi, metadata=undated[kind])
        write_atomically(target, file.getvalue())
    return figure
