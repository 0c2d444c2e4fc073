"""Is what was exported what runs here? On inputs that the export has not seen, in several batch sizes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from axiograd._target import logits
from axiograd.attribution.arguments import Arguments, Model
from axiograd.attribution.passes import attribution_pass, run
from axiograd.errors import ExportError
from axiograd.export.card import Check
from axiograd.export.joint import IMAGES, Asked, Joint, tensor_slots
from axiograd.homogeneity import Certificate

#: Runs the exported file: input name → value, to output name → value.
Runner = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]

BATCHES = (1, 2, 5)
#: Rounding decides about a row if another one moves its answer as much as the exported file is off: the input shifted
#: by this part of itself, and the products inside by so many units in the last place.
SHIFT, ROUNDING = 1e-6, 2.0
_CONVOLUTIONS = {torch.ops.aten.convolution.default}
_PRODUCTS = _CONVOLUTIONS | {getattr(torch.ops.aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm")}
_SHIFTS, _SHIFTS_AT_LEAST = 64, 4
_MARGIN = 4.0
#: Where rounding moves PyTorch's own answer by more than this share of its largest value, there is nothing to compare.
_HOPELESS = 0.5


@dataclass(frozen=True)
class CheckedModel:
    """What is compared with the file."""

    model: Model
    arguments: Arguments
    baselines: Sequence[Tensor] | None
    certificate: Certificate
    asked: Asked
    joint: Joint

    @property
    def attributions(self) -> list[str]:
        """The names of the attributions among the outputs."""
        return [name for name in self.joint.outputs if name.startswith("attribution")]


def check(subject: CheckedModel, runner: Runner, *, tolerance: float) -> Check:
    """Compare outputs, attributions and gap with eager autograd; raise `ExportError` where they differ."""
    generator = torch.Generator().manual_seed(20)
    worst = {"outputs": 0.0, "attributions": 0.0, "gap": 0.0}
    ties, rounded, gates, tied, samples = 0, 0, 0, 0.0, 0
    sizes = BATCHES if subject.joint.dynamic[-1] else (len(subject.joint.examples[-1]),)
    for arguments in _unseen(subject, sizes, generator):
        output, attributions, ask = eager(subject, arguments, None, generator)
        found = runner(named(subject, arguments, ask))
        samples += arguments.batch
        errors = {
            "outputs": _relative([found["output"]], [output]),
            "attributions": _relative([found[name] for name in subject.attributions], attributions),
        }
        largest = torch.stack(list(errors.values())).nan_to_num(torch.inf).amax(0)
        for row in (largest > tolerance).nonzero().flatten().tolist():
            alone, asked = _one(subject, arguments, row), _one_asked(subject, ask, row)
            by = {what: float(each[row]) for what, each in errors.items()}
            doubts, switched = _doubts(subject, alone, asked, by, generator)
            for what, doubt in doubts.items():
                off = by[what]
                if not off <= max(tolerance, _MARGIN * doubt):
                    raise ExportError(
                        f"the exported graph's {what} differ from PyTorch's by {off:.1e} of the largest (tolerance "
                        f"{tolerance:.0e}), and not because of a tie or of rounding, which accounts for {doubt:.1e} "
                        f"there. Nothing was written; {_advice(subject, tolerance, doubt)}."
                    )
                errors[what][row] = 0.0
            ties, rounded = ties + (switched > 0), rounded + (not switched)
            gates, tied = gates + switched, max(tied, float(largest[row]))
        whole = torch.stack([a.abs().flatten(1).sum(1) for a in attributions]).sum(0)
        errors["gap"] = torch.where(whole > 0, found["gap"].abs() / whole, found["gap"].abs())
        worst = {what: max(value, float(errors[what].nan_to_num(torch.inf).max())) for what, value in worst.items()}
        _check_largest(subject, arguments, runner, found, tolerance)
    if subject.certificate.exact and not worst["gap"] <= tolerance:
        raise ExportError(
            f"the exported graph's attributions miss the score by {worst['gap']:.1e} of their sum (tolerance "
            f"{tolerance:.0e}). Nothing was written; {_advice(subject, tolerance)}."
        )
    _check_edges(subject, runner)
    errors_left = worst["outputs"], worst["attributions"], worst["gap"]
    return Check(samples, tuple(sizes), *errors_left, ties, gates, tied, rounded)


def _advice(subject: CheckedModel, tolerance: float, doubt: float = 0.0) -> str:
    """What to do about a difference: where the dtype itself is too coarse, nothing else is wrong."""
    dtype = subject.arguments.features[0].dtype
    rounding, name = torch.finfo(dtype).eps, str(dtype).removeprefix("torch.")
    if doubt > _HOPELESS:
        return f"PyTorch's own answer is a matter of rounding, too: {name} does not do for this model on such inputs"
    if rounding < tolerance:
        return "please report the model"
    return f"{name} rounds to {rounding:.0e}, so allow for it (tolerance={16 * rounding:.1g}) or export in float32"


def eager(
    subject: CheckedModel, arguments: Arguments, ask: Tensor | None, generator: torch.Generator
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Output, attributions and what was asked, by PyTorch's own autograd on the user's model."""
    x = [feature.detach().clone().requires_grad_() for feature in arguments.features]
    with attribution_pass(subject.model, x[0].device, create_graph=False, preserve=True):
        output = logits(run(subject.model, arguments, x))
        flat = output.flatten(1) if output.dim() > 1 else output[:, None]
        if ask is None and subject.asked == "weights":
            ask = torch.randn(output.shape, generator=generator).to(output)
        elif ask is None:
            ask = torch.randint(flat.shape[1], (len(flat),), generator=generator)
        weighted = subject.asked == "weights"
        score = (flat * ask.flatten(1)).sum(1) if weighted else flat.gather(1, ask[:, None]).squeeze(1)
        gradients = torch.autograd.grad(score.sum(), x, materialize_grads=True)
    origins = subject.baselines or [torch.zeros(())] * len(x)
    attributions = [
        ((each.detach() - origin) * gradient / (subject.certificate.degree or 1.0))
        for each, origin, gradient in zip(x, origins, gradients, strict=True)
    ]
    return output.detach(), attributions, ask


def named(subject: CheckedModel, arguments: Arguments, ask: Tensor) -> dict[str, Tensor]:
    """The graph's inputs by name."""
    where, names = tensor_slots(arguments)
    values = [arguments.positional[s] if isinstance(s, int) else arguments.keyword[s] for s in where]
    return {**dict(zip(names, values, strict=True)), subject.joint.inputs[-1]: ask}


def _unseen(subject: CheckedModel, sizes: Sequence[int], generator: torch.Generator) -> Iterator[Arguments]:
    """Rows of the examples' mean and spread; what is not attributed is taken over."""
    for size in sizes:
        times = -(-size // subject.arguments.batch)
        rows = subject.arguments.rows(slice(None), times).rows(slice(0, size))
        if any(len(free) > 1 for free in subject.joint.dynamic):  # images grow from batch to batch
            wider = [F.pad(x, (size, 0, 2 * size, 0)) if x.dim() == IMAGES else x for x in rows.features]
            rows = _filled(rows, wider)
        yield _filled(rows, [_like(feature, generator) for feature in rows.features])


def _like(feature: Tensor, generator: torch.Generator) -> Tensor:
    spread = feature.std() if feature.numel() > 1 else torch.ones(())
    spread = torch.where(spread > 0, spread, torch.ones(()).to(spread))
    return (torch.randn(feature.shape, generator=generator) * float(spread) + float(feature.mean())).to(feature)


def _filled(arguments: Arguments, features: Sequence[Tensor]) -> Arguments:
    positional, keyword = list(arguments.positional), dict(arguments.keyword)
    for slot, feature in zip(arguments.slots, features, strict=True):
        if isinstance(slot, int):
            positional[slot] = feature
        else:
            keyword[slot] = feature
    return replace(arguments, positional=tuple(positional), keyword=keyword)


def _relative(found: Sequence[Tensor], expected: Sequence[Tensor]) -> Tensor:
    """Per row: the largest difference, over all tensors, by the largest expected value."""
    rows = [(a - b).abs().reshape(len(a), -1).amax(1) for a, b in zip(found, expected, strict=True)]
    scale = torch.stack([b.abs().reshape(len(b), -1).amax(1) for b in expected]).amax(0)
    difference = torch.stack(rows).amax(0)
    return torch.where(difference == 0, 0.0, difference / scale)


def _one(subject: CheckedModel, arguments: Arguments, row: int) -> Arguments:
    """One row, as often as a graph with a fixed batch wants it."""
    return arguments.rows(slice(row, row + 1), 1 if subject.joint.dynamic[-1] else arguments.batch)


def _one_asked(subject: CheckedModel, ask: Tensor, row: int) -> Tensor:
    times = 1 if subject.joint.dynamic[-1] else len(ask)
    return ask[row : row + 1].repeat(times, *[1] * (ask.dim() - 1))


def _doubts(
    subject: CheckedModel, row: Arguments, ask: Tensor, off: Mapping[str, float], generator: torch.Generator
) -> tuple[dict[str, float], int]:
    """How uncertain PyTorch's own answer is for one row, and how many gates rounding switches there.

    That is how far another rounding moves it, or how far it is from the answer in float64, whichever is more. On a tie
    a gate opens as a coin falls, so roundings are drawn until they account for what the file is off.
    """
    doubts = {"outputs": 0.0, "attributions": 0.0}

    def compare(answer: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
        moved = float(_relative(answer[:1], expected[:1]).max()), float(_relative(answer[1:], expected[1:]).max())
        doubts["outputs"], doubts["attributions"] = map(max, doubts.values(), moved)
        return moved[1]

    if isinstance(subject.model, nn.Module):
        with suppress(Exception):  # a model that cannot be copied or run in float64 is not asked
            wide = replace(subject, model=copy.deepcopy(subject.model).double())
            narrow_answer, wide_answer = (
                eager(each, at, ask, generator) for each, at in ((subject, row), (wide, row.to(torch.float64)))
            )
            compare([wide_answer[0], *wide_answer[1]], [narrow_answer[0], *narrow_answer[1]])
    (answer, gates), furthest, switched = _replayed(subject, row, ask), -1.0, 0
    for number in range(_SHIFTS):
        if number >= _SHIFTS_AT_LEAST and all(off[what] <= _MARGIN * doubt for what, doubt in doubts.items()):
            break
        noise = [torch.randn(x.shape, generator=generator).to(x) for x in row.features]
        shifted = _filled(row, [x + SHIFT * x * n for x, n in zip(row.features, noise, strict=True)])
        other, other_gates = _replayed(subject, shifted, ask, generator)
        moved = compare(other, answer)
        if moved > furthest:
            furthest = moved
            switched = sum(int((a != b).sum()) for a, b in zip(gates, other_gates, strict=True))
    return doubts, switched


def _replayed(
    subject: CheckedModel, row: Arguments, ask: Tensor, generator: torch.Generator | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """Output and attributions by the graph, its products rounded otherwise if a generator draws how.

    And its gates: every yes or no, and every index, the pieces between which a network's kinks lie.
    """
    gates: list[Tensor] = []

    class Watching(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result: object = super().run_node(n)
            if n.op != "call_function" or not isinstance(result, Tensor):
                return result
            if not result.is_floating_point():
                gates.append(result)
            elif generator is not None and n.target in _PRODUCTS:
                # A sum of products is rounded as its terms are large, and those are as large as its neighbours.
                over = [i for i in range(result.dim()) if i != 1] if n.target in _CONVOLUTIONS else [-1]
                size = result.square().mean(over, keepdim=True).sqrt()
                noise = torch.randn(result.shape, generator=generator).to(result)
                return result + ROUNDING * torch.finfo(result.dtype).eps * size * noise
            return result

    with torch.no_grad():
        results = Watching(subject.joint.graph).run(*named(subject, row, ask).values())
    found = dict(zip(subject.joint.outputs, results, strict=True))
    return [found["output"], *(found[name] for name in subject.attributions)], gates


def _check_largest(
    subject: CheckedModel, arguments: Arguments, runner: Runner, found: dict[str, Tensor], tolerance: float
) -> None:
    """Asked for −1, the graph explains the largest of its own outputs."""
    if subject.asked == "weights":
        return
    largest = found["output"].flatten(1).argmax(1) if found["output"].dim() > 1 else torch.zeros(arguments.batch).long()
    by_sign = runner(named(subject, arguments, torch.full_like(largest, -1)))
    by_index = runner(named(subject, arguments, largest))
    names = subject.attributions
    error = float(_relative([by_sign[n] for n in names], [by_index[n] for n in names]).max())
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
    found = runner(named(subject, _filled(rows, at_origin), ask))
    wrong = [name for name in (*subject.attributions, "gap") if bool((found[name] != 0).any())]
    if wrong and subject.certificate.exact:
        raise ExportError(f"at its baseline the exported graph gives a {wrong[0]} that is not zero.")
    broken = [x.clone() for x in rows.features]
    broken[0][(0,) * broken[0].dim()] = torch.nan
    found = runner(named(subject, _filled(rows, broken), ask))
    if not all(bool(value[0].isnan().all()) and not bool(value[1:].isnan().any()) for value in found.values()):
        raise ExportError("an input with NaN in one row gives the exported graph numbers there, or NaN in other rows.")
