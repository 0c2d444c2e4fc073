"""What an audit found: one result per axiom, each failure with a counterexample that can be run again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._notebook import shown_by
from axiograd.axioms.base import Axiom, Finding, Probe
from axiograd.axioms.subject import Subject


def findings(axiom: Axiom, probe: Probe, subject: Subject, seed: int) -> Iterator[Finding]:
    """Measure with every random draw fixed, those of the method too, so that a rerun finds the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield from axiom.measure(probe, subject, torch.Generator().manual_seed(seed))


@dataclass(frozen=True, eq=False)
class Counterexample:
    """A model, an input, a baseline and an attribution for which an axiom does not hold."""

    axiom: Axiom
    probe: Probe
    subject: Subject
    seed: int
    index: int
    found: Finding

    @property
    def model(self) -> nn.Module:
        """The network on which the axiom fails."""
        return self.found.model

    @property
    def input(self) -> Tensor:
        """The sample where the violation is largest, as a batch of one."""
        return self.found.input

    @property
    def baseline(self) -> Tensor:
        """What was attributed against: zero, or the distribution of references."""
        return torch.zeros_like(self.input) if self.probe.baselines is None else self.probe.baselines

    @property
    def attribution(self) -> Tensor:
        """The attribution of that sample."""
        return self.found.attribution

    @property
    def extra(self) -> dict[str, Any]:
        """What else the axiom speaks of: a second network, a feature, a factor."""
        return self.found.extra

    def rerun(self) -> Finding:
        """Measure once more, with the same draws; the finding has the same violation."""
        return list(findings(self.axiom, self.probe, self.subject, self.seed))[self.index]

    def __str__(self) -> str:
        x, a = (", ".join(f"{v:.4g}" for v in t.flatten()[:8].tolist()) for t in (self.input, self.attribution))
        return f"{self.subject.name}: {self.found.detail}. x = ({x}), A = ({a})"


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
        width = max(len(result.axiom) for result in self.results)
        lines = [f"{self.method} on {self.models} (seed {self.seed})"]
        for result in self.results:
            lines.append(
                f"  {result.axiom:<{width}}  {result.mark}  violation {result.violation:8.1e} of the output's scale, "
                f"tolerance {result.tolerance:.0e}, {result.n_cases} cases"
            )
            if result.counterexample is not None:
                lines.append(f"  {'':<{width}}     {result.counterexample}")
        return "\n".join(lines)

    _repr_html_ = shown_by("axiom_report_html")
