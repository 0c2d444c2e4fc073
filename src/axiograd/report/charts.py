"""Charts: features with their names, masking curves, convergence, training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from axiograd.errors import InputError
from axiograd.report import canvas
from axiograd.report.arrays import spoken, to_array
from axiograd.report.colours import LINES

POSITIVE, NEGATIVE = "#d9691a", "#2a72b5"
_MARKERS = "osD^vPX*"


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

    ``values`` are numbers, or words. What does not fit into ``top`` bars is added up: in one last bar, or for a batch
    in the note below.

    >>> import torch
    >>> figure = feature_bars(torch.tensor([0.5, -2.0, 0.1]), ["age", "income", "height"], top=2)
    >>> [t.get_text() for t in figure.axes[0].get_yticklabels()]
    ['income', 'age', '1 other']
    """
    array = to_array(attribution)
    averaged = array.ndim > 1
    numbers = np.abs(array).reshape(len(array), -1).mean(0) if averaged else np.atleast_1d(array)
    labels = [f"feature {i}" for i in range(numbers.size)] if names is None else [str(n) for n in names]
    if len(labels) != numbers.size:
        raise InputError(f"{len(labels)} names for {numbers.size} features: expected one each.")
    if values is not None and not averaged:
        labels = [f"{n} = {v}" for n, v in zip(labels, spoken(values), strict=True)]
    order = np.argsort(-np.abs(numbers), kind="stable")
    kept, rest = order[:top], order[top:]
    others = f"{rest.size} other{'s' if rest.size > 1 else ''}" if rest.size else ""
    shown, ticks = [float(numbers[i]) for i in kept], [labels[i] for i in kept]
    if others and not averaged:
        shown, ticks = [*shown, float(numbers[rest].sum())], [*ticks, others]

    figure = canvas.new_figure(5.4, 0.9 + 0.24 * max(len(shown), 3))
    axes = figure.subplots()
    places = np.arange(len(shown))
    bars = axes.barh(places, shown, height=0.68, color=[POSITIVE if v >= 0 else NEGATIVE for v in shown])
    axes.set_ylim(-0.6, max(len(shown), 3) - 0.4)
    if others and not averaged:
        bars[-1].set_alpha(0.45)
    axes.set_yticks(places, ticks)
    for tick in axes.get_yticklabels():
        canvas.write_text(tick)
    axes.invert_yaxis()
    axes.axvline(0, color=canvas.QUIET, linewidth=0.7)
    canvas.plain_chart(axes, x_label="mean |attribution|" if averaged else "attribution", grid="x")
    axes.tick_params(axis="y", labelsize=canvas.NORMAL, labelcolor=canvas.INK, length=0)
    low, high = min(*shown, 0.0), max(*shown, 0.0)
    if low == high:
        low, high = -1.0, 1.0
    margin = 0.3 * (high - low)  # for the numbers, also where long names leave little width
    axes.set_xlim(low - (margin if low < 0 else 0), high + (margin if high > 0 else 0))
    for place, value in zip(places, shown, strict=True):
        axes.annotate(
            f"{value:.3g}" if averaged or value == 0 else f"{value:+.3g}".replace("-", "−"),
            (value, place),
            xytext=(3 if value >= 0 else -3, 0),
            textcoords="offset points",
            va="center",
            ha="left" if value >= 0 else "right",
            fontsize=canvas.SMALL,
            color=canvas.QUIET,
        )
    canvas.title_figure(figure, title)
    remainder = f"{others} add up to {numbers[rest].sum():.3g}" if others and averaged else ""
    if notes := [part for part in (f"mean over {len(array)} samples" if averaged else "", remainder, note) if part]:
        canvas.note_figure(figure, notes)
    return canvas.save(figure, path)


def masking_plot(curves: Mapping[str, Any], *, title: str | None = None, path: canvas.Destination = None) -> Any:
    """One panel per masking metric, one line per method, the area below each in its legend.

    ``curves`` is what `axiograd.metrics.masking_curves` gives, {"KPM": curve, …}, or one such mapping per method.

    >>> import torch
    >>> from axiograd.metrics import masking_curves
    >>> weights, x = torch.tensor([3.0, -2.0, 1.0]), torch.ones(1, 3)
    >>> curves = masking_curves(lambda x: x @ weights, x, x * weights, metrics=("KPM", "KNM"), masking="zero")
    >>> [axes.get_title() for axes in masking_plot({"X-Gradient": curves}).axes]
    ['KPM ↑', 'KNM ↓']
    """
    if not curves:
        raise InputError("masking_plot needs at least one curve.")
    nested = all(isinstance(c, Mapping) for c in curves.values())
    methods: Mapping[str, Mapping[str, Any]] = curves if nested else {"": curves}
    metrics = list(dict.fromkeys(m for each in methods.values() for m in each))
    figure = canvas.new_figure(max(2.5 * len(metrics) + 0.3, 3.4), 2.7)
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        for index, (method, each) in enumerate(methods.items()):
            if metric not in each:
                continue
            curve = each[metric]
            x, y = to_array(curve.fractions, "fractions"), to_array(curve.curve, "curve")
            style = LINES[index % len(LINES)]
            area = f"{float(curve.area):.2f}"
            axes.plot(
                x, y, color=style, linewidth=1.5, marker=_MARKERS[index % len(_MARKERS)], markersize=3,
                label=f"{method}  {area}" if method else f"area {area}",
            )  # fmt: skip
            error = getattr(curve, "curve_standard_error", None)
            if error is not None:
                spread = np.nan_to_num(np.asarray(error, dtype=float))
                axes.fill_between(x, y - spread, y + spread, color=style, alpha=0.15, linewidth=0)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        label = "accuracy (%)" if metric in {"KAM", "RAM"} else "target logit"
        canvas.plain_chart(axes, x_label="features kept", y_label=label)
        canvas.title_axes(axes, f"{metric} ↓" if metric in {"KNM", "RAM"} else f"{metric} ↑")
        canvas.legend(axes, handlelength=1.4)
    canvas.title_figure(figure, title)
    canvas.note_figure(figure, ["shaded: ± standard error", "arrow: the better direction"])
    return canvas.save(figure, path)


def convergence_plot(
    errors: Mapping[str, Mapping[int, float]],
    *,
    y_label: str = "mean absolute relative difference (%)",
    title: str | None = None,
    path: canvas.Destination = None,
) -> Any:
    """How far each method is from the exact attribution after so many gradients, both on logarithmic axes.

    >>> figure = convergence_plot({"Integrated Gradients": {1: 40.0, 8: 5.0, 64: 0.6}, "X-Gradient": {1: 1e-5}})
    """
    if not errors or not all(errors.values()):
        raise InputError("convergence_plot needs {'method': {gradients: error, …}, …}.")
    figure = canvas.new_figure(4.6, 3.0)
    axes = figure.subplots()
    positive = [float(e) for curve in errors.values() for e in curve.values() if e > 0]
    # A logarithmic axis has no zero: an exact answer sits on the floor.
    floor = min(positive, default=1.0) / 3
    for index, (name, curve) in enumerate(errors.items()):
        steps = sorted(curve)
        numbers = [max(float(curve[s]), floor) for s in steps]
        marker = _MARKERS[index % len(_MARKERS)]
        axes.plot(
            steps, numbers, color=LINES[index % len(LINES)], linewidth=1.5, marker=marker, markersize=4, label=name
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    canvas.plain_chart(axes, x_label="gradients computed per sample", y_label=y_label)
    canvas.legend(axes)
    canvas.title_figure(figure, title)
    if any(float(e) <= 0 for curve in errors.values() for e in curve.values()):
        canvas.note_figure(figure, ["differences of exactly zero are drawn on the floor"])
    return canvas.save(figure, path)


def training_plot(
    history: Mapping[str, Sequence[float]],
    *,
    steps: Sequence[float] | None = None,
    panels: Sequence[Sequence[str]] | None = None,
    x_label: str = "epoch",
    title: str | None = None,
    path: canvas.Destination = None,
) -> Any:
    """What a training run measured, one panel per group of quantities (by default: one each).

    >>> figure = training_plot({"task loss": [1.0, 0.5], "accuracy": [40.0, 80.0]})
    >>> [axes.get_title() for axes in figure.axes]
    ['task loss', 'accuracy']
    """
    if not history:
        raise InputError("training_plot needs {'quantity': [value per step, …], …}.")
    groups = [[name] for name in history] if panels is None else [list(p) for p in panels]
    figure = canvas.new_figure(max(2.6 * len(groups) + 0.2, 3.4), 2.4)
    drawn = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, group in zip(drawn, groups, strict=True):
        for index, name in enumerate(group):
            y = np.asarray([float(v) for v in history[name]])
            x = np.arange(1, len(y) + 1) if steps is None else np.asarray(steps, dtype=float)
            # One point has no line: show it as a mark.
            axes.plot(
                x, y, color=LINES[index % len(LINES)], linewidth=1.6, marker="o" if len(y) == 1 else None,
                markersize=4, label=name,
            )  # fmt: skip
        canvas.plain_chart(axes, x_label=x_label)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if len(group) > 1:
            canvas.legend(axes, handlelength=1.4)
        canvas.title_axes(axes, group[0] if len(group) == 1 else "")
    canvas.title_figure(figure, title)
    return canvas.save(figure, path)
