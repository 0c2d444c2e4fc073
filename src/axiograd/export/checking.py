"""Is what was exported what runs here? On inputs that the export has not seen, in several batch sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from axiograd._calls import Call
from axiograd.errors import ExportError
from axiograd.export.card import Check
from axiograd.export.joint import IMAGES
from axiograd.export.rounding import advice, excuse
from axiograd.export.subject import CheckedModel, Runner, eager, named, relative

BATCHES = (1, 2, 5)


def check(
    subject: CheckedModel, runner: Runner, *, tolerance: float, gated: Callable[[], Runner] | None = None
) -> Check:
    """Compare outputs, attributions and gap with eager autograd; raise `ExportError` where they differ.

    ``gated`` makes a runner of the file that also gives its gates: where rounding chooses others than PyTorch does,
    PyTorch has to take them, and to arrive at the file's numbers.
    """
    generator = torch.Generator().manual_seed(20)
    worst = {"outputs": 0.0, "attributions": 0.0, "gap": 0.0}
    ties, rounded, gates, tied, unequal, held, samples = 0, 0, 0, 0.0, 0, 0.0, 0
    gated = None if gated is None else cache(gated)
    sizes = BATCHES if subject.joint.dynamic[-1] else (len(subject.joint.examples[-1]),)
    for arguments in _unseen(subject, sizes, generator):
        output, attributions, ask = eager(subject, arguments, None, generator)
        found = runner(named(subject, arguments, ask))
        samples += arguments.batch
        errors = {
            "outputs": relative([found["output"]], [output]),
            "attributions": relative([found[name] for name in subject.attributions], attributions),
        }
        largest = torch.stack(list(errors.values())).nan_to_num(torch.inf).amax(0)
        for row in (largest > tolerance).nonzero().flatten().tolist():
            alone, asked = _one(subject, arguments, row), _one_asked(subject, ask, row)
            by = {what: float(each[row]) for what, each in errors.items()}
            why = excuse(subject, alone, asked, by, tolerance=tolerance, generator=generator, gated=gated)
            for what, left in why.left.items():  # what is left once gates are the same is compared like all others
                errors[what][row] = left if left <= tolerance else 0.0
            ties, rounded = ties + (why.switched > 0), rounded + (not why.switched)
            gates, tied = gates + why.switched, max(tied, float(largest[row]))
            unequal += max(why.left.values()) > tolerance
            held = max(held, why.left["attributions"])
        whole = torch.stack([a.abs().flatten(1).sum(1) for a in attributions]).sum(0)
        errors["gap"] = torch.where(whole > 0, found["gap"].abs() / whole, found["gap"].abs())
        worst = {what: max(value, float(errors[what].nan_to_num(torch.inf).max())) for what, value in worst.items()}
        _check_largest(subject, arguments, runner, found, tolerance)
    if subject.certificate.exact and not worst["gap"] <= tolerance:
        raise ExportError(
            f"the exported graph's attributions miss the score by {worst['gap']:.1e} of their sum (tolerance "
            f"{tolerance:.0e}). Nothing was written; {advice(subject, tolerance)}."
        )
    _check_edges(subject, runner)
    errors_left = worst["outputs"], worst["attributions"], worst["gap"]
    return Check(
        samples,
        tuple(sizes),
        *errors_left,
        ties,
        gates,
        tied,
        rounded,
        unequal,
        held if math.isfinite(held) and (ties or rounded) else None,
    )


def _unseen(subject: CheckedModel, sizes: Sequence[int], generator: torch.Generator) -> Iterator[Call]:
    """Rows of the examples' mean and spread; what is not attributed is taken over."""
    for size in sizes:
        times = -(-size // subject.arguments.batch)
        rows = subject.arguments.rows(slice(None), times).rows(slice(0, size))
        if any(len(free) > 1 for free in subject.joint.dynamic):  # images grow from batch to batch
            wider = [F.pad(x, (size, 0, 2 * size, 0)) if x.dim() == IMAGES else x for x in rows.features]
            rows = rows.filled(wider)
        yield rows.filled([_like(feature, generator) for feature in rows.features])


def _like(feature: Tensor, generator: torch.Generator) -> Tensor:
    spread = feature.std() if feature.numel() > 1 else torch.ones(())
    spread = torch.where(spread > 0, spread, torch.ones(()).to(spread))
    return (torch.randn(feature.shape, generator=generator) * float(spread) + float(feature.mean())).to(feature)


def _one(subject: CheckedModel, arguments: Call, row: int) -> Call:
    """One row, as often as a graph with a fixed batch wants it."""
    return arguments.rows(slice(row, row + 1), 1 if subject.joint.dynamic[-1] else arguments.batch)


def _one_asked(subject: CheckedModel, ask: Tensor, row: int) -> Tensor:
    times = 1 if subject.joint.dynamic[-1] else len(ask)
    return ask[row : row + 1].repeat(times, *[1] * (ask.dim() - 1))


def _check_largest(
    subject: CheckedModel, arguments: Call, runner: Runner, found: dict[str, Tensor], tolerance: float
) -> None:
    """Asked for −1, the graph explains the largest of its own outputs."""
    if subject.asked == "weights":
        return
    largest = found["output"].flatten(1).argmax(1) if found["output"].dim() > 1 else torch.zeros(arguments.batch).long()
    by_sign = runner(named(subject, arguments, torch.full_like(largest, -1)))
    by_index = runner(named(subject, arguments, largest))
    names = subject.attributions
    error = float(relative([by_sign[n] for n in names], [by_index[n] for n in names]).max())
    if not error <= tolerance:
        raise ExportError(
            f"the exported graph explains another class than its largest output when asked for −1: {error}."
        )


def _check_edges(subject: CheckedModel, runner: Runner) -> None:
    """At the baseline nothing is attributed; a row with NaN is NaN, and its neighbours are not."""
    rows = subject.arguments if subject.arguments.batch > 1 else subject.arguments.rows(slice(None), 2)
    origins = subject.baselines or [torch.zeros(())] * len(rows.slots)
    at_origin = [origin.to(x).expand_as(x).clone() for x, origin in zip(rows.features, origins, strict=True)]
    ask = subject.joint.examples[-1][:1].repeat(rows.batch, *[1] * (subject.joint.examples[-1].dim() - 1))
    found = runner(named(subject, rows.filled(at_origin), ask))
    wrong = [name for name in (*subject.attributions, "gap") if bool((found[name] != 0).any())]
    if wrong and subject.certificate.exact:
        raise ExportError(f"at its baseline the exported graph gives a {wrong[0]} that is not zero.")
    broken = [x.clone() for x in rows.features]
    broken[0][(0,) * broken[0].dim()] = torch.nan
    found = runner(named(subject, rows.filled(broken), ask))
    if not all(bool(value[0].isnan().all()) and not bool(value[1:].isnan().any()) for value in found.values()):
        raise ExportError("an input with NaN in one row gives the exported graph numbers there, or NaN in other rows.")
