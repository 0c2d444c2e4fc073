"""What notebooks show: the macros of the page, with their style, and pictures instead of a script."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from axiograd.report.arrays import colour_end, data_uri, in_windows, to_array, to_image, to_map, window_for
from axiograd.report.charts import bars, labelled, overview
from axiograd.report.colours import colour
from axiograd.report.templates import fragment

_SHOWN = 8
_BARS = 10
_IMAGES, _TABLE = 4, 2


def certificate_html(certificate: Any) -> str:
    """The verdict in a sentence, and a table of the violations.

    >>> import torch, axiograd
    >>> "homogeneous in x of degree 1" in certificate_html(axiograd.certify(torch.nn.ReLU(), torch.ones(1, 2)))
    True
    """
    return fragment("certificate", certificate)


def explanation_html(explanation: Any) -> str:
    """The method, its baseline and target, and a small picture of the first samples.

    >>> import torch, axiograd
    >>> explanation = axiograd.InputXGradient(torch.nn.Linear(2, 1)).explain(torch.ones(3, 2), target=0)
    >>> "InputXGradient" in explanation_html(explanation)
    True
    """
    facts = {
        "method": explanation.method or "attribution",
        "baseline": explanation.baseline,
        "target": _target(explanation.target),
        "outputs": _shapes(explanation.outputs),
        "attributions": _shapes(explanation.attributions),
    }
    if explanation.energy is not None:
        facts["energy part"] = f"{float(explanation.energy.mean()):.0%} of the scores, for the network is lifted"
    # "all" puts one attribution per output first; the picture is of the first output.
    every = isinstance(explanation.target, str)
    images = _parts(explanation.inputs)
    parts = _parts(explanation.attributions).items()
    drawn = [_part(name, **_draw(part[0] if every else part, images.get(name))) for name, part in parts]
    return fragment("explanation", facts, drawn)


def table_explanation_html(explanation: Any) -> str:
    """What they are, all rows at a glance, and the first rows, each as a waterfall from the base to the score."""
    cells = explanation.schema.shown(explanation.data)
    parts = []
    for i, name in enumerate(explanation.attributions.index[:_SHOWN]):
        numbers = explanation.attributions.iloc[i].to_numpy()
        labels = labelled(explanation.schema.names, cells[i], len(numbers))
        waterfall = bars(labels, numbers, top=5, base=float(explanation.base.iloc[i]))
        parts.append(_part(f"{name}: {explanation.target[i]}", bars=waterfall))
    facts = {"method": explanation.method, "baseline": explanation.baseline, "these are": explanation.kind}
    page = fragment("explanation", facts, parts, _rest(len(explanation.attributions)))
    if len(explanation.attributions) <= _SHOWN:
        return page
    return fragment("beeswarm", overview(explanation.schema.names, explanation.attributions.to_numpy(), cells)) + page


def axiom_report_html(report: Any) -> str:
    """A row per axiom: whether it holds, the largest violation, and the counterexample."""
    return fragment("axioms", report)


def conversion_html(conversion: Any) -> str:
    """What was changed, kind by kind, and the certificate."""
    return fragment("text_block", conversion, None) + certificate_html(conversion.certificate)


def result_html(result: Any) -> str:
    """A result whose text says it all."""
    return fragment("text_block", result, getattr(result, "ok", None))


def _target(target: Any) -> str:
    if isinstance(target, Tensor):
        return str(target.tolist()) if target.numel() <= _SHOWN else f"{target.numel()} targets"
    return getattr(target, "__name__", None) or str(target)


def _parts(values: Any) -> dict[str, Tensor]:
    if isinstance(values, Mapping):
        return {str(k): v for k, v in values.items() if isinstance(v, Tensor)}
    if isinstance(values, tuple | list):
        return {f"input {i}": v for i, v in enumerate(values) if isinstance(v, Tensor)}
    return {"": values} if isinstance(values, Tensor) else {}


def _shapes(values: Any) -> str:
    parts = [f"{name} {tuple(v.shape)}".strip() for name, v in _parts(values).items()]
    return ", ".join(parts) or type(values).__name__


def _part(name: str, *, pictures: Any = (), bars: Any = (), note: str = "") -> dict[str, Any]:
    return {"name": name, "pictures": pictures, "bars": bars, "note": note}


def _draw(attribution: Tensor, image: Tensor | None) -> dict[str, Any]:
    if not attribution.numel() or not attribution.isfinite().all():
        return {"note": "empty, or with NaN or Inf: not drawn"}
    if attribution.dim() == _IMAGES:
        return _maps(attribution, image)
    if attribution.dim() == _TABLE:
        means = np.abs(to_array(attribution)).mean(0)
        return {"bars": bars(labelled(None, None, means.size), means, top=_BARS), "note": "mean |attribution|"}
    return {}


def _maps(attribution: Tensor, given: Tensor | None) -> dict[str, Any]:
    """Each map, beside the image that it is of where that can be shown."""
    window = window_for(attribution.shape, None)
    paired = given is not None and given.shape == attribution.shape and given.shape[1] in {1, 3}
    pictures = []
    for i, sample in enumerate(attribution[:_SHOWN]):
        values = in_windows(to_map(sample), window)
        end = colour_end([values])
        if paired and given is not None and bool(given[i].isfinite().all()):
            pictures.append((data_uri(to_image(given[i])), "the input"))
        pictures.append((data_uri(colour(values / end) / 255), f"colours end at ±{end:.3g}"))
    sums = f", sums over {window} × {window} pixels" if window > 1 else ""
    return {
        "pictures": pictures,
        "note": f"sum over channels, each map in its own colours{sums}{_rest(len(attribution))}",
    }


def _rest(count: int) -> str:
    return f", first {_SHOWN} of {count}" if count > _SHOWN else ""
