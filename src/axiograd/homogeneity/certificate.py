"""What `certify` returns: the proof, or everything that stands in its way."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from axiograd._notebook import shown_by
from axiograd.homogeneity.certificate_text import render


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
        return render(self)

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
    def from_json(cls, text: str) -> "Certificate":
        content = json.loads(text)
        content["degrees"] = tuple(float("inf") if d == "any" else d for d in content["degrees"])
        for key in ("violations", "not_piecewise_linear"):
            content[key] = tuple(Violation(**{**v, "parameters": tuple(v["parameters"])}) for v in content.get(key, ()))
        content["epsilons"] = tuple(Epsilon(**e) for e in content["epsilons"])
        for key in ("assumptions", "inputs", "dynamic", "trained_degree"):
            content[key] = tuple(content[key])
        return cls(**content)
