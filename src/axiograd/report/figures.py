"""Figures: heat maps of images, one, a grid, or several methods side by side; and bars of features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from axiograd.errors import ConfigurationError, InputError
from axiograd.report import canvas
from axiograd.report.arrays import (
    Array,
    colour_end,
    in_windows,
    separate,
    to_array,
    to_image,
    to_map,
    window_for,
)
from axiograd.report.charts import labelled, largest_first, plain
from axiograd.report.colours import CLIP, NEGATIVE, POSITIVE, matplotlib_map, overlay

Kind: TypeAlias = Literal["signed", "positive", "overlay"]
Scale: TypeAlias = Literal["shared", "per-image"]

_WIDEST = 6
#: Inches of a panel by their number: few panels can be large.
_SIDES = {1: 3.0, 2: 2.6, 3: 2.4, 4: 2.0}
_SMALL_SIDE = 1.55


@dataclass
class _Panel:
    """An image alone, or a map, which may lie over its image."""

    values: Array | None
    image: Array | None = None
    above: str = ""
    beside: str = ""


def heatmap(
    attribution: Any,
    image: Any = None,
    *,
    kind: Kind = "signed",
    scale: Scale = "shared",
    clip: float = CLIP,
    pool: int | None = None,
    titles: Sequence[str] = (),
    title: str | None = None,
    note: str = "",
    path: canvas.Destination = None,
) -> Any:
    """Attributions as colours, blue below zero and orange above, with one colour bar; a batch becomes a grid.

    ``attribution`` is [height, width], [channels, height, width], a batch of the latter, or a sequence. "signed" and
    "positive" show the map (with the image beside it where given), "overlay" tints the grey image with it. ``pool``
    sums over windows of so many pixels, which keeps the total: by default 8 for photos, 1 for small images.

    >>> import torch
    >>> figure = heatmap(torch.randn(4, 3, 8, 8), titles=["a", "b", "c", "d"])
    >>> len(figure.axes)  # four maps and their colour bar
    5
    """
    maps, window = _windowed(attribution, pool)
    images = None if image is None else _images(image, maps)
    if kind == "overlay" and images is None:
        raise ConfigurationError("kind='overlay' tints an image: pass image=…, or use kind='signed'.")
    if titles and len(titles) != len(maps):
        raise InputError(f"{len(titles)} titles for {len(maps)} attributions: expected one each.")
    names = list(titles) or [""] * len(maps)
    paired = images is not None and kind != "overlay"
    panels: list[_Panel] = []
    for i, (values, name) in enumerate(zip(maps, names, strict=True)):
        picture = None if images is None else images[i]
        panels += [_Panel(None, picture, name), _Panel(values)] if paired else [_Panel(values, picture, name)]
    wide = (2 if paired else 1) * min(len(maps), _WIDEST // 2 if paired else _WIDEST)
    rows = [panels[start : start + wide] for start in range(0, len(panels), wide)]
    return canvas.save(_figure(rows, kind, scale, clip, title, [_how(window), note]), path)


def compare(
    image: Any,
    attributions: Mapping[str, Any],
    *,
    kind: Kind = "signed",
    scale: Scale = "per-image",
    clip: float = CLIP,
    pool: int | None = None,
    titles: Sequence[str] = (),
    title: str | None = None,
    note: str = "",
    path: canvas.Destination = None,
) -> Any:
    """One row per sample: the image, then its attribution by each method; ``pool`` as in `heatmap`.

    >>> import torch
    >>> x = torch.rand(2, 1, 8, 8)
    >>> figure = compare(x, {"X-Gradient": x, "Random": torch.randn_like(x)}, titles=["cat", "dog"])
    >>> len(figure.axes)
    7
    """
    if not attributions:
        raise InputError("compare needs at least one method: {'X-Gradient': attribution, …}.")
    columns = {name: _windowed(values, pool) for name, values in attributions.items()}
    window = next(iter(columns.values()))[1]
    rows: list[list[_Panel]] = []
    for name, (maps, _) in columns.items():
        images = _images(image, maps)
        if not rows:
            beside = list(titles) or [""] * len(images)
            rows = [[_Panel(None, each, "image", label)] for each, label in zip(images, beside, strict=True)]
        for row, values, picture in zip(rows, maps, images, strict=True):
            row.append(_Panel(values, picture, name))
    for row in rows[1:]:
        for panel in row:
            panel.above = ""
    return canvas.save(_figure(rows, kind, scale, clip, title, [_how(window), note]), path)


def _windowed(attribution: Any, pool: int | None) -> tuple[list[Array], int]:
    maps = [to_map(values) for values in separate(attribution)]
    window = window_for(maps[0].shape, pool)
    return [in_windows(values, window) for values in maps], window


def _how(window: int) -> str:
    return "sum over channels" + (f" · sums over {window} × {window} pixels" if window > 1 else "")


def _images(image: Any, maps: Sequence[Array]) -> list[Array]:
    images = [to_image(each) for each in separate(image)]
    if len(images) != len(maps):
        raise InputError(f"{len(maps)} attributions for {len(images)} images: expected one each.")
    for picture, values in zip(images, maps, strict=True):
        if picture.shape[:2] != values.shape:
            raise InputError(f"Attribution of {values.shape} for an image of {picture.shape[:2]} pixels.")
    return images


def _figure(
    rows: list[list[_Panel]], kind: Kind, scale: Scale, clip: float, title: str | None, notes: Sequence[str]
) -> Any:
    if kind not in {"signed", "positive", "overlay"}:
        raise ConfigurationError(f"kind={kind!r}: expected 'signed', 'positive' or 'overlay'.")
    if scale not in {"shared", "per-image"}:
        raise ConfigurationError(f"scale={scale!r}: expected 'shared' or 'per-image'.")
    maps = [panel.values for row in rows for panel in row if panel.values is not None]
    own, positive = scale == "per-image", kind == "positive"
    common = colour_end(maps, clip, positive_only=positive)
    shape = maps[0].shape
    side = _SIDES.get(len(rows) * len(rows[0]), _SMALL_SIDE)
    ratio = min(max(shape[0] / shape[1], 0.25), 4.0)
    width = max(len(rows[0]) * side + 0.8, 3.4)
    above = canvas.TITLE_LINE * len(canvas.title_lines(title, width))
    figure = canvas.new_figure(width, max(len(rows) * (0.93 * side * ratio + 0.24) + 0.4, 1.8) + above)
    axes = figure.subplots(len(rows), len(rows[0]), squeeze=False)
    for places, row in zip(axes, rows, strict=True):
        for place, panel in zip(places, row, strict=False):
            canvas.picture_axes(place)
            canvas.title_axes(place, panel.above)
            canvas.write_text(place.set_ylabel(panel.beside, fontsize=canvas.NORMAL, color=canvas.INK))
            if panel.values is None:
                place.imshow(panel.image, interpolation="nearest")
                continue
            end = colour_end([panel.values], clip, positive_only=positive) if own else common
            _draw(place, panel.values, panel.image, end, kind)
            if own:
                words = f"±{end:.2g}" if panel.values.any() else "all zero"
                canvas.write_text(place.set_xlabel(words, fontsize=canvas.SMALL, color=canvas.QUIET))
        for place in places[len(row) :]:
            place.set_visible(False)
    _colour_bar(figure, axes, None if own else common, kind, clips=clip < 100)  # noqa: PLR2004  # percent
    ends = "each map has its own colours, ending at its ±value" if own else f"colours end at ±{common:.3g}"
    ends += f" ({clip:g}th percentile)"
    canvas.title_figure(figure, title)
    canvas.note_figure(figure, [*notes, ends, "negative values not shown" if positive else ""])
    return figure


def _draw(axes: Any, values: Array, image: Array | None, limit: float, kind: Kind) -> None:
    if kind == "overlay" and image is not None:
        axes.imshow(overlay(values / limit, image), interpolation="nearest")
    else:
        low = 0.0 if kind == "positive" else -limit
        axes.imshow(values, cmap=_colours(kind), vmin=low, vmax=limit, interpolation="nearest")


def _colours(kind: Kind) -> Any:
    """What the colour bar shows: exactly what is drawn; for an overlay, the tint on an image of middle grey."""
    if kind != "overlay":
        return matplotlib_map(positive_only=kind == "positive")
    from matplotlib.colors import ListedColormap

    return ListedColormap(overlay(np.linspace(-1, 1, 511)[None], np.full((1, 511, 3), 0.5))[0])


def _colour_bar(figure: Any, axes: Any, end: float | None, kind: Kind, *, clips: bool) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    high = 1.0 if end is None else end
    mappable = ScalarMappable(Normalize(0 if kind == "positive" else -high, high), _colours(kind))
    arrow = ("max" if kind == "positive" else "both") if clips else "neither"
    used = [place for place in axes.ravel() if place.get_visible()]
    bar = figure.colorbar(mappable, ax=used, fraction=0.05, pad=0.02, aspect=28, shrink=0.92, extend=arrow)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=canvas.SMALL, colors=canvas.QUIET, length=2)
    label = "attribution" if end is not None else "attribution / end of its colours"
    bar.set_label(label, fontsize=canvas.SMALL, color=canvas.INK)


def feature_bars(
    attribution: Any,
    names: Sequence[str] | None = None,
    *,
    values: Any = None,
    top: int = 15,
    title: str | None = None,
    note: str = "",
    path: canvas.Destination = None,
) -> Any:
    """One bar per feature, the largest first; of a batch [batch, features], the mean of |attribution|.

    ``values`` are numbers, or words. What does not fit into ``top`` bars is added up in a last one.

    >>> import torch
    >>> figure = feature_bars(torch.tensor([0.5, -2.0, 0.1]), ["age", "income", "height"], top=2)
    >>> [t.get_text() for t in figure.axes[0].get_yticklabels()]
    ['income', 'age', '1 other']
    """
    array = to_array(attribution)
    averaged = array.ndim > 1
    numbers = np.abs(array).reshape(len(array), -1).mean(0) if averaged else np.atleast_1d(array)
    ticks, shown = largest_first(labelled(names, None if averaged else values, numbers.size), numbers, top)
    figure = canvas.new_figure(5.4, 0.9 + 0.24 * max(len(shown), 3))
    axes = figure.subplots()
    places = np.arange(len(shown))
    bars = axes.barh(places, shown, height=0.68, color=[POSITIVE if v >= 0 else NEGATIVE for v in shown])
    if len(numbers) > top:
        bars[-1].set_alpha(0.45)
    axes.set_ylim(max(len(shown), 3) - 0.4, -0.6)
    axes.set_yticks(places, ticks)
    for tick in axes.get_yticklabels():
        canvas.write_text(tick)
    axes.axvline(0, color=canvas.QUIET, linewidth=0.7)
    canvas.plain_chart(axes, "mean |attribution|" if averaged else "attribution")
    axes.tick_params(axis="y", labelsize=canvas.NORMAL, labelcolor=canvas.INK, length=0)
    words = [plain(value, signed=not averaged) for value in shown]
    axes.bar_label(bars, words, padding=3, fontsize=canvas.SMALL, color=canvas.QUIET)
    axes.margins(x=0.3)  # for the numbers, also where long names leave little width
    canvas.title_figure(figure, title)
    canvas.note_figure(figure, [f"mean over {len(array)} samples" if averaged else "", note])
    return canvas.save(figure, path)
