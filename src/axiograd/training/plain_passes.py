"""A prior on a model whose wrapper must see ordinary forward and backward passes: sharded, or with a static graph."""

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from axiograd._state import all_modules
from axiograd._typing import Inputs, Target
from axiograd.attribution import Explanation, Gradient, InputXGradient, Saliency, XGradient
from axiograd.errors import ConfigurationError
from axiograd.training.bound import Bound
from axiograd.training.held_gates.operators import NotHeldError
from axiograd.training.held_gates.replay import Replayed, look, refused
from axiograd.training.targets import Residual

#: Functions of the outputs' gradient, which the residual can be a target of.
OF_THE_GRADIENT = (XGradient, InputXGradient, Gradient, Saliency)


def looked_at(bound: Bound, inputs: Inputs, target: Target, additional: Any, found: list[Replayed]) -> Explanation:
    """Outputs and attributions of a first pass, which leaves the model as it was."""
    if isinstance(target, str) and target == "all":
        raise _must_be_held(bound, "each output is attributed")
    method = bound.method
    call = method._call(inputs, target, None, additional, create_graph=True)  # noqa: SLF001 (a method's own)
    bound.last = ""
    through = partial(look, found=found, shared=isinstance(target, Residual))
    try:
        looked: Explanation = method._explained(replace(call, through=through), target)  # noqa: SLF001
    except NotHeldError as reason:
        _recover(bound.model)
        raise _must_be_held(bound, str(reason)) from reason
    return looked


def connected(
    total: Tensor, others: tuple[Any, ...], replayed: Replayed, bound: Bound
) -> tuple[Tensor, Tensor, Tensor, Any, Any]:
    """The same terms: the total is trained by plain passes of the model, the others raise."""
    try:
        task, prior, outputs, attributions = refused(others)
        return replayed.connect(total), task, prior, outputs, attributions
    except NotHeldError as reason:
        _recover(bound.model)
        raise _must_be_held(bound, str(reason)) from reason


def check_plain_passes(bound: Bound, *, twice: bool) -> None:
    """Raise where the model's wrapper wants plain passes, and what is asked for cannot be had by them."""
    method = bound.method
    if twice:
        raise _must_be_held(bound, "double_backward=True asks for second derivatives")
    if getattr(method, "layer", None) is not None:
        raise _must_be_held(bound, "the output of a layer is attributed to")
    if type(method) not in OF_THE_GRADIENT:
        raise _must_be_held(bound, f"{type(method).__name__} is more than a function of one gradient at the input")
    if bound.plain_passes.startswith("the model is sharded") and getattr(method, "degree", 1) is None:
        raise ConfigurationError(
            "the model is sharded, and a proof needs whole weights: certify it before it is sharded, and give the "
            "degree, AttributionLoss(..., degree=certificate.degree)."
        )


def _must_be_held(bound: Bound, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{bound.plain_passes}, so a prior is trained by plain passes with held gates, which is not possible here: "
        f"{reason.removesuffix('.')}. Use DistributedDataParallel without static_graph, which allows second "
        "derivatives, or a task loss alone."
    )


def _recover(model: Any) -> None:
    """Tell a sharded model that the pass it is in will not end."""
    for part in all_modules(model):
        reset: Any = getattr(part, "reset_iter_state", None)
        if reset is not None:
            reset()
            return
