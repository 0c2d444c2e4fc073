"""The training objective of the paper: task loss + λ·Ω(attributions)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from axiograd import priors
from axiograd._calls import LinearTarget, read_call
from axiograd._typing import Inputs, Target
from axiograd.attribution import (
    Attribution,
    Explanation,
    LogGradient,
    XGradient,
)
from axiograd.errors import ConfigurationError, DisconnectedError, TargetError
from axiograd.priors.batch_mean import share_weights
from axiograd.training.bound import Bound, output_shape
from axiograd.training.checks import check_connected, check_parts
from axiograd.training.distributed import refuse_sharded, searches_its_graph, wants_plain_passes
from axiograd.training.held_gates.chain import differentiate_chain
from axiograd.training.held_gates.lifted import differentiate_lifted
from axiograd.training.held_gates.operators import NotHeldError
from axiograd.training.held_gates.replay import Replayed
from axiograd.training.held_gates.step import differentiate_held, differentiate_shared
from axiograd.training.plain_passes import OF_THE_GRADIENT, check_plain_passes, connected, looked_at
from axiograd.training.schedules import Schedule, ensure_schedule, weight_at
from axiograd.training.targets import Outputs, Residual, attribution_target as choose_target
from axiograd.training.task import Task

#: Multiplications with weights in one forward pass from which on it pays to hold gates, with and without products
#: that task and prior share. Smaller networks spend their time between operators, of which double backward has fewer.
_PAYS = {True: 1e8, False: 1e9}
#: Up to which chains of torch's own layers are taken apart.
_CHAINS = 1e9


@dataclass(frozen=True)
class LossTerms:
    """total = task + weight·prior, with the outputs and attributions that they were made from."""

    total: Tensor
    task: Tensor
    prior: Tensor
    outputs: Any
    attributions: Any
    weight: float


class AttributionLoss(nn.Module):
    """L(F(x), y) + λ·Ω(A(F, x)) from one forward pass; `total.backward()` trains through both terms.

    λ is `weight`, a number or a schedule step -> λ. Attributed is the true class (`outputs="target"`), each output, the
    priors summed ("all"), a random combination of outputs with signs ±1 per sample ("random", for squared priors
    unbiased for "all"), what the task still gets wrong ("residual", √C·r/‖r‖ with r = ∂L/∂F), or what the method takes
    without a target (None). Further keywords go to the method; a `generator` draws combinations and, for a method that
    draws, its references.

    Where the model is piecewise linear, gradients come without second derivatives, exactly (see
    `axiograd.training.held_gates`): a prior on the residual, or on a model with one output, costs a third of a plain
    step. Small networks are differentiated twice, which is faster for them; `double_backward` says otherwise (False:
    only where it must be; True: always), and `why_twice` says why it was so in the last step.
    In `eval()` terms come without graphs.

    Hesse, Schaub-Meyer, Roth: Fast Axiomatic Attribution for Neural Networks, 2021, equation (1).

    >>> from axiograd.priors import L1
    >>> model = nn.Sequential(nn.Linear(3, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False))
    >>> loss = AttributionLoss(nn.functional.cross_entropy, L1(), weight=0.1)
    >>> terms = loss(model, torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> terms.total.backward()
    >>> bool(torch.isclose(terms.total, terms.task + 0.1 * terms.prior)), terms.attributions.shape
    (True, torch.Size([4, 3]))
    """

    def __init__(
        self,
        task_loss: Callable[[Any, Any], Tensor],
        prior: Callable[..., Tensor],
        weight: float | Schedule = 1.0,
        method: Attribution | Callable[..., Any] = XGradient,
        *,
        outputs: Outputs = "target",
        of: int | str | None = None,
        generator: torch.Generator | None = None,
        double_backward: bool | None = None,
        **method_arguments: Any,
    ) -> None:
        super().__init__()
        if outputs not in {"target", "all", "random", "residual", None}:
            raise ConfigurationError(f'outputs must be "target", "all", "random", "residual" or None, got {outputs!r}.')
        check_parts(task_loss, prior, method)
        if isinstance(method, Attribution) and method_arguments:
            raise ConfigurationError(f"{sorted(method_arguments)} cannot be given to a method that already exists.")
        self.task_loss = task_loss
        self.prior = prior
        self.schedule = ensure_schedule(weight)
        self.method = method
        self.outputs: Outputs = outputs
        self.of = of
        self.generator = generator
        self.double_backward = double_backward
        self.method_arguments = method_arguments
        #: Calls in training mode so far, which the schedule counts by; kept in `state_dict`.
        self.step = 0
        self._bound: Bound | None = None

    def extra_repr(self) -> str:
        """Task, prior, λ, method and outputs, in a line."""
        named = {"task": self.task_loss, "prior": self.prior, "method": self.method}
        words = {key: getattr(one, "__name__", None) or type(one).__name__ for key, one in named.items()}
        return (
            f"task={words['task']}, prior={words['prior']}, weight={self.weight:g}, method={words['method']}, "
            f"outputs={self.outputs!r}"
        )

    @property
    def weight(self) -> float:
        """λ of the next step."""
        return weight_at(self.schedule, self.step)

    def forward(
        self,
        model: Callable[..., Any],
        inputs: Inputs,
        target: Any,
        *,
        attribution_target: Target = None,
        additional_forward_args: Any = None,
        **prior_arguments: Any,
    ) -> LossTerms:
        """The terms of one batch; `attribution_target` overrides `outputs`."""
        bound = self.bind(model)
        if self.training and not torch.is_grad_enabled():
            raise DisconnectedError(
                "AttributionLoss is in training mode, but gradients are switched off (no_grad or inference mode); "
                "call loss.eval() for validation, or leave the context for training."
            )
        task = Task(self.task_loss, target)
        chosen = attribution_target
        if chosen is None:
            chosen = self.choose_target(bound, inputs, target, additional_forward_args, task)
        replayed: list[Replayed] = []
        try:
            explanation = self._explain(bound, inputs, chosen, additional_forward_args, task, replayed)
        except TargetError as error:
            if attribution_target is None and type(chosen) is LinearTarget:  # drawn for as many outputs as there were
                raise TargetError(
                    f"the model gave {chosen.weights.flatten(1).shape[1]} outputs per sample when this loss first saw "
                    "it, and gives a different number now: make a new AttributionLoss after exchanging its last layer."
                ) from error
            raise
        attributions = self.pick(explanation.attributions)
        prior = self.prior_of(attributions, chosen, prior_arguments)
        if self.training and not bound.connected:
            check_connected(prior, None if replayed else model)
            bound.connected = True
        value, weight = task(explanation.outputs), self.weight
        total = value + weight * prior
        terms = LossTerms(total, value, prior, explanation.outputs, explanation.attributions, weight)
        if replayed:
            share = share_weights()[0]  # of a batch that is computed in parts: other sums of terms come too late
            if share != 1:
                own = prior if isinstance(self.prior, priors.Prior) else share * prior
                terms = replace(terms, total=share * value + weight * own)
            others = (terms.task, terms.prior, terms.outputs, terms.attributions)
            terms = LossTerms(*connected(terms.total, others, replayed[0], bound), weight)
        self.step += self.training
        return terms

    def _explain(
        self,
        bound: Bound,
        inputs: Inputs,
        target: Target,
        additional: Any,
        task: Task,
        replayed: list[Replayed],
    ) -> Explanation:
        """Outputs and attributions, in a training step without second derivatives if that can be."""
        method, how = bound.method, {"create_graph": self.training}
        if self.training and bound.plain_passes:
            return looked_at(bound, inputs, target, additional, replayed)
        while self.training:
            through = self._through(bound, inputs, target, additional)
            if through is None:
                break
            further = {} if through is differentiate_held else {"task": task}
            if bound.lifted:
                through = partial(differentiate_lifted, through=through)
            call = method._call(inputs, target, None, additional, wants_outputs=True, **how)  # noqa: SLF001 (a method's own)
            call.through = partial(through, **further)
            try:
                found: Explanation = method._explained(call, target)  # noqa: SLF001
            except NotHeldError as reason:
                bound.give_up(reason)
            else:
                return found
            if isinstance(target, Residual):
                target.forget()
        explanation: Explanation = method.explain(inputs, target, additional_forward_args=additional, **how)
        return explanation

    @property
    def total_only(self) -> bool:
        """Whether gradients come by plain passes of a wrapped model, and are those of the total alone."""
        return self._bound is not None and bool(self._bound.plain_passes)

    @property
    def why_twice(self) -> str | None:
        """Why the last step took second derivatives, "" if it did not; None before the first."""
        return None if self._bound is None else self._bound.last

    def _through(self, bound: Bound, inputs: Inputs, target: Target, additional: Any) -> Callable[..., Any] | None:
        """How gradients come without second derivatives; None, and the reason in `why_twice`, where they do not."""
        every = isinstance(target, str) and target == "all"
        if bound.why_twice is None and not every:
            output_shape(bound, inputs, additional)
        bound.last = "each output is attributed" if every else bound.why_twice
        if bound.last:
            return None
        of_the_gradient = type(bound.method) in OF_THE_GRADIENT
        shared = bound.may_share and of_the_gradient and _may_share(target)
        if not bound.only_held and self.double_backward is None:
            work = bound.work * read_call(inputs, additional).batch
            if work < _CHAINS and bound.may_chain and of_the_gradient:
                return differentiate_chain
            if work < _PAYS[shared]:
                bound.last = f"it is faster for a pass of {work:.1g} multiplications"
                return None
        return differentiate_shared if shared else differentiate_held

    def bind(self, model: Callable[..., Any]) -> Bound:
        """The method on this model; made, and its wrapping checked, when the model is new."""
        if self._bound is None or self._bound.model is not model:
            refuse_sharded(model)
            if not isinstance(self.method, Attribution):
                draws = self.generator is not None and "generator" in inspect.signature(self.method).parameters
                further = {"generator": self.generator} if draws else {}
                method = self.method(model, **self.method_arguments, **further)
            elif self.method.model is model:
                method = self.method
            else:
                raise ConfigurationError(
                    f"the loss was given a {type(self.method).__name__} of another model; pass the class, or a method "
                    "of the model that the loss is called with (after wrapping it, if it is wrapped)."
                )
            if self.outputs == "residual" and not isinstance(method, OF_THE_GRADIENT):
                raise ConfigurationError(
                    f'outputs="residual" attributes a combination of the outputs at x itself, which '
                    f"{type(method).__name__} does not; use XGradient, InputXGradient, Gradient or Saliency."
                )
            self._bound = Bound(model, method, why_twice=self._twice(model, method))
            self._bound.plain_passes = wants_plain_passes(model)
            if self._bound.plain_passes:
                check_plain_passes(self._bound, twice=bool(self.double_backward))
        return self._bound

    def _twice(self, model: Any, method: Any) -> str | None:
        if self.double_backward:
            return "double_backward=True asks for it"
        if getattr(method, "layer", None) is not None:
            return "the output of a layer is attributed to"
        if type(method) not in {*OF_THE_GRADIENT, LogGradient}:
            return f"{type(method).__name__} is more than a function of one gradient at the input"
        return searches_its_graph(model)

    def choose_target(
        self, bound: Bound, inputs: Inputs, target: Any, additional: Any, task: Task | None = None
    ) -> Target:
        """What to attribute, by `outputs`."""
        if self.outputs == "residual":
            return Residual(task or Task(self.task_loss, target))
        if self.outputs in {None, "all"}:
            return self.outputs
        return choose_target(self.outputs, target, output_shape(bound, inputs, additional), self.generator)

    def pick(self, attributions: Any) -> Tensor:
        """The attributions of the input that the prior is about."""
        if isinstance(attributions, Tensor):
            return attributions
        items = attributions.items() if isinstance(attributions, Mapping) else enumerate(attributions)
        by_name: dict[int | str, Tensor] = {name: item for name, item in items if item is not None}
        if self.of is None and len(by_name) == 1:
            return next(iter(by_name.values()))
        if self.of not in by_name:
            raise ConfigurationError(
                f"attributions belong to the inputs {sorted(map(str, by_name))}; say of which one the prior is, "
                f"AttributionLoss(..., of=...), got of={self.of!r}."
            )
        return by_name[self.of]

    def prior_of(self, attributions: Tensor, target: Target, arguments: Mapping[str, Any]) -> Tensor:
        """Ω(A), for all outputs Σ_c Ω(A_c)."""
        if isinstance(target, str) and target == "all":
            return torch.stack([self.prior(one, **arguments) for one in attributions]).sum()
        return self.prior(attributions, **arguments)

    def get_extra_state(self) -> Tensor:
        """The step and the generator's state as bytes in one tensor, so that any format can store it."""
        step = torch.tensor([self.step]).view(torch.uint8)
        return step if self.generator is None else torch.cat([step, self.generator.get_state()])

    def set_extra_state(self, state: Tensor) -> None:
        """Resume where the state was taken."""
        self.step = int(state[:8].clone().view(torch.int64))
        if self.generator is not None and len(state) > 8:  # noqa: PLR2004 (bytes of the step)
            self.generator.set_state(state[8:].clone())

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the loss is not a copy of the model.
        return {**self.__dict__, "_bound": None}


def _may_share(target: Target) -> bool:
    """Whether what is attributed is a multiple of the task's own gradient: always so with one output."""
    single = type(target) is LinearTarget and target.weights.flatten(1).shape[1] == 1
    return target is None or isinstance(target, Residual) or single
