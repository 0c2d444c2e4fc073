"""One batch's attributions, outputs and targets as tensors with a row per sample, ready to be stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from axiograd._calls import LinearTarget, logits, read_call
from axiograd.attribution.base import Attribution, SinglePass
from axiograd.attribution.passes import run
from axiograd.errors import NotFiniteError, TargetError


def rows_of(
    method: Attribution, inputs: Any, label: Any, target: Any, dtype: torch.dtype | None, call: dict[str, Any]
) -> dict[str, Tensor]:
    """Attribute one batch; targets are the label, the largest output ("predicted"), or what `attribute` takes."""
    chosen, every = target, isinstance(target, str) and target == "all"
    if isinstance(target, str) and target == "label":
        if label is None:
            raise TargetError(
                "target='label', but the batches have no label: give target= 'predicted', a class index, 'all', a "
                "callable, or None for a model with a single output; or say with split= where the label is."
            )
        chosen = label
    elif isinstance(target, str) and target == "predicted":
        # Methods of one pass score x itself: no second forward pass is needed to know the class.
        chosen = Predicted() if isinstance(method, SinglePass) else _predicted(method, inputs, call)
    explanation = method.explain(inputs, chosen, **call)
    chosen = chosen.found if isinstance(chosen, Predicted) else chosen
    arguments = read_call(inputs, call["additional_forward_args"])
    packed: Any = explanation.attributions
    by_slot = {arguments.slots[0]: packed} if arguments.single else {slot: packed[slot] for slot in arguments.slots}
    # Samples first, so that one sample's attributions lie together.
    rows = {f"attributions.{slot}": _cast(a.movedim(0, 1) if every else a, dtype) for slot, a in by_slot.items()}
    chosen = torch.full((arguments.batch,), chosen) if isinstance(chosen, int) else chosen
    try:
        outputs = logits(explanation.outputs)
    except TargetError:
        outputs = None
    for name, value in (("outputs", outputs), ("target", chosen), ("label", label)):
        if isinstance(value, Tensor) and value.dim() and len(value) == arguments.batch:
            rows[name] = value.detach().cpu()
    return rows


class Predicted(LinearTarget):
    """Each sample's largest output, Σ_c [c = argmax F] · F_c: which one it was is kept."""

    def __init__(self) -> None:
        super().__init__(torch.empty(0))

    found: Tensor | None = None

    def __call__(self, output: Any) -> Tensor:
        tensor = logits(output)
        index = _largest(tensor)
        object.__setattr__(self, "found", index)  # the base is frozen
        return tensor.gather(1, index[:, None]).squeeze(1)


def _predicted(method: Attribution, inputs: Any, call: dict[str, Any]) -> Tensor:
    """The class at the end of the path, for methods that look at other points too."""
    read = method._call(inputs, None, call["baselines"], call["additional_forward_args"], create_graph=False)  # noqa: SLF001
    with method._guarded(read, preserve=True), torch.no_grad():  # noqa: SLF001
        return _largest(logits(run(read.model, read.arguments, read.arguments.features)))


def _largest(output: Tensor) -> Tensor:
    if output.dim() != 2:  # noqa: PLR2004  # samples and classes
        raise TargetError(
            f"target='predicted' needs outputs [batch, classes], got shape {tuple(output.shape)}: pass a callable."
        )
    return output.detach().argmax(1)


def _cast(attribution: Tensor, dtype: torch.dtype | None) -> Tensor:
    cast = attribution.detach().to("cpu", dtype or attribution.dtype)
    if dtype is not None and not bool(cast.isfinite().all()):
        raise NotFiniteError(
            f"attributions of up to {float(attribution.abs().max()):.3g} do not fit into {dtype}: store them as "
            "torch.bfloat16 or torch.float32."
        )
    return cast
