"""The audit: search for counterexamples to every axiom, and report each with what is needed to run it again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd._notebook import shown_by
from axiograd._state import in_mode
from axiograd.attribution import XGradient
from axiograd.axioms.axioms import AXIOMS, Axiom, Finding, Probe
from axiograd.axioms.networks import Network, Subject, generated, saturating
from axiograd.errors import ConfigurationError


@dataclass(frozen=True, eq=False, kw_only=True)
class Counterexample(Finding):
    """A model, an input, a baseline and an attribution for which an axiom does not hold."""

    axiom: Axiom
    probe: Probe
    subject: Subject
    seed: int
    index: int  # among the findings of this axiom on this subject

    @property
    def baseline(self) -> Tensor:
        """What was attributed against: zero, or the distribution of references."""
        return torch.zeros_like(self.input) if self.probe.baselines is None else self.probe.baselines

    def rerun(self) -> Finding:
        """Measure once more, with the same draws; the finding has the same violation."""
        return list(findings(self.axiom, self.probe, self.subject, self.seed))[self.index]

    def __str__(self) -> str:
        x, a = (", ".join(f"{v:.4g}" for v in t.flatten()[:8].tolist()) for t in (self.input, self.attribution))
        return f"{self.subject.name}: {self.detail}. x = ({x}), A = ({a})"


@dataclass(frozen=True, eq=False)
class AxiomResult:
    """One cell of the table: the largest violation found, and where."""

    axiom: str
    violation: float
    tolerance: float
    n_cases: int
    counterexample: Counterexample | None

    @property
    def passed(self) -> bool:
        """Whether no case violates the axiom by more than the tolerance."""
        return self.counterexample is None

    @property
    def mark(self) -> str:
        """✓ or ✗."""
        return "✓" if self.passed else "✗"

    def __str__(self) -> str:
        found = "" if self.counterexample is None else f"\n      {self.counterexample}"
        return (
            f"{self.mark} {self.axiom}: violation {self.violation:.1e} of the output's scale, tolerance "
            f"{self.tolerance:.0e}, {self.n_cases} cases{found}"
        )


@dataclass(frozen=True, eq=False)
class AxiomReport:
    """A method's row of the paper's Table 1."""

    method: str
    models: str
    seed: int
    results: tuple[AxiomResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every axiom holds."""
        return all(result.passed for result in self.results)

    def __getitem__(self, axiom: str) -> AxiomResult:
        found = [result for result in self.results if result.axiom == axiom]
        if not found:
            raise KeyError(f"no axiom {axiom!r}: {', '.join(result.axiom for result in self.results)}")
        return found[0]

    def __str__(self) -> str:
        return "\n  ".join([f"{self.method} on {self.models} (seed {self.seed})", *map(str, self.results)])

    _repr_html_ = shown_by("axiom_report_html")


def audit(
    method: Callable[..., Any],
    *,
    seed: int = 0,
    model: Any = None,
    inputs: Tensor | None = None,
    target: int | None = None,
    baselines: Tensor | None = None,
    tolerance: float | None = None,
    axioms: Sequence[Axiom] = AXIOMS,
    homogeneous: bool | None = None,
    n_networks: int = 6,
    name: str | None = None,
) -> AxiomReport:
    """Search seeded networks and inputs, or your own model's, for violations of each axiom: a row of Table 1.

    ``method`` makes something with ``attribute(inputs)`` from a model, e.g. `IntegratedGradients` or
    ``lambda model: IntegratedGradients(model, n_steps=512)``; with ``baselines``, a distribution ``[n, *features]``,
    from a model and the baselines, e.g. `ExpectedGradients`. A violation above ``tolerance``, relative to the largest
    |F(x) − F(x′)|, is a counterexample. The default is above rounding, 1e-6 in float64, and for methods with steps or
    draws 0.1, above the quadrature error of 128 steps of Integrated Gradients on ReLU networks, 0.012 in the median and
    at most 0.065 over twelve seeds. Generated networks have biases unless ``homogeneous``; for X-Gradient they have
    none, and are X-DNNs.

    >>> from axiograd.attribution import InputXGradient
    >>> report = audit(InputXGradient)
    >>> [result.axiom for result in report.results if not result.passed]
    ['Sensitivity (a)', 'Completeness', 'Nonnegative homogeneity']
    >>> counterexample = report["Sensitivity (a)"].counterexample
    >>> counterexample.subject.name, counterexample.rerun().violation
    ('f(x) = 1 - ReLU(1 - x)', 1.0)
    """
    if (model is None) != (inputs is None):
        raise ConfigurationError("audit(method, model=..., inputs=...): give both, or neither for generated networks.")
    if not callable(method):
        raise ConfigurationError(
            f"audit({type(method).__name__}): the audit makes the method for networks of its own. Pass the class, or a "
            "function such as lambda model: IntegratedGradients(model, n_steps=512)."
        )
    if tolerance is not None and not tolerance > 0:
        raise ConfigurationError(f"tolerance={tolerance}: expected a positive number, relative to the output's scale.")
    probe = Probe(method, baselines)
    if model is None or inputs is None:
        network = saturating(torch.Generator()).network
    else:
        network = Network.of(model, inputs.detach(), target)
    with torch.random.fork_rng(devices=[]):
        made = probe.make(network.module())
    if model is None or inputs is None:
        # X-Gradient is defined on X-DNNs only.
        homogeneous = isinstance(made, XGradient) if homogeneous is None else homogeneous
        subjects = generated(torch.Generator().manual_seed(seed), homogeneous=homogeneous, n_networks=n_networks)
        models = f"{len(subjects)} {'X-DNNs' if homogeneous else 'regular networks'}"
    else:
        subjects = [Subject(type(model).__name__, network, inputs.detach())]
        models = f"the given {type(model).__name__}"
    if tolerance is None:
        tolerance = _precision(made, subjects[0].inputs.dtype)
    # A function is not copied, and neither are the modules in it.
    with nullcontext() if model is None else in_mode(model, training=False):
        results = tuple(_result(axiom, probe, subjects, seed, tolerance) for axiom in axioms)
    return AxiomReport(name or str(getattr(method, "__name__", type(method).__name__)), models, seed, results)


def _precision(made: Any, dtype: torch.dtype) -> float:
    """How closely a method can satisfy an axiom at all: up to rounding, or to the error of its steps or draws."""
    # Captum's methods take these with every call.
    call = getattr(getattr(made, "method", None), "attribute", made.attribute)
    known = inspect.signature(call).parameters
    if any(hasattr(made, name) or name in known for name in ("n_steps", "n_samples")):
        return 0.1
    return 1e-6 if dtype == torch.float64 else 1e-3


def _result(axiom: Axiom, probe: Probe, subjects: Sequence[Subject], seed: int, tolerance: float) -> AxiomResult:
    worst: Counterexample | None = None
    n_cases = 0
    for number, subject in enumerate(subjects):
        own_seed = seed + 1000 * number
        for index, found in enumerate(findings(axiom, probe, subject, own_seed)):
            n_cases += 1
            if worst is None or found.violation > worst.violation:
                worst = Counterexample(
                    **vars(found), axiom=axiom, probe=probe, subject=subject, seed=own_seed, index=index
                )
    violation = 0.0 if worst is None else worst.violation
    # Not a number is a violation too.
    return AxiomResult(axiom.name, violation, tolerance, n_cases, None if violation <= tolerance else worst)


def findings(axiom: Axiom, probe: Probe, subject: Subject, seed: int) -> Iterator[Finding]:
    """Measure with every random draw fixed, those of the method too, so that a rerun finds the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield from axiom.measure(probe, subject, torch.Generator().manual_seed(seed))
