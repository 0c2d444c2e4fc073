"""Two checks of an export: does the graph match the model, and how closely does a runtime compute it?"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from axiograd._calls import Call, Model, logits
from axiograd.attribution.passes import attribution_pass, run
from axiograd.errors import ExportError
from axiograd.export.card import Check
from axiograd.export.joint import IMAGES, Explain, Joint, tensor_slots
from axiograd.homogeneity import Certificate

#: Runs the exported file: input name → value, to output name → value.
Runner = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
#: In float64 nothing but a different graph makes a difference; the rest is for casts to float32 in a model's code.
STRUCTURE = 1e-5
BATCHES = (1, 4)


@dataclass(frozen=True)
class Subject:
    """What a file is compared with."""

    model: Model
    call: Call
    baselines: Sequence[Tensor]
    certificate: Certificate
    explain: Explain
    joint: Joint

    @property
    def n_outputs(self) -> int:
        """How many outputs a sample has."""
        _, _, (_, *sizes) = self.joint.outputs[0]
        return math.prod(size for size in sizes if isinstance(size, int))


def check(subject: Subject, runner: Runner, *, tolerance: float) -> Check:
    """Compare graph and file with eager autograd on new inputs; raise `ExportError` where they differ.

    The graph has to agree in float64, which leaves no room for rounding. The file computes in the model's own format,
    in which an input on a kink may fall on either side: so its median has to agree, and the largest is reported.
    """
    generator = torch.Generator().manual_seed(20)
    structure = _structure(subject, _unseen(subject.call, 1, subject.joint, generator), generator)
    if not structure <= STRUCTURE:
        raise ExportError(
            f"the exported graph differs from PyTorch by {structure:.1e} of the largest value in float64 (allowed: "
            f"{STRUCTURE:.0e}). Nothing was written; please report the model."
        )
    errors = []
    for size in BATCHES:
        call = _unseen(subject.call, size, subject.joint, generator)
        ask = _question(subject, size, generator)
        found = runner(_named(call, subject.joint, ask))
        expected = eager(subject.model, call, ask, subject)
        errors.append(relative([found[name] for name, *_ in subject.joint.outputs[: len(expected)]], expected))
    every = torch.cat(errors)
    median, largest = float(every.median()), float(every.max())
    if not median <= tolerance:
        dtype = str(subject.call.features[0].dtype).removeprefix("torch.")
        raise ExportError(
            f"the file's attributions differ from PyTorch's by {median:.1e} of the largest in the median (tolerance "
            f"{tolerance:.0e}). The graph itself is right, so {dtype} is too coarse for this model: allow for it with "
            "tolerance=, or export it in a finer format. Nothing was written."
        )
    return Check(sum(BATCHES), structure, median, largest)


def eager(model: Model, call: Call, ask: Tensor, subject: Subject) -> list[Tensor]:
    """Output and attributions by PyTorch's own autograd."""
    x = [feature.detach().clone().requires_grad_() for feature in call.features]
    with attribution_pass(model, x[0].device, create_graph=False, preserve=True):
        output = logits(run(model, call, x))
        gradients = torch.autograd.grad(subject.explain.score(output, ask).sum(), x, materialize_grads=True)
    away = [each.detach() for each in x]
    if subject.baselines:
        away = [each - baseline.to(each) for each, baseline in zip(away, subject.baselines, strict=True)]
    return [output.detach(), *(a * g / subject.explain.degree for a, g in zip(away, gradients, strict=True))]


def relative(found: Sequence[Tensor], expected: Sequence[Tensor]) -> Tensor:
    """Per row: the largest difference, as a part of the largest value of its tensor."""
    parts = []
    for a, b in zip(found, expected, strict=True):
        difference, size = (each.abs().flatten(1).amax(1) if each.dim() > 1 else each.abs() for each in (a - b, b))
        parts.append(torch.where(difference == 0, 0.0, difference / size))
    return torch.stack(parts).amax(0)


def _structure(subject: Subject, call: Call, generator: torch.Generator) -> float:
    """How far the graph is from the model, both in float64; in its own format if it does not run in another."""
    ask, dtype = _question(subject, call.batch, generator), call.features[0].dtype
    run_graph: fx.Interpreter = fx.Interpreter(subject.joint.graph)
    expected: list[Tensor] = []
    if isinstance(subject.model, nn.Module):
        with suppress(Exception):  # whatever its code says of formats
            wide, at = copy.deepcopy(subject.model).double(), call.to(torch.float64)
            expected = eager(wide, at, _widened(ask, dtype), subject)
    if expected and expected[0].dtype == torch.float64:
        call, ask, run_graph = at, _widened(ask, dtype), _InFloat64(subject.joint.graph, dtype)
    else:
        expected = eager(subject.model, call, ask, subject)
    with torch.no_grad():
        found = run_graph.run(*subject.joint.constants.values(), *_named(call, subject.joint, ask).values())
    return float(relative(found[: len(expected)], expected).max())


class _InFloat64(fx.Interpreter):
    """Runs a graph with float64 wherever it says another format."""

    def __init__(self, graph: fx.GraphModule, dtype: torch.dtype) -> None:
        super().__init__(graph)
        self._dtype = dtype

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _widened(super().placeholder(target, args, kwargs), self._dtype)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _widened(super().get_attr(target, args, kwargs), self._dtype)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(lambda leaf: _widened(leaf, self._dtype), (args, kwargs))
        return super().call_function(target, args, kwargs)


def _widened(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.dtype == dtype else value
    return torch.float64 if isinstance(value, torch.dtype) and value == dtype else value


def _question(subject: Subject, rows: int, generator: torch.Generator) -> Tensor:
    """Random targets, or weights."""
    sizes = [rows, *subject.joint.examples[-1].shape[1:]]
    if subject.explain.asked == "weights":
        return torch.randn(sizes, generator=generator).to(subject.joint.examples[-1])
    return torch.randint(subject.n_outputs, sizes, generator=generator)


def _unseen(call: Call, size: int, joint: Joint, generator: torch.Generator) -> Call:
    """Rows of noise with the examples' mean and spread; what is not attributed is taken over."""
    rows = call.rows(slice(None), -(-size // call.batch)).rows(slice(0, size))
    if "height" in joint.inputs[0][2]:  # images of another size
        rows = rows.filled([F.pad(x, (size, 0, 2 * size, 0)) if x.dim() == IMAGES else x for x in rows.features])
    return rows.filled([_like(feature, generator) for feature in rows.features])


def _like(feature: Tensor, generator: torch.Generator) -> Tensor:
    spread = float(feature.std()) if feature.numel() > 1 else 0.0
    return (torch.randn(feature.shape, generator=generator) * (spread or 1.0) + float(feature.mean())).to(feature)


def _named(call: Call, joint: Joint, ask: Tensor) -> dict[str, Tensor]:
    """The graph's inputs by name."""
    slots, names = tensor_slots(call)
    values = [call.positional[s] if isinstance(s, int) else call.keyword[s] for s in slots]
    return {**dict(zip(names, values, strict=True)), joint.inputs[-1][0]: ask}
