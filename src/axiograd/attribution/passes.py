"""One forward pass and one backward pass: outputs, scores, gradients; and the context that leaves a model as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from axiograd._calls import Call, Model
from axiograd._state import (
    TRACE_LOCK,
    all_modules,
    branches_run_plainly,
    compiled_from,
    preserved_buffers,
    running_eagerly,
    why_it_fails,
    with_buffers,
)
from axiograd.attribution.sums import FINE
from axiograd.errors import DisconnectedError, InputError, NotFiniteError

#: From the model's output to its scores, ``[batch]`` or ``[batch, n]``.
Score: TypeAlias = Callable[[Any], Tensor]

#: What torch raises for inputs that a layer cannot take.
_OF_WRONG_INPUTS = (RuntimeError, TypeError, ValueError, IndexError)

#: Outputs whose gradients are computed in one batched backward pass when the target is "all".
_OUTPUTS_AT_ONCE = 64


@dataclass(eq=False, slots=True)
class Pass:
    """What one forward and one backward pass gave."""

    outputs: Any
    scores: Tensor
    gradients: tuple[Tensor, ...]


def leaves(features: Sequence[Tensor], *, create_graph: bool) -> tuple[Tensor, ...]:
    """Tensors to differentiate by: the user's own where their graph is wanted, fresh ones otherwise."""
    return tuple(x if create_graph and x.requires_grad else x.detach().requires_grad_() for x in features)


def run(model: Model, arguments: Call, features: Sequence[Tensor]) -> Any:
    """Call the model on copies, so that a layer that works in place changes neither leaves nor the user's tensors."""
    # Compiled code works on copies anyway, and its tracer warns about tensors that are not leaves.
    compiled = compiled_from(model) is not None
    try:
        return arguments.call(model, [x if compiled and x.is_leaf else x.clone() for x in features])
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        if type(error) not in _OF_WRONG_INPUTS:  # a user's own, and out of memory
            raise
        raise without_batch(model, arguments) or why_it_fails(model, features, error) from error


def without_batch(model: Model, arguments: Call) -> InputError | None:
    """What to do about one sample that is not in a batch, None if the model fails on a batch of it too."""
    features = arguments.features
    with suppress(Exception), attribution_pass(model, features[0].device, create_graph=False, preserve=True):
        arguments.call(model, [x.detach().requires_grad_()[None].clone() for x in features])
        shapes = ", ".join(str(tuple(x.shape)) for x in features)
        return InputError(
            f"the batch dimension is missing: the model fails on an input of shape {shapes}, and takes it as a batch "
            "of one, x[None]."
        )
    return None


def differentiate(model: Model, arguments: Call, score: Score, *, create_graph: bool) -> Pass:
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
    x: Sequence[Tensor],
    scores: Tensor,
    gradients: Sequence[Tensor],
    products: Sequence[Tensor] = (),
    *,
    batch: int | None = None,
) -> None:
    """Raise if anything is NaN or Inf, and say which samples; `products` of both, where they are at hand, tell.

    Rows may be steps of a path, each with a `batch` of samples.
    """
    # A sum is finite only if every term is; one that overflows is told apart below.
    terms = (scores, *products) if products else (*x, scores, *gradients)
    if all(bool(t.detach().sum(dtype=torch.promote_types(t.dtype, torch.float32)).isfinite()) for t in terms):
        return
    of_gradients = "Is there a root or a norm at zero? Its gradient does not exist there: mask the zeros out before it"
    for name, tensors, batch_dim, remedy in (
        ("inputs", x, 0, "Clean the data (masks with -inf belong in additional_forward_args)"),
        ("outputs", (scores,), 0, "The model overflows or divides by zero there; try float32 or float64"),
        ("gradients", gradients, scores.dim() - 1, of_gradients),
    ):
        for tensor in tensors:
            bad = ~tensor.detach().isfinite().movedim(batch_dim, 0)
            if bool(bad.any()):
                rows = bad.reshape(len(bad), -1).any(1)
                samples = listed(rows.reshape(-1, batch or len(rows)).any(0))
                raise NotFiniteError(f"NaN or Inf in the {name} of sample {samples}. {remedy}.")


def listed(bad: Tensor) -> str:
    """The first of the samples that something is true of, as a message names them.

    >>> listed(torch.tensor([False, True, True]))
    '1, 2'
    """
    return ", ".join(map(str, bad.nonzero().flatten().tolist()[:8]))


#: Numbers in one pass of convolutions on a processor, sixteen photos: of fewer rows, one thread convolves by a slower
#: algorithm, and of 50 a ResNet-18 costs half as much again.
_CACHED = 16 * 3 * 224 * 224
#: Numbers in one pass at most, where there are large linear layers, whose weights are read once a pass, and on other
#: devices.
_MOST = 2 * _CACHED
#: Rows in one pass at least and at most, and numbers in rows that are so small that there may be more of them.
_FEWEST, _MANY, _SMALL = 8, 512, 2**16


def rows_per_pass(model: Model, features: Sequence[Tensor]) -> int:
    """As many rows as a processor's caches like, and enough of them for the weights of linear layers.

    >>> rows_per_pass(nn.Conv2d(3, 8, 3), [torch.zeros(1, 3, 224, 224)])
    16
    >>> rows_per_pass(nn.Linear(20, 3), [torch.zeros(1, 20)])
    3276
    """
    numbers = max(1, sum(x[0].numel() for x in features))
    wanted = _MOST
    if features[0].device.type == "cpu":
        linear = sum(m.in_features * m.out_features for m in all_modules(model) if isinstance(m, nn.Linear))
        wanted = min(max(linear, _CACHED), _MOST)
    return max(_FEWEST, min(wanted // numbers, _MANY), _SMALL // numbers)


def find_rows(model: Model, arguments: Call, baselines: Sequence[Tensor]) -> Call | None:
    """The call that knows which arguments beside the features have a row per sample; None if rows interact.

    A tensor with as many rows as the batch has samples may also be a constant, a matrix say, and is then to be left
    alone. So the model is asked: the first and the last sample, a few times each, must have the outputs that they have
    in their batch, at the inputs and halfway to the baselines, in case that one of the two is where the model is flat.

    >>> from axiograd._calls import read_call
    >>> x, matrix = torch.ones(2, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> find_rows(lambda x, w: x @ w, read_call(x, matrix), [0 * x]).per_sample
    frozenset()
    """
    unclear = arguments.rows_beside()
    if not unclear:
        return arguments
    features = arguments.features
    middle = [(x + b) / 2 for x, b in zip(features, baselines, strict=True)]
    n_copies = 3 if arguments.batch != 3 else 2  # noqa: PLR2004 (another number: a sum over rows must differ)
    copies = [torch.full((n_copies,), sample, device=features[0].device) for sample in (0, arguments.batch - 1)]
    with attribution_pass(model, features[0].device, create_graph=False, preserve=True), torch.no_grad():
        whole = [run(model, arguments, point) for point in (features, middle)]
        for n in range(len(unclear), -1, -1):
            for chosen in combinations(unclear, n):
                found = replace(arguments, per_sample=frozenset(chosen))
                with suppress(Exception):  # a matrix that no longer fits
                    if all(
                        _same(outputs, run(model, found.beside(rows), [x[rows] for x in point]), rows)
                        for outputs, point in zip(whole, (features, middle), strict=True)
                        for rows in copies
                    ):
                        return found
    return None


def _same(outputs: Any, found: Any, rows: Tensor) -> bool:
    """Whether rows of outputs are what was found, but for the rounding of another batch size."""
    pairs = zip(pytree.tree_leaves(outputs), pytree.tree_leaves(found), strict=True)
    return all(
        torch.allclose(whole[rows], part, rtol=0, atol=FINE * float(whole.abs().max()))
        for whole, part in pairs
        if isinstance(whole, Tensor) and whole.is_floating_point() and whole.dim()
    )


def detached(outputs: Any) -> Any:
    """The same structure without graphs."""
    return pytree.tree_map_only(Tensor, Tensor.detach, outputs)


def attribution_pass(model: Model, device: torch.device, *, create_graph: bool, preserve: bool) -> ExitStack:
    """Gradients on, whatever surrounds the call; with ``preserve``, buffers and random state come back unchanged.

    Buffers are swapped for copies instead of being written back: what was saved for a later ``backward()`` then keeps
    its version.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
            stack.enter_context(torch.inference_mode(mode=False))  # which turns gradients on, too
        if create_graph:
            # Flash and efficient attention, cond and compiled code have no second derivative.
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(branches_run_plainly())
            stack.enter_context(running_eagerly())
            if torch.is_autocast_enabled(device.type):
                torch.clear_autocast_cache()  # weights cached under no_grad would not lead back to the parameters
        if device.type == "cuda" and any(isinstance(module, nn.RNNBase) for module in all_modules(model)):
            # cuDNN's recurrent layers have a gradient in train mode only, and no second one.
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        if preserve:
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            if device.type == "cuda":
                stack.callback(torch.cuda.set_rng_state, torch.cuda.get_rng_state(device), device)
        stack.enter_context(TRACE_LOCK)
        if preserve and (owners := with_buffers(model)):
            stack.enter_context(preserved_buffers(owners))
        return stack.pop_all()
