"""A certificate as HTML: the verdict, then who breaks it, where, and how to fix it."""

from collections.abc import Sequence
from typing import Any

from axiograd.homogeneity.certificate import grouped
from axiograd.report._escape import inline, text

_COLUMNS = ("module", "op", "source", "reason", "fix")


def verdict(certificate: Any) -> tuple[bool, str]:
    """Whether the model is an X-DNN, and that in a sentence."""
    count = len(certificate.violations)
    if certificate.ok:
        exact = "exactly" if certificate.exact else "up to an epsilon"
        return True, f"Certified: homogeneous of degree {certificate.degree:g}, {exact}."
    return False, f"Not certified: {count} violation{'' if count == 1 else 's'}."


def certificate_markup(name: str, certificate: Any) -> str:
    ok, sentence = verdict(certificate)
    rows = "".join(_violation(group) for group in grouped(certificate.violations))
    head = "".join(f'<th scope="col">{c}</th>' for c in ("module", "operator", "where", "why", "what to do"))
    table = (
        f'<div class="table stacks" role="region" tabindex="0" aria-label="Violations of {text(name)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        if rows
        else ""
    )
    notes = "".join(f"<li>{text(n)}</li>" for n in _notes(certificate))
    return (
        f'<div class="certificate {"yes" if ok else "no"}"><h3>{text(name)}</h3>'
        f'<p class="verdict"><span aria-hidden="true">{"✓" if ok else "✗"}</span> {text(sentence)}</p>'
        f"{table}{f'<ul class=notes>{notes}</ul>' if notes else ''}"
        f"<details><summary>As text</summary><pre>{text(certificate)}</pre></details></div>"
    )


def _notes(certificate: Any) -> list[str]:
    epsilons = [
        f"Holds up to ε = {e.size:g} in {e.op} of {e.module or 'the model'}."
        for e in getattr(certificate, "epsilons", ())
    ]
    return epsilons + [f"Assuming that {a}." for a in getattr(certificate, "assumptions", ())]


def modules_markup(group: Sequence[Any]) -> str:
    """The module, or how many there are of this kind, with all of them behind a click."""
    names = [f"<code>{text(each.module or 'the model')}</code>" for each in group]
    if len(names) == 1:
        return names[0]
    return f"<details><summary>{names[0]} and {len(names) - 1} more</summary>{'<br>'.join(names)}</details>"


def _violation(group: Sequence[Any]) -> str:
    cells = []
    for key, column in zip(_COLUMNS, ("module", "operator", "where", "why", "what to do"), strict=True):
        value = str(getattr(group[0], key, "") or "–")
        shown = f"<code>{text(value)}</code>" if key in {"op", "source"} else inline(value)
        if key == "module":
            shown = modules_markup(group)
        cells.append(f'<td data-column="{column}"><span>{shown}</span></td>')
    return f"<tr>{''.join(cells)}</tr>"
