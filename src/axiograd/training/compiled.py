"""A training step with a prior as one compiled function."""

import warnings
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

from axiograd._state import PARALLEL
from axiograd.attribution.passes import detached
from axiograd.errors import ConfigurationError
from axiograd.priors import Prior
from axiograd.priors.batch_mean import n_ranks, share_weights, weigh_traced
from axiograd.training.bound import output_shape
from axiograd.training.loss import AttributionLoss, LossTerms
from axiograd.training.plain_passes import OF_THE_GRADIENT
from axiograd.training.targets import output_weights


class CompileFallbackWarning(UserWarning):
    """The step could not be compiled and runs as it is written."""


class CompiledStep:
    """Terms and gradients of an `AttributionLoss` by `torch.compile` of the whole step: θ.grad += ∂total/∂θ.

    A compiled module has no second derivative, a compiled step needs none: the attribution (`torch.func.vjp`) is
    inside what is differentiated (`torch.func.grad`) before it is compiled. Gradients are added to `.grad` as
    `backward()` does, so zeroing, clipping and the optimizer stay as they are; the terms come detached. The first
    step runs as it is written, with all checks of the loss. What cannot be compiled (other methods than XGradient,
    InputXGradient, Gradient and Saliency, several inputs, models that update buffers, wrapped models) runs uncompiled,
    after a `CompileFallbackWarning` that says why; `reason` has it, too.

    >>> from axiograd.priors import L1
    >>> model = nn.Linear(3, 2, bias=False)
    >>> loss = AttributionLoss(nn.functional.cross_entropy, L1(), degree=1)
    >>> step = CompiledStep(loss, model, backend="eager")
    >>> for _ in range(2):
    ...     terms = step(torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> model.weight.grad.shape, step.compiled
    (torch.Size([2, 3]), True)
    """

    def __init__(self, loss: AttributionLoss, model: nn.Module, **compile_options: Any) -> None:
        self.loss = loss
        self.model = model
        # Whole or not at all: a step in pieces would compute the pieces' gradients one by one.
        self.compile_options = {"fullgraph": True, **compile_options}
        self.reason: str | None = None
        self._step: Callable[..., Any] | None = None
        self._degree = 1.0

    @property
    def compiled(self) -> bool:
        """Whether the next step is the compiled one."""
        return self._step is not None

    def __call__(self, inputs: Any, target: Any, *, attribution_target: Any = None, **arguments: Any) -> LossTerms:
        """The terms of one batch; gradients are added to the parameters'."""
        if not self.loss.training:
            raise ConfigurationError("the loss is in eval mode: a step computes gradients; call loss.train() first.")
        if isinstance(self.loss.prior, Prior):
            self.loss.prior.check_arguments(arguments)
        failure = None
        if self._step is not None:
            # As before every step as written: weights have moved, and with them a bias that was zero may have.
            self._degree = self._admitted(inputs, attribution_target)
            try:
                return self._compiled(self._step, inputs, target, attribution_target, arguments)
            except Exception as error:  # noqa: BLE001  # whatever a compiler may raise: the step as written decides
                failure = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        terms = self.loss(self.model, inputs, target, attribution_target=attribution_target, **arguments)
        terms.total.backward()
        if failure is not None:
            self._step = None
            self._fall_back(failure)
        elif self.reason is None:
            self._prepare(inputs, attribution_target)
        return LossTerms(**detached(vars(terms)))

    def _prepare(self, inputs: Any, target: Any) -> None:
        """After a step as it is written, with all its checks: can the next be compiled?"""
        method = self.loss.bind(self.model).method
        if type(method) not in OF_THE_GRADIENT:
            self._fall_back(f"{type(method).__name__} is not a function of the input and one gradient")
        elif self.loss.outputs == "residual":
            self._fall_back("the residual is known only after the forward pass")
        elif not isinstance(inputs, Tensor):
            self._fall_back("the inputs are not one tensor")
        elif n_ranks() > 1 or any(isinstance(part, PARALLEL) for part in self.model.modules()):
            self._fall_back("a model on several processes synchronises its gradients in backward() only")
        elif getattr(method, "baseline", None) is not None:
            self._fall_back("the method has a baseline other than zero")
        else:
            self._degree = self._admitted(inputs, target)

            def step(weighed: tuple[float, float], *args: Any) -> Any:
                weigh_traced(*weighed)
                found = grad(self._objective, has_aux=True)(*args)
                weigh_traced(1.0, 1.0)
                return found

            self._step = torch.compile(_with_own_code(step), **self.compile_options)

    def _admitted(self, inputs: Any, target: Any) -> float:
        """The degree by which the method divides; it refuses here what it refuses in a step as written."""
        method = self.loss.bind(self.model).method
        degree: float = method._call(inputs, target, None, None, create_graph=True).degree  # noqa: SLF001 (the same checks)
        return degree

    def _objective(
        self,
        parameters: dict[str, Tensor],
        constants: dict[str, Tensor],
        x: Tensor,
        target: Any,
        weights: Tensor,
        scale: Tensor,
        arguments: dict[str, Any],
        every: bool,
    ) -> tuple[Tensor, tuple[Any, ...]]:
        def model(value: Tensor) -> Any:
            return functional_call(self.model, {**parameters, **constants}, (value,))

        outputs, pullback = vjp(model, x)[:2]
        cotangents = weights.to(outputs).reshape(-1, *outputs.shape)
        gradient = vmap(pullback)(cotangents)[0] if every else pullback(cotangents[0])[0]
        attributions = self.loss.bind(self.model).method._combine(x, gradient) / self._degree  # noqa: SLF001 (its own)
        prior = self.loss.prior_of(attributions, "all" if every else None, arguments)
        task = self.loss.task_loss(outputs, target)
        return task + scale * prior, (task, prior, outputs, attributions)

    def _compiled(
        self, step: Callable[..., Any], x: Tensor, target: Any, chosen: Any, arguments: Mapping[str, Any]
    ) -> LossTerms:
        bound = self.loss.bind(self.model)
        if chosen is None:
            chosen = self.loss.choose_target(bound, x, target, None)
        weights = output_weights(chosen, output_shape(bound, x), x.device)
        trained = {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}
        constants = {name: p.detach() for name, p in self.model.named_parameters() if not p.requires_grad}
        constants |= dict(self.model.named_buffers())
        weight = self.loss.weight
        # As a tensor: a number would be compiled in, and compiled again whenever the schedule moves it.
        scale = torch.tensor(weight, dtype=x.dtype, device=x.device)
        gradients, (task, prior, outputs, attributions) = step(
            share_weights(),
            trained,
            constants,
            x.detach(),
            target,
            weights,
            scale,
            dict(arguments),
            isinstance(chosen, str),
        )
        for name, gradient in gradients.items():
            parameter = self.model.get_parameter(name)
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        self.loss.step += 1
        return LossTerms(task + weight * prior, task, prior, outputs, attributions, weight)

    def _fall_back(self, reason: str) -> None:
        self.reason = reason
        warnings.warn(
            f"the training step runs uncompiled: {reason.removesuffix('.')}.", CompileFallbackWarning, stacklevel=3
        )


def _with_own_code(function: Any) -> Callable[..., Any]:
    """The same function with a code object of its own: compilers count recompilations, and give up, by code object."""
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, closure=function.__closure__)
