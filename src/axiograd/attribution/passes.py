"""One forward pass and one backward pass: outputs, scores and their gradients with respect to the features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from axiograd.attribution.arguments import Arguments, Model
from axiograd.errors import DisconnectedError, NotFiniteError
from axiograd.homogeneity.tracing.failure import wrong_format
from axiograd.homogeneity.tracing.private_torch import compiled_from

#: From the model's output to its scores, ``[batch]`` or ``[batch, n]``.
Score: TypeAlias = Callable[[Any], Tensor]

#: Outputs whose gradients are computed in one batched backward pass when the target is "all".
_OUTPUTS_AT_ONCE = 64


@dataclass(eq=False, slots=True)
class Pass:
    """What one forward and one backward pass gave."""

    outputs: Any
    scores: Tensor
    gradients: tuple[Tensor, ...]

    def check_finite(self, x: Sequence[Tensor]) -> None:
        """Raise if anything is NaN or Inf, and say which samples."""
        check_finite(x, self.scores, self.gradients)


def leaves(features: Sequence[Tensor], *, create_graph: bool) -> tuple[Tensor, ...]:
    """Tensors to differentiate by: the user's own where their graph is wanted, fresh ones otherwise."""
    return tuple(x if create_graph and x.requires_grad else x.detach().requires_grad_() for x in features)


def run(model: Model, arguments: Arguments, features: Sequence[Tensor]) -> Any:
    """Call the model on copies, so that a layer that works in place changes neither leaves nor the user's tensors."""
    # Compiled code works on copies anyway, and its tracer warns about tensors that are not leaves.
    compiled = compiled_from(model) is not None
    try:
        return arguments.call(model, [x if compiled and x.is_leaf else x.clone() for x in features])
    except RuntimeError as error:
        wrong = wrong_format(model, features, error)
        if wrong is None:
            raise
        raise wrong from error


def differentiate(model: Model, arguments: Arguments, score: Score, *, create_graph: bool) -> Pass:
    """∂ score / ∂ feature for every sample, with a graph to the parameters if ``create_graph``."""
    x = leaves(arguments.features, create_graph=create_graph)
    outputs = run(model, arguments, x)
    scores = score(outputs)
    return Pass(outputs, scores, gradient(scores, x, create_graph=create_graph))


def gradient(scores: Tensor, x: Sequence[Tensor], *, create_graph: bool) -> tuple[Tensor, ...]:
    """Gradients of ``[batch]`` scores, or of ``[batch, n]`` scores as ``[n, batch, ...]`` by batched products."""
    if not scores.requires_grad:
        raise DisconnectedError(
            "the model's output has no gradient: it was computed under torch.no_grad(), detached, turned into an "
            "integer (argmax?), or does not depend on the input at all. Remove the .detach() / no_grad in the model."
        )
    if scores.dim() == 1:
        total = scores if len(scores) == 1 else scores.sum()
        return _grad(total, x, None, create_graph=create_graph, retain=create_graph)
    per_output = scores.sum(0)
    basis = torch.eye(len(per_output), dtype=scores.dtype, device=scores.device).split(_OUTPUTS_AT_ONCE)
    parts = [
        _grad(per_output, x, rows, create_graph=create_graph, retain=create_graph or i + 1 < len(basis))
        for i, rows in enumerate(basis)
    ]
    return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))


def _grad(
    total: Tensor, x: Sequence[Tensor], vectors: Tensor | None, *, create_graph: bool, retain: bool
) -> tuple[Tensor, ...]:
    try:
        found: tuple[Tensor | None, ...] = torch.autograd.grad(
            total,
            list(x),
            vectors,
            retain_graph=retain,
            create_graph=create_graph,
            allow_unused=True,
            is_grads_batched=vectors is not None,
        )
    except RuntimeError as error:
        if "checkpoint" in str(error).lower():
            raise DisconnectedError(
                "the model uses reentrant checkpointing, through which no gradient with respect to inputs can be "
                "taken. Call torch.utils.checkpoint.checkpoint(..., use_reentrant=False)."
            ) from error
        raise
    if all(g is None for g in found):
        raise DisconnectedError(
            "the model's output does not depend on any of the floating-point inputs: something on the way detaches "
            "them (.detach(), .data, .item(), torch.no_grad(), numpy), or ignores them."
        )
    n = () if vectors is None else (len(vectors),)
    return tuple(
        xi.new_zeros((*n, *xi.shape)) if g is None else g.to_dense() if g.layout != xi.layout else g
        for g, xi in zip(found, x, strict=True)
    )


def check_finite(
    x: Sequence[Tensor], scores: Tensor, gradients: Sequence[Tensor], products: Sequence[Tensor] = ()
) -> None:
    """Raise if anything is NaN or Inf, and say which samples; `products` of both, where they are at hand, tell."""
    # A sum is finite only if every term is, and costs one number to read; an overflow is told apart below.
    terms = (scores, *products) if products else (*x, scores, *gradients)
    sums = [t.detach().sum(dtype=torch.promote_types(t.dtype, torch.float32)) for t in terms]
    on_cpu = all(s.device.type == "cpu" for s in sums)  # elsewhere every number that is read makes the host wait
    if all(map(isfinite, sums)) if on_cpu else bool(torch.stack([s.double() for s in sums]).isfinite().all()):
        return
    gradient_batch_dim = scores.dim() - 1
    for name, tensors, batch_dim, remedy in (
        ("inputs", x, 0, "Clean the data (masks with -inf belong in additional_forward_args)"),
        ("outputs", (scores,), 0, "The model overflows or divides by zero there; try float32 or float64"),
        (
            "gradients",
            gradients,
            gradient_batch_dim,
            "Is there a root or a norm at zero? Its gradient does not exist there: mask the zeros out before the root",
        ),
    ):
        for tensor in tensors:
            bad = ~tensor.detach().isfinite()
            if bool(bad.any()):
                samples = (
                    bad.movedim(batch_dim, 0).reshape(bad.shape[batch_dim], -1).any(1).nonzero().flatten().tolist()
                )
                raise NotFiniteError(f"NaN or Inf in the {name} of sample {str(samples[:8])[1:-1]}. {remedy}.")


def detached(outputs: Any) -> Any:
    """The same structure without graphs."""
    return pytree.tree_map_only(Tensor, Tensor.detach, outputs)
