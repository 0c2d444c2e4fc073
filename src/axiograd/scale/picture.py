"""A comparison as a picture: where attribution was, where it is, and where the difference is more than noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axiograd.report import canvas
from axiograd.report.colours import matplotlib_map
from axiograd.scale.comparison import Comparison

#: Bars of a comparison without pictures.
_BARS = 16


def comparison_plot(comparison: Comparison, *, path: canvas.Destination = None) -> Any:
    """Three maps of windows with what changed outlined, or bars for the numbers of a table's rows."""
    maps = comparison.maps
    figure = _maps(*maps, comparison.alpha) if maps is not None and maps[0].shape[0] > 1 else _bars(comparison)
    verdict = "changed" if comparison.changed else "no change"
    canvas.title_figure(figure, f"{verdict}, p = {comparison.p:.2g}")
    rows = f"{comparison.rows[0]:,} rows against {comparison.rows[1]:,}"
    tested = f"{len(comparison.changes)} numbers tested together, false alarms at most {comparison.alpha:.2g}"
    canvas.note_figure(figure, [rows, tested])
    return canvas.save(figure, path)


def _maps(before: NDArray[Any], after: NDArray[Any], p: NDArray[Any], alpha: float) -> Any:
    from matplotlib.patches import Rectangle

    figure = canvas.new_figure(8.0, 3.4)
    axes = figure.subplots(1, 3)
    common = max(float(before.max()), float(after.max())) or 1.0
    difference = after - before
    own = float(np.abs(difference).max()) or 1.0
    panels = (
        ("before: share of magnitude", before, 0.0, common),
        ("after", after, 0.0, common),
        ("after − before", difference, -own, own),
    )
    for place, (title, values, low, high) in zip(axes, panels, strict=True):
        colours = matplotlib_map(positive_only=low == 0)
        drawn = place.imshow(values, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
        canvas.picture_axes(place)
        canvas.title_axes(place, title)
        bar = figure.colorbar(drawn, ax=place, orientation="horizontal", shrink=0.8, pad=0.03, ticks=[low, 0, high])
        bar.ax.set_xticklabels([f"{v:.2g}" for v in (low, 0.0, high)], fontsize=canvas.SMALL, color=canvas.QUIET)
        bar.outline.set_visible(False)
    for y, x in np.argwhere(p <= alpha):
        axes[2].add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=canvas.INK, linewidth=0.9))
    return figure


def _bars(comparison: Comparison) -> Any:
    """The clearest changes, most first; those called changed in full colour."""
    shown = comparison.changes[:_BARS]
    figure = canvas.new_figure(6.4, 1.2 + 0.24 * max(len(shown), 3))
    axes = figure.subplots()
    places = np.arange(len(shown))
    colours = ["#135fa7" if change.p <= comparison.alpha else canvas.RULE for change in shown]
    axes.barh(places, [change.t for change in shown], color=colours, height=0.7)
    axes.set_yticks(places, [f"{change.kind} {change.name}" for change in shown], fontsize=canvas.SMALL)
    for text in axes.get_yticklabels():
        canvas.write_text(text)
    axes.invert_yaxis()
    axes.axvline(0, color=canvas.QUIET, linewidth=0.6)
    canvas.plain_chart(axes, "t of after − before")
    return figure
