"""What rounding may do to a row: which side of a kink it falls on, and no more than that.

Three questions, all of which a row has to pass that is further from PyTorch than the tolerance. In float64, where
rounding decides nothing, is the graph what the model is? Does another rounding in float32 move PyTorch's own answer as
far? And with the gates that the file has chosen, does PyTorch give the file's numbers?
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from axiograd._calls import Call
from axiograd.errors import ExportError
from axiograd.export.subject import CheckedModel, Runner, eager, named, relative

aten = torch.ops.aten
#: Rounding decides about a row if another one moves its answer as much as the exported file is off: the input shifted
#: by this part of itself, and the products inside by so many units in the last place.
SHIFT, ROUNDING = 1e-6, 2.0
_CONVOLUTIONS = {aten.convolution.default}
_PRODUCTS = _CONVOLUTIONS | {getattr(aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm")}
_SIGNS = {aten.sign.default, aten.sgn.default}
_CASTS = {aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.type_as.default}  # noqa: SLF001
_SHIFTS, _SHIFTS_AT_LEAST = 64, 4
_MARGIN = 4.0
#: Of two roundings both switch gates, by chance not the same number of them.
_GATES_AT_LEAST = 8
#: Where rounding moves PyTorch's own answer by more than this share of its largest value, there is nothing to compare.
_HOPELESS = 0.5


@dataclass(frozen=True)
class Excuse:
    """Why a row may be further off than the tolerance."""

    #: Gates that rounding switches there: more than none on a tie.
    switched: int
    #: How far outputs and attributions are off with the file's own gates; inf where they are not known.
    left: Mapping[str, float]


def excuse(
    subject: CheckedModel,
    row: Call,
    ask: Tensor,
    off: Mapping[str, float],
    *,
    tolerance: float,
    generator: torch.Generator,
    gated: Callable[[], Runner] | None,
) -> Excuse:
    """The reason for which one row is off by so much, or `ExportError`."""
    doubts, switched, most = _doubts(subject, row, ask, off, tolerance, generator)
    for what, doubt in doubts.items():
        if not off[what] <= max(tolerance, _MARGIN * doubt):
            raise _refused(subject, what, off[what], tolerance, doubt)
    left = dict.fromkeys(off, torch.inf)
    if gated is not None:
        left, doubts, other = _with_its_gates(subject, row, ask, gated(), generator)
        for what, doubt in doubts.items():
            if not left[what] <= max(tolerance, min(_HOPELESS, _MARGIN * doubt)):
                raise _refused(
                    subject, what, left[what], tolerance, doubt, " even with the gates that the file chooses"
                )
        if other > max(_GATES_AT_LEAST, _MARGIN * most):
            raise ExportError(
                f"the exported graph chooses {other} gates otherwise than PyTorch on one input, and rounding accounts "
                f"for {most}. Nothing was written; {advice(subject, tolerance)}."
            )
    return Excuse(switched, left)


def advice(subject: CheckedModel, tolerance: float, doubt: float = 0.0) -> str:
    """What to do about a difference: where the dtype itself is too coarse, nothing else is wrong."""
    dtype = subject.arguments.features[0].dtype
    rounding, name = torch.finfo(dtype).eps, str(dtype).removeprefix("torch.")
    if doubt > _HOPELESS:
        return f"PyTorch's own answer is a matter of rounding, too: {name} does not do for this model on such inputs"
    if rounding < tolerance:
        return "please report the model"
    return f"{name} rounds to {rounding:.0e}, so allow for it (tolerance={16 * rounding:.1g}) or export in float32"


def _refused(
    subject: CheckedModel, what: str, off: float, tolerance: float, doubt: float, even: str = ""
) -> ExportError:
    return ExportError(
        f"the exported graph's {what} differ from PyTorch's by {off:.1e} of the largest{even} (tolerance "
        f"{tolerance:.0e}), and not because of a tie or of rounding, which accounts for {doubt:.1e} "
        f"there. Nothing was written; {advice(subject, tolerance, doubt)}."
    )


def _apart(found: Sequence[Tensor], expected: Sequence[Tensor]) -> dict[str, float]:
    """The largest relative differences of outputs and of attributions."""
    outputs, attributions = relative(found[:1], expected[:1]), relative(found[1:], expected[1:])
    return {"outputs": float(outputs.max()), "attributions": float(attributions.max())}


def _doubts(
    subject: CheckedModel,
    row: Call,
    ask: Tensor,
    off: Mapping[str, float],
    tolerance: float,
    generator: torch.Generator,
) -> tuple[dict[str, float], int, int]:
    """How uncertain PyTorch's own answer is for one row, how many gates switch where it moves furthest, and at most.

    That is how far another rounding moves it, or how far it is from the answer in float64, whichever is more. On a tie
    a gate opens as a coin falls, so roundings are drawn until they account for what the file is off.
    """
    doubts = _against_float64(subject, row, ask, tolerance, generator)
    (answer, gates), furthest, switched, most = _replayed(subject, row, ask), -1.0, 0, 0
    for number in range(_SHIFTS):
        if number >= _SHIFTS_AT_LEAST and all(off[what] <= _MARGIN * doubt for what, doubt in doubts.items()):
            break
        other, other_gates = _replayed(subject, _shifted(row, generator), ask, generator)
        moved = _apart(other, answer)
        doubts = {what: max(doubt, moved[what]) for what, doubt in doubts.items()}
        count = _differing(gates, other_gates)
        most = max(most, count)
        if moved["attributions"] > furthest:
            furthest, switched = moved["attributions"], count
    return doubts, switched, most


def _against_float64(
    subject: CheckedModel, row: Call, ask: Tensor, tolerance: float, generator: torch.Generator
) -> dict[str, float]:
    """How far the model's own answer is from that in float64; which the graph has to give as well."""
    nothing = {"outputs": 0.0, "attributions": 0.0}
    if not isinstance(subject.model, nn.Module):
        return nothing
    dtype, at = row.features[0].dtype, row.to(torch.float64)
    asked = ask.double() if ask.is_floating_point() else ask
    try:  # a model that cannot be copied or run in float64 is not asked
        wide = replace(subject, model=copy.deepcopy(subject.model).double())
        output, attributions, _ = eager(wide, at, asked, generator)
        narrow = eager(subject, row, ask, generator)
        graph, _ = _replayed(subject, at, asked, wide=dtype)
    except Exception:  # noqa: BLE001
        return nothing
    expected = [output, *attributions]
    # A cast in the model's code keeps it narrow, and the graph does not.
    cast = any(n.target in _CASTS and dtype in pytree.tree_leaves((n.args, n.kwargs)) for n in subject.joint.forward)
    for what, by in ({} if cast else _apart(graph, expected)).items():
        if not by <= tolerance:
            raise ExportError(
                f"the exported graph's {what} differ from PyTorch's by {by:.1e} of the largest in float64 (tolerance "
                f"{tolerance:.0e}), and not because of a tie or of rounding, which float64 has none of. Nothing was "
                "written; please report the model."
            )
    return _apart(expected, [narrow[0], *narrow[1]])


def _with_its_gates(
    subject: CheckedModel, row: Call, ask: Tensor, runner: Runner, generator: torch.Generator
) -> tuple[dict[str, float], dict[str, float], int]:
    """How far the file is from PyTorch with the file's gates, what rounding does then, and how many gates differ."""
    found = runner(named(subject, row, ask))
    held = {name: value for name, value in found.items() if name not in subject.joint.outputs}
    _, own = _replayed(subject, row, ask)
    answer, _ = _replayed(subject, row, ask, held=held)
    left, doubts = _apart(subject.answers(found), answer), {"outputs": 0.0, "attributions": 0.0}
    for _ in range(_SHIFTS_AT_LEAST):
        other, _ = _replayed(subject, _shifted(row, generator), ask, generator, held=held)
        doubts = {what: max(doubts[what], by) for what, by in _apart(other, answer).items()}
    return left, doubts, _differing({name: own[name] for name in held if name in own}, held)


def _shifted(row: Call, generator: torch.Generator) -> Call:
    noise = [torch.randn(x.shape, generator=generator).to(x) for x in row.features]
    return row.filled([x + SHIFT * x * n for x, n in zip(row.features, noise, strict=True)])


def _differing(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> int:
    return sum(int((value != others[name]).sum()) for name, value in some.items())


def is_gate(node: fx.Node, value: object) -> bool:
    """A yes or no, an index or a sign: the pieces between which a network's kinks lie."""
    if node.op != "call_function" or not isinstance(value, Tensor):
        return False
    return not value.is_floating_point() or node.target in _SIGNS


def _replayed(
    subject: CheckedModel,
    row: Call,
    ask: Tensor,
    generator: torch.Generator | None = None,
    *,
    held: Mapping[str, Tensor] | None = None,
    wide: torch.dtype | None = None,
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Output and attributions by the graph, and its gates by their names.

    Its products are rounded otherwise if a generator draws how; gates that are held are as given; and wide is the dtype
    in whose place there is float64.
    """
    gates: dict[str, Tensor] = {}

    def widened(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.double() if value.dtype == wide else value
        return torch.float64 if isinstance(value, torch.dtype) and value == wide else value

    class Watching(fx.Interpreter):
        def fetch_attr(self, target: str) -> Any:
            return widened(super().fetch_attr(target))

        def run_node(self, n: fx.Node) -> Any:
            result: Any = super().run_node(n)
            if is_gate(n, result):
                if held is not None and n.name in held and held[n.name].shape == result.shape:
                    result = held[n.name].to(result.dtype)
                gates[n.name] = result
            elif generator is not None and n.target in _PRODUCTS and isinstance(result, Tensor):
                # A sum of products is rounded as its terms are large, and those are as large as its neighbours.
                over = [i for i in range(result.dim()) if i != 1] if n.target in _CONVOLUTIONS else [-1]
                size = result.square().mean(over, keepdim=True).sqrt()
                noise = torch.randn(result.shape, generator=generator).to(result)
                return result + ROUNDING * torch.finfo(result.dtype).eps * size * noise
            return result

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if wide is not None:
                args, kwargs = pytree.tree_map(widened, (args, kwargs))
            return super().call_function(target, args, kwargs)

    with torch.no_grad():
        results = Watching(subject.joint.graph).run(*named(subject, row, ask).values())
    return subject.answers(dict(zip(subject.joint.outputs, results, strict=True))), gates
