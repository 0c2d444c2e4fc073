"""What notebooks show for a certificate, an explanation and an axiom report: HTML that needs no style sheet."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from axiograd.homogeneity.certificate import grouped
from axiograd.report import _png
from axiograd.report._certificates import modules_markup, verdict
from axiograd.report._escape import inline, text
from axiograd.report._tables import show
from axiograd.report.arrays import Limit, in_windows, to_array, to_image, to_map, window_for
from axiograd.report.colours import colour

_QUIET = "color:gray;font-size:90%"
_CELL = "text-align:left;vertical-align:top;padding:2px 14px 2px 0"
_YES, _NO = "#2b8a57", "#cf5527"
_SHOWN = 8
_FEW = 5
_BARS = 10
_PIXELS = 96
_IMAGES, _TABLE = 4, 2
_MANY_COLUMNS = 400


def certificate_html(certificate: Any) -> str:
    """The verdict in a sentence, and a table of the violations.

    >>> from types import SimpleNamespace as Some
    >>> print(certificate_html(Some(ok=True, degree=1.0, exact=True, violations=())))
    <div><b style="color:#2b8a57">✓</b> Certified: homogeneous of degree 1, exactly.</div>
    """
    ok, sentence = verdict(certificate)
    head = f'<b style="color:{_YES if ok else _NO}">{"✓" if ok else "✗"}</b> {text(sentence)}'
    rows = [
        [
            modules_markup(group),
            f"<code>{text(group[0].op)}</code>",
            f"<code>{text(group[0].source)}</code>",
            inline(group[0].reason),
            inline(group[0].fix),
        ]
        for group in grouped(certificate.violations)
    ]
    return f"<div>{head}{_table(['module', 'operator', 'where', 'why', 'what to do'], rows)}</div>"


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
    energy = getattr(explanation, "energy", None)
    if energy is not None:
        facts["energy part"] = f"{float(energy.mean()):.0%} of the scores, for the network is lifted"
    line = " · ".join(f"{k} <b>{text(v)}</b>" for k, v in facts.items())
    # "all" puts one attribution per output first; the picture is of the first output.
    every = isinstance(explanation.target, str)
    images = _parts(getattr(explanation, "inputs", None))
    pictures = [
        _name(name) + _draw(part[0] if every else part, images.get(name))
        for name, part in _parts(explanation.attributions).items()
    ]
    return f'<div><div style="{_QUIET}">{line}</div>{"".join(pictures)}</div>'


def table_explanation_html(explanation: Any) -> str:
    """The first rows: what was attributed, and the largest attributions with the cells they belong to."""
    facts = f"method <b>{text(explanation.method)}</b> · baseline <b>{text(explanation.baseline)}</b>"
    rows = []
    cells = explanation.schema.shown(explanation.data[:_SHOWN])
    for i, name in enumerate(explanation.attributions.index[:_SHOWN]):
        values = explanation.attributions.iloc[i].to_numpy()
        order = np.argsort(-np.abs(values), kind="stable")[:_FEW]
        words = [f"{explanation.schema.names[j]} = {cells[i][j]} ({values[j]:+.3g})" for j in order]
        rows.append([text(name), text(explanation.target[i]), text(", ".join(words))])
    more = _rest(len(explanation.attributions), "the largest attributions of each row")
    return f'<div><div style="{_QUIET}">{facts}</div>{_table(["row", "target", "because of"], rows)}{more}</div>'


def axiom_report_html(report: Any) -> str:
    """A row per axiom: whether it holds, the largest violation, and the counterexample.

    >>> from types import SimpleNamespace as Some
    >>> result = Some(axiom="completeness", passed=True, violation=1e-7, tolerance=1e-4, n_cases=8, counterexample=None)
    >>> "✓ yes" in axiom_report_html(Some(method="XGradient", models="X-DNNs", seed=0, results=(result,)))
    True
    """
    rows = [
        [
            text(r.axiom),
            f'<span style="white-space:nowrap;color:{_YES if r.passed else _NO}">{show(bool(r.passed))}</span>',
            show(r.violation),
            show(r.tolerance),
            text(r.counterexample or ""),
        ]
        for r in report.results
    ]
    head = f'<b>{text(report.method)}</b> <span style="{_QUIET}">on {text(report.models)}, seed {report.seed}</span>'
    return f"<div>{head}{_table(['axiom', 'holds', 'largest violation', 'tolerance', 'counterexample'], rows)}</div>"


def _table(columns: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th style="{_CELL}">{text(c)}</th>' for c in columns)
    body = "".join("<tr>" + "".join(f'<td style="{_CELL}">{c}</td>' for c in r) + "</tr>" for r in rows)
    return f'<table style="margin:6px 0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


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


def _name(name: str) -> str:
    return f'<div style="{_QUIET}">{text(name)}</div>' if name else ""


def _draw(attribution: Tensor, image: Tensor | None = None) -> str:
    if not attribution.numel() or not attribution.isfinite().all():
        return f'<div style="{_QUIET}">empty, or with NaN or Inf: not drawn</div>'
    if attribution.dim() == _IMAGES:
        return _maps(attribution, image)
    if attribution.dim() == _TABLE and attribution.shape[1] <= _MANY_COLUMNS:
        return _bars(attribution)
    return ""


def _maps(attribution: Tensor, given: Tensor | None) -> str:
    """Each map, beside the image that it is of where that can be shown."""
    window = window_for(attribution.shape, None)
    paired = given is not None and given.shape == attribution.shape and given.shape[1] in {1, 3}
    images = []
    for i, sample in enumerate(attribution[:_SHOWN]):
        values = in_windows(to_map(sample), window)
        limit = Limit.of([values])
        uri = _png.as_uri(_png.encode(colour(values / limit.value)))
        if paired and given is not None and bool(given[i].isfinite().all()):
            images.append(_picture(_png.data_uri(to_image(given[i])), "the input"))
        images.append(_picture(uri, str(limit)))
    words = "sum over channels, each map in its own colours"
    words += f", sums over {window} × {window} pixels" if window > 1 else ""
    return f"<div>{''.join(images)}</div>{_rest(len(attribution), words)}"


def _picture(uri: str, title: str) -> str:
    return (
        f'<img src="{uri}" alt="" title="{text(title)}" width="{_PIXELS}" '
        'style="image-rendering:pixelated;display:inline-block;margin:4px 6px 0 0">'
    )


def conversion_html(conversion: Any) -> str:
    """What was changed, kind by kind, and the certificate."""
    return f"<div><pre>{text(conversion)}</pre>{certificate_html(conversion.certificate)}</div>"


def result_html(result: Any) -> str:
    """A result whose text says it all."""
    ok = getattr(result, "ok", None)
    mark = "" if ok is None else f'<b style="color:{_YES if ok else _NO}">{"✓" if ok else "✗"}</b> '
    return f"<div>{mark}<pre>{text(result)}</pre></div>"


def _bars(attribution: Tensor) -> str:
    numbers = np.abs(to_array(attribution)).mean(0)
    largest = float(numbers.max()) or 1.0
    order = np.argsort(-numbers, kind="stable")[:_BARS]
    rows = [
        [
            f"{i}",
            f'<div style="background:#ee8133;height:9px;width:{150 * numbers[i] / largest:.0f}px"></div>',
            f"{numbers[i]:.3g}",
        ]
        for i in order
    ]
    return _table(["feature", "mean |attribution|", ""], rows)


def _rest(count: int, words: str) -> str:
    more = f", first {_SHOWN} of {count}" if count > _SHOWN else ""
    return f'<div style="{_QUIET}">{text(words + more)}</div>'
