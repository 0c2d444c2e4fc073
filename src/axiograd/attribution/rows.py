"""One batch's attributions, outputs and targets as tensors with a row per sample, ready to be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import LinearTarget, logits, read_call
from axiograd._typing import Target
from axiograd.attribution.base import Attribution, SinglePass
from axiograd.attribution.passes import run
from axiograd.attribution.random_attribution import RandomAttribution
from axiograd.attribution.results import Explanation
from axiograd.attribution.x_gradient import XGradient
from axiograd.errors import NotFiniteError, TargetError


@dataclass(frozen=True)
class Rows:
    """A batch, by its number in the loader, its tensors, and a digest of what they were made from."""

    number: int
    tensors: dict[str, Tensor]
    data: str

    @property
    def nbytes(self) -> int:
        """Size of all tensors."""
        return sum(t.nbytes for t in self.tensors.values())


def rows_of(
    method: Attribution, inputs: Any, label: Any, target: Any, dtype: torch.dtype | None, call: dict[str, Any]
) -> dict[str, Tensor]:
    """Attribute one batch."""
    explanation, chosen = _explained(method, inputs, label, target, call)
    arguments = read_call(inputs, call["additional_forward_args"])
    packed: Any = explanation.attributions
    by_slot = {arguments.slots[0]: packed} if arguments.single else {slot: packed[slot] for slot in arguments.slots}
    rows = {}
    for slot, attribution in by_slot.items():
        # Samples first, so that one sample's attributions lie together.
        whole = attribution.movedim(0, 1) if _word(target) == "all" else attribution
        rows[f"attributions.{slot}"] = _cast(whole, dtype)
    chosen = torch.full((arguments.batch,), chosen) if isinstance(chosen, int) else chosen
    for name, value in (("outputs", _tensor_of(explanation.outputs)), ("target", chosen), ("label", label)):
        if isinstance(value, Tensor) and value.dim() and len(value) == arguments.batch:
            rows[name] = value.detach().cpu()
    return rows


def _word(target: Any) -> str:
    return target if isinstance(target, str) else ""


def _explained(
    method: Attribution, inputs: Any, label: Any, target: Any, call: dict[str, Any]
) -> tuple[Explanation, Target]:
    chosen: Target = target
    if _word(target) == "label":
        if label is None:
            raise TargetError(
                "target='label', but the batches have no label: give target= 'predicted', a class index, 'all', a "
                "callable, or None for a model with a single output; or say with split= where the label is."
            )
        chosen = label
    elif _word(target) == "predicted":
        if isinstance(method, SinglePass | XGradient | RandomAttribution):
            # These ask for the score of one point, x itself: no second forward pass is needed to know the class.
            predicted = _Predicted()
            return method.explain(inputs, predicted, **call), predicted.found
        chosen = _predicted(method, inputs, call)
    return method.explain(inputs, chosen, **call), chosen


class _Predicted(LinearTarget):
    """Each sample's largest output, Σ_c [c = argmax F] · F_c: which one it was is kept."""

    def __init__(self) -> None:
        super().__init__(torch.empty(0))
        object.__setattr__(self, "found", None)  # the base is frozen

    found: Tensor | None

    def __call__(self, output: Any) -> Tensor:
        tensor = logits(output)
        index = _largest(tensor)
        object.__setattr__(self, "found", index)
        return tensor.gather(1, index[:, None]).squeeze(1)


def _largest(output: Tensor) -> Tensor:
    if output.dim() != 2:  # noqa: PLR2004  # samples and classes
        raise TargetError(
            f"target='predicted' needs outputs [batch, classes], got shape {tuple(output.shape)}: pass a callable."
        )
    return output.detach().argmax(1)


def _predicted(method: Attribution, inputs: Any, call: dict[str, Any]) -> Tensor:
    """The class at the end of the path, for methods that look at other points too."""
    read = method._call(inputs, None, call["baselines"], call["additional_forward_args"], create_graph=False)  # noqa: SLF001
    with method._guarded(read, preserve=True), torch.no_grad():  # noqa: SLF001
        return _largest(logits(run(read.model, read.arguments, read.arguments.features)))


def _tensor_of(outputs: Any) -> Tensor | None:
    try:
        return logits(outputs)
    except TargetError:
        return None


def _cast(attribution: Tensor, dtype: torch.dtype | None) -> Tensor:
    cast = attribution.detach().to("cpu", dtype or attribution.dtype)
    if dtype is not None and not bool(cast.isfinite().all()):
        raise NotFiniteError(
            f"attributions of up to {float(attribution.abs().max()):.3g} do not fit into {dtype}: store them as "
            "torch.bfloat16 or torch.float32."
        )
    return cast
