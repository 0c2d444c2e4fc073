"""`str(certificate)`: plain text that reads like a page, not like a log."""

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from axiograd.homogeneity.certificate import Certificate, Violation

WIDTH = 100


def render(certificate: "Certificate") -> str:
    verdict, *facts = summary(certificate)
    lines = [verdict, "", *facts]
    if certificate.violations:
        lines += [""]
        for index, violation in enumerate(certificate.violations, start=1):
            lines += _violation(index, violation)
    return "\n".join(lines).rstrip()


def summary(certificate: "Certificate") -> list[str]:
    """The verdict, and then the facts that it rests on, without the violations."""
    return [_verdict(certificate), *_facts(certificate)]


def grouped(violations: Sequence[Any]) -> list[list[Any]]:
    """Violations of one kind together: the same operator, reason and remedy, but for the module they are in.

    >>> from types import SimpleNamespace as Some
    >>> one, two = (Some(module=m, op="linear", reason=f"Adds `{m}.bias`.", fix="") for m in ("a.0", "a.2"))
    >>> [len(group) for group in grouped([one, two, Some(module="b", op="tanh", reason="Bends.", fix="")])]
    [2, 1]
    """
    groups: dict[tuple[str, ...], list[Any]] = {}
    for each in violations:
        module = str(each.module or "")
        own = re.compile(rf"(?<![\w.]){re.escape(module)}\.(?=\w)") if module else None
        words = [str(part) if own is None else own.sub("", str(part)) for part in (each.reason, each.fix)]
        groups.setdefault((str(each.op), *words), []).append(each)
    return list(groups.values())


def _verdict(certificate: "Certificate") -> str:
    name = certificate.model
    point = "x − b" if certificate.baseline else "x"
    if certificate.ok:
        holds = "exactly" if certificate.exact else "up to its epsilons"
        if certificate.error:
            holds += f" (single attributions are off by {certificate.error:.2g} of the largest at this scale)"
        return f"{name} is homogeneous in {point} of degree {certificate.degree:g}, {holds}."
    count = len(certificate.violations)
    noun = "violation" if count == 1 else "violations"
    return f"{name} is not certified as homogeneous in {point} of a degree k ≥ 1: {count} {noun}."


def _facts(certificate: "Certificate") -> list[str]:
    rows = [("mode", certificate.mode)]
    rows += [("input", text) for text in certificate.inputs]
    if certificate.dynamic:
        rows.append(("any size", ", ".join(certificate.dynamic)))
    degrees = certificate.degrees
    if len(degrees) > 1 or (degrees and not certificate.ok):
        rows.append(("degrees", ", ".join(_degree(d) for d in degrees)))
    rows += [
        (
            "epsilon",
            f"{e.size:g} in {e.op} of {e.module or 'the model'}{f' ({e.source})' if e.source else ''}",
        )
        for e in certificate.epsilons
    ]
    rows += [("assuming", text) for text in certificate.assumptions]
    lines = []
    previous = ""
    for label, text in rows:
        shown = "" if label == previous else label
        lines += textwrap.wrap(text, WIDTH, initial_indent=f"  {shown:<10}", subsequent_indent=" " * 12)
        previous = label
    return lines


def _degree(degree: float | None) -> str:
    if degree is None:
        return "none"
    return "any (zero)" if degree == float("inf") else f"{degree:g}"


def _violation(index: int, violation: "Violation") -> list[str]:
    place = violation.module or "(model)"
    head = f"{index:>3}. {place}  ·  {violation.op}"
    if violation.source:
        head += f"  ·  {violation.source}"
    lines = [head]
    if violation.code:
        lines.append(f"       > {violation.code}")
    lines += textwrap.wrap(violation.reason, WIDTH, initial_indent=" " * 5, subsequent_indent=" " * 5)
    lines += textwrap.wrap(violation.fix, WIDTH, initial_indent="     fix: ", subsequent_indent=" " * 10)
    lines.append("")
    return lines
