"""Table 1 of the paper, measured: every method against every axiom, with the paper's cell beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._extras import optional
from axiograd.attribution import (
    CaptumMethod,
    ExpectedGradients,
    Gradient,
    InputXGradient,
    IntegratedGradients,
    XGradient,
)
from axiograd.axioms.auditing import AxiomReport, audit
from axiograd.axioms.axioms import AXIOMS
from axiograd.axioms.networks import N_FEATURES

#: The paper's cells, in the order of its rows; its Definition 3.6 comes last and is claimed for X-Gradient alone.
PAPER: Mapping[str, str] = {
    "Integrated Gradients": "✓✓✓✓✓✓ ",
    "Expected Gradients": "✓✓✓✓✓✓ ",
    "Expected Gradients (1)": "✗✓✗✗✗✗ ",
    "Input×Gradient": "✗✓✓✗✓✓ ",
    "Gradient": "✗✓✓✗✓✓ ",
    "X-Gradient": "✓✓✓✓✓✓✓",
}

#: Rounding in float64: what methods without quadrature or sampling may be off by.
_ROUNDING = 1e-6
#: 512 Gauss-Legendre steps over the kinks of these networks: at most 1.1e-2 over twelve seeds.
_QUADRATURE = 2e-2
#: Networks are tiny, so that large chunks are the fastest.
_ROWS = 8192

#: What the cells that the paper does not fill mean.
NOTES: Mapping[str, str] = {
    "Integrated Gradients": "scales with the input only on X-DNNs, where it is X-Gradient.",
    "DeepLIFT": "two ways to write one function, with a bias outside or inside a ReLU, get two attributions.",
    "LRP": "Captum's default rule on ReLU networks is Input×Gradient up to its epsilon, and so are its cells.",
    "GradientShap (5)": "Captum's default of five draws: Expected Gradients that have not converged.",
}


@dataclass(frozen=True, eq=False)
class MethodColumn:
    """A method under its title, and how closely it can satisfy an axiom at all."""

    name: str
    method: Callable[..., Any]
    tolerance: float = _ROUNDING
    baselines: Tensor | None = None
    captum: bool = False

    def audit(self, **options: Any) -> AxiomReport:
        """Its column of the table; options are those of `audit`."""
        return audit(self.method, baselines=self.baselines, tolerance=self.tolerance, name=self.name, **options)


@dataclass(frozen=True, eq=False)
class Table1:
    """Reports of all methods; its text is the paper's Table 1 as measured."""

    reports: tuple[AxiomReport, ...]

    def paper(self, method: str, axiom: str) -> str:
        """The paper's cell: ✓, ✗, or "–" where it makes no claim."""
        cells = PAPER.get(method, "").ljust(len(AXIOMS))
        return cells[[a.name for a in AXIOMS].index(axiom)].replace(" ", "–")

    def __getitem__(self, method: str) -> AxiomReport:
        return next(report for report in self.reports if report.method == method)

    def differences(self) -> list[tuple[str, str]]:
        """Method and axiom of every cell that is not the paper's."""
        return [
            (report.method, result.axiom)
            for report in self.reports
            for result in report.results
            if self.paper(report.method, result.axiom) not in {"–", result.mark}
        ]

    def __str__(self) -> str:
        rows = [["", *(report.method for report in self.reports)]]
        rows += [
            [axiom.name, *(f"{r[axiom.name].mark} ({self.paper(r.method, axiom.name)})" for r in self.reports)]
            for axiom in AXIOMS
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        head, *lines = (" | ".join(map(str.center, row, widths)) for row in rows)
        return "\n".join([head, "-" * len(head), *lines, "", *self.remarks()])

    def remarks(self) -> list[str]:
        """What stands below the table: notes on methods, and every cell that is not the paper's."""
        lines = ["In parentheses: the paper's Table 1 (– where it says nothing).", ""]
        lines += [f"{report.method}: {NOTES[report.method]}" for report in self.reports if report.method in NOTES]
        different = self.differences()
        lines += [f"Not as in the paper: {method} {self[method][axiom]}" for method, axiom in different]
        return [*lines, *([] if different else ["Every cell that the paper fills is as in the paper."])]


def references(seed: int = 0) -> Tensor:
    """References around zero that no exchange of features changes as a set: symmetric features stay symmetric."""
    generator = torch.Generator().manual_seed(seed)
    rows = 0.5 * torch.randn(3, N_FEATURES, dtype=torch.float64, generator=generator)
    return torch.stack([row[list(order)] for row in rows for order in permutations(range(N_FEATURES))])


def columns(*, n_steps: int = 512, n_samples: int = 1024) -> dict[str, MethodColumn]:
    """The methods of Table 1, and Captum's, by name.

    Expected Gradients converge like 1/√n: the largest of some thousand differences of two runs is about 5/√n of the
    output's scale, which is their tolerance. With one sample they have the same tolerance, and fail.
    """
    noise = 5 / n_samples**0.5
    drawn = references()
    ig = partial(IntegratedGradients, n_steps=n_steps, internal_batch_size=_ROWS)
    eg = partial(ExpectedGradients, n_samples=n_samples, internal_batch_size=_ROWS)
    return {
        "integrated-gradients": MethodColumn("Integrated Gradients", ig, _QUADRATURE),
        "expected-gradients": MethodColumn("Expected Gradients", eg, noise, drawn),
        "expected-gradients-1": MethodColumn("Expected Gradients (1)", ExpectedGradients, noise, drawn),
        "input-x-gradient": MethodColumn("Input×Gradient", InputXGradient),
        "gradient": MethodColumn("Gradient", Gradient),
        # The generated X-DNNs are ReLU networks without biases: of degree 1 by construction.
        "x-gradient": MethodColumn("X-Gradient", partial(XGradient, degree=1.0)),
        "deeplift": MethodColumn("DeepLIFT", partial(_captum, "DeepLift"), captum=True),
        "lrp": MethodColumn("LRP", partial(_captum, "LRP"), captum=True),
        "gradient-shap": MethodColumn("GradientShap (5)", _gradient_shap, noise, drawn, captum=True),
    }


def _captum(name: str, model: nn.Module) -> CaptumMethod:
    theirs = optional("captum.attr", "captum", "The audit of Captum's methods")
    return CaptumMethod(model, getattr(theirs, name))


def _gradient_shap(model: nn.Module, baselines: Tensor) -> Any:
    return SimpleNamespace(attribute=partial(_captum("GradientShap", model).attribute, baselines=baselines))


def audit_all(
    *, seed: int = 0, n_networks: int = 4, n_steps: int = 512, n_samples: int = 1024, captum: bool = True
) -> Table1:
    """Audit every method of the paper's Table 1, and DeepLIFT, LRP and GradientShap; ``print`` it for the table.

    >>> table = audit_all(n_networks=1, n_steps=128, n_samples=8, captum=False)
    >>> [result.mark for result in table["Input×Gradient"].results]
    ['✗', '✓', '✓', '✗', '✓', '✓', '✗']
    """
    chosen = columns(n_steps=n_steps, n_samples=n_samples).values()
    return Table1(tuple(c.audit(seed=seed, n_networks=n_networks) for c in chosen if captum or not c.captum))
