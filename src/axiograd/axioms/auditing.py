"""The audit: search for counterexamples to every axiom."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from axiograd.attribution import XGradient
from axiograd.axioms.base import Axiom, Probe
from axiograd.axioms.network import GivenNetwork
from axiograd.axioms.report import AxiomReport, AxiomResult, Counterexample, findings
from axiograd.axioms.statements import AXIOMS
from axiograd.axioms.subject import Subject, generated, saturating
from axiograd.errors import ConfigurationError


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
    subjects, models = _subjects(probe, seed, model, inputs, target, homogeneous, n_networks)
    if tolerance is None:
        tolerance = _precision(probe, subjects[0])
    results = tuple(_result(axiom, probe, subjects, seed, tolerance) for axiom in axioms)
    return AxiomReport(name or str(getattr(method, "__name__", type(method).__name__)), models, seed, results)


def _subjects(
    probe: Probe,
    seed: int,
    model: Any,
    inputs: Tensor | None,
    target: int | None,
    homogeneous: bool | None,
    n_networks: int,
) -> tuple[list[Subject], str]:
    if model is not None and inputs is not None:
        network = GivenNetwork.of(model, inputs.detach(), target)
        return [Subject(type(model).__name__, network, inputs.detach())], f"the given {type(model).__name__}"
    generator = torch.Generator().manual_seed(seed)
    if homogeneous is None:
        homogeneous = _is_x_gradient(probe)
    found = generated(generator, homogeneous=homogeneous, n_networks=n_networks)
    return found, f"{len(found)} {'X-DNNs' if homogeneous else 'regular networks'}"


def _is_x_gradient(probe: Probe) -> bool:
    """X-Gradient is defined on X-DNNs only."""
    if probe.baselines is not None:
        return False
    with torch.random.fork_rng(devices=[]):
        return isinstance(probe.method(saturating(torch.Generator()).network.module()), XGradient)


def _precision(probe: Probe, subject: Subject) -> float:
    """How closely a method can satisfy an axiom at all: up to rounding, or to the error of its steps or draws."""
    with torch.random.fork_rng(devices=[]):
        made = probe.make(subject.network.module())
    # Captum's methods take these with every call.
    call = getattr(getattr(made, "method", None), "attribute", made.attribute)
    known = inspect.signature(call).parameters
    if any(hasattr(made, name) or name in known for name in ("n_steps", "n_samples")):
        return 0.1
    return 1e-6 if subject.inputs.dtype == torch.float64 else 1e-3


def _result(axiom: Axiom, probe: Probe, subjects: Sequence[Subject], seed: int, tolerance: float) -> AxiomResult:
    worst, n_cases = None, 0
    for number, subject in enumerate(subjects):
        own_seed = seed + 1000 * number
        for index, found in enumerate(findings(axiom, probe, subject, own_seed)):
            n_cases += 1
            if worst is None or found.violation > worst.found.violation:
                worst = Counterexample(axiom, probe, subject, own_seed, index, found)
    violation = 0.0 if worst is None else worst.found.violation
    # Not a number is a violation too.
    return AxiomResult(axiom.name, violation, tolerance, n_cases, None if violation <= tolerance else worst)
