"""One forward pass and one backward pass: outputs, scores, gradients; and the context that leaves a model as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from math import inf, isfinite
from types import TracebackType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.backends import cuda as attention
from torch.utils import _pytree as pytree

from axiograd._calls import Call, Model
from axiograd._state import (
    TRACE_LOCK,
    all_modules,
    branches_run_plainly,
    compiled_from,
    preserved_buffers,
    with_buffers,
    wrong_format,
)
from axiograd.errors import DisconnectedError, InputError, NotFiniteError

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


def run(model: Model, arguments: Call, features: Sequence[Tensor]) -> Any:
    """Call the model on copies, so that a layer that works in place changes neither leaves nor the user's tensors."""
    # Compiled code works on copies anyway, and its tracer warns about tensors that are not leaves.
    compiled = compiled_from(model) is not None
    try:
        return arguments.call(model, [x if compiled and x.is_leaf else x.clone() for x in features])
    except RuntimeError as error:
        wrong = wrong_format(model, features, error) or without_batch(model, arguments)
        if wrong is None:
            raise
        raise wrong from error


def without_batch(model: Model, arguments: Call) -> InputError | None:
    """What to do about one sample that is not in a batch, None if the model fails on a batch of it too."""
    features = arguments.features
    with suppress(Exception), attribution_pass(model, features[0].device, create_graph=False, preserve=True):
        with torch.no_grad():
            arguments.call(model, [x[None].clone() for x in features])
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
                rows = bad.movedim(batch_dim, 0).reshape(bad.shape[batch_dim], -1)
                raise NotFiniteError(f"NaN or Inf in the {name} of sample {listed(rows.any(1))}. {remedy}.")


def listed(bad: Tensor) -> str:
    """The first of the samples that something is true of, as a message names them.

    >>> listed(torch.tensor([False, True, True]))
    '1, 2'
    """
    return ", ".join(map(str, bad.nonzero().flatten().tolist()[:8]))


#: √eps of float32: what is closer is rounding, whatever the format.
FINE = float(torch.finfo(torch.float32).eps ** 0.5)
#: Up to so many numbers on the CPU, Python compares faster than PyTorch.
_FEW = 32


def adds_up(attributions: Sequence[Tensor], scores: Tensor) -> bool:
    """Whether Σ attribution is each sample's score, to rounding; False if a number is NaN or Inf.

    >>> adds_up([torch.tensor([[1.0, 2.0]])], torch.tensor([3.0]))
    True
    """
    totals, scores = sums(attributions, scores)
    if scores.device.type == "cpu" and scores.numel() <= _FEW:
        if scores.dim() > 1:
            totals, scores = totals.flatten(), scores.flatten()
        pairs = zip(totals.tolist(), scores.tolist(), strict=True)
        return all(abs(total - score) <= FINE * abs(score) < inf for total, score in pairs)
    return torch.allclose(totals, scores, rtol=FINE, atol=0.0) and isfinite(float(scores.sum()))


def sums(attributions: Sequence[Tensor], scores: Tensor) -> tuple[Tensor, Tensor]:
    """Σ attribution, and the scores in the same order and number format, float32 or finer; both without graphs."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    scores = _without_graph(scores)
    if scores.dtype != wide:
        scores = scores.to(wide)
    if scores.dim() > 1:  # for the target "all", scores are [batch, n] and attributions [n, batch, ...]
        scores = scores.movedim(0, -1)
    return summed([_without_graph(a) for a in attributions], scores.dim(), wide), scores


def summed(tensors: Sequence[Tensor], kept: int, wide: torch.dtype) -> Tensor:
    """Σ over all tensors and all their dimensions but the first `kept`."""
    features = [tuple(range(kept, tensor.dim())) for tensor in tensors]
    parts = [t.sum(dims, dtype=wide) if dims else t.to(wide) for t, dims in zip(tensors, features, strict=True)]
    return parts[0] if len(parts) == 1 else sum(parts[1:], start=parts[0])


def _without_graph(tensor: Tensor) -> Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


def detached(outputs: Any) -> Any:
    """The same structure without graphs."""
    return pytree.tree_map_only(Tensor, Tensor.detach, outputs)


class attribution_pass(AbstractContextManager[None]):  # noqa: N801 - used as a function
    """Gradients on, whatever surrounds the call; with ``preserve``, buffers and random state come back unchanged.

    Buffers are swapped for copies instead of being written back: what was saved for a later
    ``backward()`` then keeps its version. Written without generators, which cost a small network more than its pass.
    """

    def __init__(self, model: Model, device: torch.device, *, create_graph: bool, preserve: bool) -> None:
        self._model, self._device = model, device
        self._create_graph, self._preserve = create_graph, preserve
        self._undo: list[Callable[[], Any]] = []

    def __enter__(self) -> None:
        try:
            self._prepare()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            self._undo.pop()()

    def _prepare(self) -> None:
        device = self._device
        if torch.is_inference_mode_enabled():
            self._within(torch.inference_mode(mode=False))
        if not torch.is_grad_enabled():
            self._within(torch.enable_grad())
        if self._create_graph:
            # Flash and efficient attention, cond, compiled code and cuDNN's recurrent layers have no second derivative.
            self._undo.append(_attention_by_products())
            self._within(branches_run_plainly())
            if "torch._dynamo" in sys.modules:
                self._within(torch.compiler.set_stance("force_eager"))
            if torch.is_autocast_enabled(device.type):
                torch.clear_autocast_cache()  # weights cached under no_grad would not lead back to the parameters
        if device.type == "cuda" and any(isinstance(m, nn.RNNBase) for m in all_modules(self._model)):
            self._within(torch.backends.cudnn.flags(enabled=False))
        if self._preserve:
            self._undo.append(_random_state_kept(device))
        TRACE_LOCK.acquire()
        self._undo.append(TRACE_LOCK.release)
        if self._preserve and (owners := with_buffers(self._model)):
            self._within(preserved_buffers(owners))

    def _within(self, context: AbstractContextManager[Any]) -> None:
        context.__enter__()
        self._undo.append(lambda: context.__exit__(None, None, None))


def _random_state_kept(device: torch.device) -> Callable[[], None]:
    """What `torch.random.fork_rng` does, written only if something was drawn: that is most of its cost."""
    before = torch.get_rng_state()
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def undo() -> None:
        if not torch.equal(before, torch.get_rng_state()):
            torch.set_rng_state(before)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, device)

    return undo


def _attention_by_products() -> Callable[[], None]:
    """What `sdpa_kernel(SDPBackend.MATH)` does, at a tenth of its cost."""
    flash, efficient = attention.flash_sdp_enabled(), attention.mem_efficient_sdp_enabled()
    cudnn, products = attention.cudnn_sdp_enabled(), attention.math_sdp_enabled()

    def enable(flash: bool, efficient: bool, cudnn: bool, products: bool) -> None:
        attention.enable_flash_sdp(flash)
        attention.enable_mem_efficient_sdp(efficient)
        attention.enable_cudnn_sdp(cudnn)
        attention.enable_math_sdp(products)

    enable(flash=False, efficient=False, cudnn=False, products=True)
    return lambda: enable(flash, efficient, cudnn, products)
