"""Heatmaps of image attributions: one, a grid of them, or several methods side by side."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from axiograd.errors import ConfigurationError, InputError
from axiograd.report import canvas
from axiograd.report.arrays import (
    CLIP,
    Array,
    Channels,
    Limit,
    in_windows,
    separate,
    to_image,
    to_maps,
    window_for,
)
from axiograd.report.colours import colour, matplotlib_map

Kind: TypeAlias = Literal["signed", "positive", "overlay"]
Scale: TypeAlias = Literal["shared", "per-image"]

_WIDEST = 6


def overlay(values: Array, image: Array, limit: float) -> Array:
    """The grey image with each pixel tinted as strongly as its attribution is large.

    >>> overlay(np.zeros((1, 1)), np.full((1, 1, 3), 0.5), 1.0).tolist()
    [[[0.5, 0.5, 0.5]]]
    """
    strength = np.minimum(np.abs(values) / limit, 1)
    # The middle of each half of the map: its dark ends would vanish on a dark image.
    tint = colour(np.sign(values) * 0.5) / 255
    opacity = strength[..., None]
    grey = image.mean(-1, keepdims=True)
    return np.asarray((1 - opacity) * grey + opacity * tint, dtype=np.float64)


def heatmap(
    attribution: Any,
    image: Any = None,
    *,
    kind: Kind = "signed",
    scale: Scale = "shared",
    clip: float = CLIP,
    channels: Channels = "sum",
    pool: int | None = None,
    titles: Sequence[str] = (),
    title: str | None = None,
    note: str = "",
    columns: int | None = None,
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
    _check(kind, scale)
    maps = to_maps(attribution, channels)
    window = window_for(maps[0].shape, pool)
    maps = [in_windows(values, window) for values in maps]
    images = _images(image, maps)
    if kind == "overlay" and images is None:
        raise ConfigurationError("kind='overlay' tints an image: pass image=…, or use kind='signed'.")
    if titles and len(titles) != len(maps):
        raise InputError(f"{len(titles)} titles for {len(maps)} attributions: expected one each.")
    paired = images is not None and kind != "overlay"
    per_row = (2 if paired else 1) * (columns or min(len(maps), _WIDEST // 2 if paired else _WIDEST))
    rows = math.ceil(len(maps) * (2 if paired else 1) / per_row)
    figure, axes = _grid(rows, per_row, maps[0].shape, title)
    limits = _limits([maps], clip, scale, kind)
    flat = list(axes.ravel())
    for index, values in enumerate(maps):
        name = titles[index] if titles else ""
        if paired and images is not None:
            flat[2 * index].imshow(images[index], interpolation="nearest")
            canvas.title_axes(flat[2 * index], name)
            name = ""
        limit = limits[index]
        shown = flat[2 * index + 1 if paired else index]
        _draw(shown, values, None if images is None else images[index], limit.value, kind)
        canvas.title_axes(shown, _panel_title(name, limit, scale))
    for unused in flat[len(maps) * (2 if paired else 1) :]:
        unused.set_visible(False)
    used = [a for a in flat if a.get_visible()]
    notes = [f"sums over {window} × {window} pixels" if window > 1 else "", note]
    _finish(figure, used, limits, kind=kind, scale=scale, channels=channels, title=title, notes=notes)
    return canvas.save(figure, path)


def compare(
    image: Any,
    attributions: Mapping[str, Any],
    *,
    kind: Kind = "signed",
    scale: Scale = "per-image",
    clip: float = CLIP,
    channels: Channels = "sum",
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
    _check(kind, scale)
    if not attributions:
        raise InputError("compare needs at least one method: {'X-Gradient': attribution, …}.")
    columns = [to_maps(a, channels) for a in attributions.values()]
    window = window_for(columns[0][0].shape, pool)
    columns = [[in_windows(values, window) for values in maps] for maps in columns]
    images = _images(image, columns[0])
    if images is None or any(len(c) != len(images) for c in columns):
        raise InputError(
            f"{[len(c) for c in columns]} attributions for {len(separate(image))} images: one each, please."
        )
    figure, axes = _grid(len(images), 1 + len(columns), columns[0][0].shape, title)
    limits = _limits(columns, clip, scale, kind)
    for row, picture in enumerate(images):
        axes[row, 0].imshow(picture, interpolation="nearest")
        if titles:
            canvas.write_text(axes[row, 0].set_ylabel(titles[row], fontsize=canvas.NORMAL, color=canvas.INK))
        for column, maps in enumerate(columns):
            limit = limits[column * len(images) + row]
            _draw(axes[row, column + 1], maps[row], picture, limit.value, kind)
            if scale == "per-image":
                label = axes[row, column + 1].set_xlabel(_end(limit), fontsize=canvas.SMALL, color=canvas.QUIET)
                label.set_parse_math(False)
    for column, name in enumerate(["image", *attributions]):
        canvas.title_axes(axes[0, column], name)
    notes = [f"sums over {window} × {window} pixels" if window > 1 else "", note]
    used = list(axes.ravel())
    _finish(figure, used, limits, kind=kind, scale=scale, channels=channels, title=title, notes=notes)
    return canvas.save(figure, path)


def before_after(
    image: Any, before: Any, after: Any, *, names: tuple[str, str] = ("before", "after"), **options: Any
) -> Any:
    """Image, attribution before, attribution after; options as in `compare`.

    >>> import torch
    >>> x = torch.rand(3, 3, 8, 8)
    >>> len(before_after(x, x, -x).axes)
    10
    """
    return compare(image, {names[0]: before, names[1]: after}, **options)


#: Inches of a panel by their number: few panels can be large.
_SIDES = {1: 3.0, 2: 2.6, 3: 2.4, 4: 2.0}
_SMALL_SIDE = 1.55


def _check(kind: str, scale: str) -> None:
    if kind not in {"signed", "positive", "overlay"}:
        raise ConfigurationError(f"kind={kind!r}: expected 'signed', 'positive' or 'overlay'.")
    if scale not in {"shared", "per-image"}:
        raise ConfigurationError(f"scale={scale!r}: expected 'shared' or 'per-image'.")


def _images(image: Any, maps: Sequence[Array]) -> list[Array] | None:
    if image is None:
        return None
    images = [to_image(i) for i in separate(image)]
    if len(images) != len(maps):
        raise InputError(f"{len(maps)} attributions for {len(images)} images: expected one each.")
    for picture, values in zip(images, maps, strict=True):
        if picture.shape[:2] != values.shape:
            raise InputError(f"Attribution of {values.shape} for an image of {picture.shape[:2]} pixels.")
    return images


def _limits(columns: Sequence[Sequence[Array]], clip: float, scale: str, kind: str) -> list[Limit]:
    maps = [m for column in columns for m in column]
    positive_only = kind == "positive"
    if scale == "shared":
        return [Limit.of(maps, clip, positive_only=positive_only)] * len(maps)
    return [Limit.of([m], clip, positive_only=positive_only) for m in maps]


def _grid(rows: int, columns: int, shape: tuple[int, ...], title: str | None) -> tuple[Any, Any]:
    side = _SIDES.get(rows * columns, _SMALL_SIDE)
    ratio = min(max(shape[0] / shape[1], 0.25), 4.0)
    width = max(columns * side + 0.8, 3.4)
    above = canvas.TITLE_LINE * len(canvas.title_lines(title, width))
    figure = canvas.new_figure(width, max(rows * (0.93 * side * ratio + 0.24) + 0.4, 1.8) + above)
    axes = figure.subplots(rows, columns, squeeze=False)
    for each in axes.ravel():
        canvas.picture_axes(each)
    return figure, axes


def _colours(kind: Kind) -> Any:
    """What the colour bar shows; for an overlay, the tint on an image of middle grey."""
    if kind != "overlay":
        return matplotlib_map(positive_only=kind == "positive")
    from matplotlib.colors import ListedColormap

    values = np.linspace(-1, 1, 511)[None]
    return ListedColormap(overlay(values, np.full((1, 511, 3), 0.5), 1.0)[0])


def _draw(axes: Any, values: Array, image: Array | None, limit: float, kind: Kind) -> None:
    if kind == "overlay" and image is not None:
        axes.imshow(overlay(values, image, limit), interpolation="nearest")
    else:
        low = 0.0 if kind == "positive" else -limit
        axes.imshow(values, cmap=_colours(kind), vmin=low, vmax=limit, interpolation="nearest")


def _end(limit: Limit) -> str:
    return "all zero" if limit.largest == 0 else f"±{limit.value:.2g}"


def _panel_title(name: str, limit: Limit, scale: str) -> str:
    return " ".join(part for part in (name, _end(limit) if scale == "per-image" else "") if part)


def _finish(
    figure: Any,
    axes: list[Any],
    limits: Sequence[Limit],
    *,
    kind: Kind,
    scale: str,
    channels: str,
    title: str | None,
    notes: Sequence[str],
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    limit = limits[0]
    end = limit.value if scale == "shared" else 1.0
    mappable = ScalarMappable(Normalize(0 if kind == "positive" else -end, end), _colours(kind))
    clips = any(each.clips for each in limits)
    arrow = ("max" if kind == "positive" else "both") if clips else "neither"
    bar = figure.colorbar(mappable, ax=axes, fraction=0.05, pad=0.02, aspect=28, shrink=0.92, extend=arrow)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=canvas.SMALL, colors=canvas.QUIET, length=2)
    label = "attribution" if scale == "shared" else "attribution / end of its colours"
    bar.set_label(label, fontsize=canvas.SMALL, color=canvas.INK)
    ends = (
        str(limit)
        if scale == "shared"
        else f"each map has its own colours, ending at its ±value ({limit.clip:g}th percentile)"
    )
    hidden = "negative values not shown" if kind == "positive" else ""
    canvas.title_figure(figure, title)
    canvas.note_figure(figure, [f"{channels} over channels", *notes, ends, hidden])
