"""What `certify` returns: the proof, or every violation; as an object, as text and as JSON."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from axiograd._notebook import shown_by

#: Columns of the text.
WIDTH = 100


@dataclass(frozen=True)
class Violation:
    """One place where homogeneity is lost, reported at its origin."""

    #: Path of the module, as in `model.named_modules()`; "" is the model itself.
    module: str
    #: Operator, e.g. "aten.gelu".
    op: str
    #: "file.py:12" in the user's code, "" where there is none.
    source: str
    reason: str
    fix: str
    #: bias, constant, degrees, activation, normalisation, attention, rounding, comparison, gradient, rule,
    #: random, export, output, refuted.
    kind: str = ""
    #: Text of the user's line.
    code: str = ""
    #: Names of the parameters or buffers that offend, e.g. ("fc.bias",).
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Epsilon:
    """A small constant that keeps a divisor from zero, up to which the degree holds."""

    module: str
    op: str
    source: str
    size: float


@dataclass(frozen=True)
class Certificate:
    """Whether F(αx) = αᵏF(x) for every α > 0, with the degree k or the reasons against it.

    >>> import torch, axiograd.homogeneity as h
    >>> certificate = h.certify(torch.nn.Linear(3, 2, bias=False), torch.ones(4, 3))
    >>> certificate.ok, certificate.degree, certificate.exact
    (True, 1.0, True)
    """

    ok: bool
    #: The one degree of all floating-point outputs, or None.
    degree: float | None
    #: Per output leaf: its degree, inf for one that is identically zero (every degree), None if it has none.
    degrees: tuple[float | None, ...]
    exact: bool
    violations: tuple[Violation, ...]
    epsilons: tuple[Epsilon, ...] = ()
    #: What the proof takes as given.
    assumptions: tuple[str, ...] = ()
    model: str = ""
    mode: str = ""
    #: One line per input: name, dtype, shape, and whether it scales.
    inputs: tuple[str, ...] = ()
    #: Dimensions that the proof holds for at any size, e.g. "x[0] ≥ 2".
    dynamic: tuple[str, ...] = ()
    baseline: bool = False
    #: F is affine in x while its gates (ReLU signs, pooling winners, dropout masks) are held; biases are allowed.
    piecewise_linear: bool = False
    #: What spoils it: operators that are neither linear in x nor gates.
    not_piecewise_linear: tuple[Violation, ...] = ()
    #: How far single attributions are from Integrated Gradients at the example's scale, relative to the largest: 0 if
    #: `exact`, None where it was not measured.
    error: float | None = None
    #: Trainable parameters that the degree is a function of; training moves it.
    trained_degree: tuple[str, ...] = ()
    nodes: int = field(default=0, compare=False)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        verdict, *facts = summary(self)
        lines = [verdict, "", *facts, ""]
        for index, violation in enumerate(self.violations, start=1):
            lines += _violation(index, violation)
        return "\n".join(lines).rstrip()

    _repr_html_ = shown_by("certificate_html")

    def to_dict(self) -> dict[str, Any]:
        """The same content as plain values; degrees may be inf."""
        return asdict(self)

    def to_json(self, *, indent: int | None = 2) -> str:
        """The same content for machines.

        >>> import torch, axiograd.homogeneity as h
        >>> certificate = h.certify(torch.nn.ReLU(), torch.ones(4, 3))
        >>> Certificate.from_json(certificate.to_json()) == certificate
        True
        """
        content = self.to_dict()
        content["degrees"] = ["any" if d == float("inf") else d for d in self.degrees]
        return json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        content = json.loads(text)
        content["degrees"] = tuple(float("inf") if d == "any" else d for d in content["degrees"])
        for key in ("violations", "not_piecewise_linear"):
            content[key] = tuple(Violation(**{**v, "parameters": tuple(v["parameters"])}) for v in content.get(key, ()))
        content["epsilons"] = tuple(Epsilon(**e) for e in content["epsilons"])
        for key in ("assumptions", "inputs", "dynamic", "trained_degree"):
            content[key] = tuple(content[key])
        return cls(**content)


def summary(certificate: Certificate) -> list[str]:
    """The verdict, then the facts behind it, without the violations."""
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
        own = re.compile(rf"(?<![\w.]){re.escape(each.module)}\.(?=\w)")
        groups.setdefault((each.op, own.sub("", each.reason), own.sub("", each.fix)), []).append(each)
    return list(groups.values())


def _verdict(certificate: Certificate) -> str:
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


def _facts(certificate: Certificate) -> list[str]:
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


def _violation(index: int, violation: Violation) -> list[str]:
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
