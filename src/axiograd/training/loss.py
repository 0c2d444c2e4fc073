"""The training objective of the paper: task loss + λ·Ω(attributions)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from axiograd import priors
from axiograd._calls import LinearTarget, logits, read_call, select
from axiograd._names import choose_from
from axiograd._state import unwrap_parallel
from axiograd._typing import Inputs, Target
from axiograd.attribution import Attribution, Explanation, Gradient, InputXGradient, Saliency, XGradient
from axiograd.attribution.passes import attribution_pass, differentiate, run
from axiograd.errors import ConfigurationError, DisconnectedError
from axiograd.homogeneity.remembered import certified
from axiograd.training.connected import check_connected, refuse_what_loses_gradients, searches_its_graph
from axiograd.training.held_step import HeldStep, NotHeldError
from axiograd.training.objective import Objective
from axiograd.training.targets import Outputs, Residual, Task, attribution_target as choose_target

#: Functions of the outputs' gradient, which the residual can be a target of.
OF_THE_GRADIENT = (XGradient, InputXGradient, Gradient, Saliency)
#: Multiplications with weights in a forward pass from which on a held step is the faster one.
_PAYS = 1e8


@dataclass(frozen=True)
class LossTerms:
    """total = task + weight·prior, with the outputs and attributions that they were made from."""

    total: Tensor
    task: Tensor
    prior: Tensor
    outputs: Any
    attributions: Any
    weight: float


@dataclass
class Bound:
    """A model with its method."""

    model: Any
    method: Any
    #: Of one sample's outputs, by the shapes of one sample's inputs.
    output_shapes: dict[tuple[torch.Size, ...], torch.Size] = field(default_factory=dict)
    connected: bool = False
    #: Why steps are differentiated twice: "" if they are not, None if that is not known yet.
    why_twice: str | None = None


class AttributionLoss(Objective):
    """L(F(x), y) + λ·Ω(A(F, x)) from one forward pass; `total.backward()` trains through both terms.

    λ is `weight`, a number or any function of the step. Attributed is the true class (`outputs="target"`), each output,
    the priors summed ("all"), a random combination of outputs with signs ±1 per sample ("random", for squared priors
    unbiased for "all"), what the task still gets wrong ("residual", √C·r/‖r‖ with r = ∂L/∂F), or what the method takes
    without a target (None). Further keywords go to the method; a `generator` draws combinations and, for a method that
    draws, its references.

    The residual of a piecewise-linear network needs no second derivatives: its prior costs a third of a plain step
    (see `axiograd.training.held_step`), and `total` alone has gradients then. Small networks are differentiated twice,
    which is faster for them; `double_backward` says otherwise (False: only where it must be; True: always), and
    `why_twice` says why it was so in the last step.
    In `eval()` terms come without graphs.

    Hesse, Schaub-Meyer, Roth: Fast Axiomatic Attribution for Neural Networks, 2021, equation (1).

    >>> from torch import nn
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
        weight: float | Callable[[int], float] = 1.0,
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
        _check_parts(task_loss, prior, method, weight)
        if isinstance(method, Attribution) and method_arguments:
            raise ConfigurationError(f"{sorted(method_arguments)} cannot be given to a method that already exists.")
        self.task_loss = task_loss
        self.prior = prior
        self.schedule = weight
        self.method = method
        self.outputs: Outputs = outputs
        self.of = of
        self.generator = generator
        self.double_backward = double_backward
        self.method_arguments = method_arguments
        #: Calls in training mode so far, of which the weight is a function; kept in `state_dict`.
        self.step = 0
        self._bound: Bound | None = None

    # The formula

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
        of = attribution_target
        if of is None:
            of = self._choose_target(bound, inputs, target, additional_forward_args, task)

        def prior(attributions: Any) -> Tensor:
            return self._prior_of(bound.model, inputs, additional_forward_args, attributions, of, prior_arguments)

        terms = None
        if self.training and isinstance(of, Residual):
            terms = self._held(bound, inputs, of, additional_forward_args, task, prior)
        if terms is None:
            terms = self._twice(bound, inputs, of, additional_forward_args, task, prior)
        self.step += self.training
        return terms

    def _twice(
        self, bound: Bound, inputs: Inputs, of: Target, additional: Any, task: Task, prior: Callable[[Any], Tensor]
    ) -> LossTerms:
        """By double backward: the attributions have a graph to the parameters."""
        method = bound.method
        explanation = method.explain(inputs, of, additional_forward_args=additional, create_graph=self.training)
        value, penalty, weight = task(explanation.outputs), prior(explanation.attributions), self.weight
        if self.training and not bound.connected:
            check_connected(penalty, bound.model)
            bound.connected = True
        total = value + weight * penalty
        return LossTerms(total, value, penalty, explanation.outputs, explanation.attributions, weight)

    def _held(
        self, bound: Bound, inputs: Inputs, of: Residual, additional: Any, task: Task, prior: Callable[[Any], Tensor]
    ) -> LossTerms | None:
        """By a held step; None where the step must be differentiated twice, or that is faster from now on."""
        if not bound.why_twice:
            bound.why_twice = self._not_held(bound, inputs, additional) or bound.why_twice
        if bound.why_twice:
            return None
        step, method, weight = HeldStep(task, first=bound.why_twice is None), bound.method, self.weight
        call = method._call(inputs, of, None, additional, wants_outputs=True, create_graph=True)  # noqa: SLF001
        call.through = step.differentiate
        try:
            explanation: Explanation = method._explained(call, of)  # noqa: SLF001 (what `explain` is made of)
            value, penalty = task(explanation.outputs), prior(explanation.attributions)
            total = step.connect(value + weight * penalty)
        except NotHeldError as error:
            bound.why_twice = str(error)
            of.forget()
            return None
        too_small = step.work < _PAYS and self.double_backward is None
        bound.why_twice = f"it is faster for {step.work:.1g} multiplications a pass" if too_small else ""
        shown = partial(tree_map_only, Tensor, _OnlyTotal.apply)
        outputs, attributions = shown(explanation.outputs), shown(explanation.attributions)
        return LossTerms(total, shown(value), shown(penalty), outputs, attributions, weight)

    def _not_held(self, bound: Bound, inputs: Inputs, additional: Any) -> str:
        """Why a step on the residual takes second derivatives; "" if it is a held one, or that is still to be tried."""
        if self.double_backward:
            return "double_backward=True asks for it"
        if getattr(bound.method, "layer", None) is not None:
            return "the output of a layer is attributed to"
        if searches_its_graph(bound.model):
            return "DistributedDataParallel looks for unused parameters in the graph"
        call = read_call(inputs, additional)
        if any(x.requires_grad for x in call.features):
            return "the inputs ask for gradients of their own"
        if bound.why_twice is None and not certified(bound.method.model, call).piecewise_linear:
            return "the model is not piecewise linear (certificate.not_piecewise_linear says where)"
        return ""

    # Its parts

    @property
    def weight(self) -> float:
        """λ of the next step."""
        weight = float(self.schedule(self.step) if callable(self.schedule) else self.schedule)
        if not abs(weight) <= priors.base.LARGEST_WEIGHT:
            raise ConfigurationError(
                f"the weight of the prior is {weight} at step {self.step}; it must be finite in float32."
            )
        return weight

    @property
    def total_only(self) -> bool:
        """Whether the last step was a held one, in which the total alone has gradients."""
        return self.why_twice == ""

    @property
    def why_twice(self) -> str | None:
        """Why the last step took second derivatives, "" if it did not; None before the first."""
        if self.outputs != "residual":
            return "the residual alone needs no second derivatives"
        return None if self._bound is None else self._bound.why_twice

    def bind(self, model: Callable[..., Any]) -> Bound:
        """The method on this model; made, and its wrapping checked, when the model is new."""
        if self._bound is not None and self._bound.model is model:
            return self._bound
        given: object = model
        if not callable(given):
            raise ConfigurationError(
                f"the first argument is the model, got a {type(model).__name__}: call loss(model, inputs, target)."
            )
        refuse_what_loses_gradients(model)
        method = self.method
        if not isinstance(method, Attribution):
            draws = self.generator is not None and "generator" in inspect.signature(method).parameters
            method = method(model, **self.method_arguments, **({"generator": self.generator} if draws else {}))
        elif method.model is not model:
            raise ConfigurationError(
                f"the loss was given a {type(method).__name__} of another model; pass the class, or a method "
                "of the model that the loss is called with (after wrapping it, if it is wrapped)."
            )
        if self.outputs == "residual" and not isinstance(method, OF_THE_GRADIENT):
            raise ConfigurationError(
                f'outputs="residual" attributes a combination of the outputs at x itself, which '
                f"{type(method).__name__} does not; use XGradient, InputXGradient, Gradient or Saliency."
            )
        self._bound = Bound(model, method)
        return self._bound

    def _choose_target(self, bound: Bound, inputs: Inputs, target: Any, additional: Any, task: Task) -> Target:
        """What to attribute, by `outputs`."""
        if self.outputs == "residual":
            return Residual(task)
        if self.outputs in {None, "all"}:
            return self.outputs
        return choose_target(self.outputs, target, _output_shape(bound, inputs, additional), self.generator)

    def _prior_of(
        self, model: Any, inputs: Inputs, additional: Any, found: Any, of: Target, arguments: Mapping[str, Any]
    ) -> Tensor:
        """Ω(A), for all outputs Σ_c Ω(A_c)."""

        def value(attributions: Tensor, of: Target) -> Tensor:
            return self.prior(attributions, **{**self._offered(model, inputs, additional, of), **arguments})

        attributions = self._pick(found)
        if isinstance(of, str) and of == "all":
            each = [LinearTarget(weights[None]) for weights in torch.eye(len(attributions))]
            return torch.stack([value(*pair) for pair in zip(attributions, each, strict=True)]).sum()
        return value(attributions, of)

    def _pick(self, attributions: Any) -> Tensor:
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

    def _offered(self, model: Any, inputs: Inputs, additional: Any, target: Target) -> dict[str, Any]:
        """What a prior gets if it declares it: the attributed `inputs`, and `score`, the attributed output at any."""
        wanted = {"inputs", "score"} & set(getattr(self.prior, "arguments", ()))
        if not wanted:
            return {}
        call = read_call(inputs, additional)
        place = 0 if self.of is None else call.slots.index(self.of)

        def score(features: Tensor) -> Tensor:
            every = [features if i == place else x for i, x in enumerate(call.features)]
            with torch.set_grad_enabled(self.training):
                return select(run(model, call, every), target, call.batch)

        return {name: {"inputs": call.features[place], "score": score}[name] for name in wanted}

    # State

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


class _OnlyTotal(torch.autograd.Function):
    """A term of a held step: what it is made of has no gradients of its own."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:  # noqa: ARG004 (autograd's signature)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> None:  # noqa: ARG004
        raise ConfigurationError(
            "a held step has the gradient of `total` alone; for gradients of task, prior, outputs or attributions, use "
            "AttributionLoss(..., double_backward=True)."
        )


def _output_shape(bound: Bound, inputs: Inputs, additional: Any) -> torch.Size:
    """The shape of the outputs, by one look at a new model or at inputs of a new size, which leaves it as it was."""
    call = read_call(inputs, additional, check=getattr(bound.method, "layer", None) is None)
    values = [value for value in call.values() if isinstance(value, Tensor)]
    size = tuple(value.shape[1:] for value in values)
    if size not in bound.output_shapes:
        model = unwrap_parallel(bound.model)
        score = lambda outputs: logits(outputs).reshape(len(values[0]), -1).sum(1)  # noqa: E731
        with attribution_pass(model, values[0].device, create_graph=False, preserve=True):
            # With a backward pass: a model that cannot be differentiated by its inputs says so here.
            seen = (
                differentiate(model, call, score, create_graph=False).outputs if call.features else run(model, call, ())
            )
        bound.output_shapes[size] = logits(seen).shape[1:]
    return torch.Size([len(values[0]), *bound.output_shapes[size]])


def _check_parts(task_loss: Any, prior: Any, method: Any, weight: Any) -> None:
    """Raise for a class where an object is meant, for names, and for arguments in another order."""
    if isinstance(task_loss, priors.Prior):
        raise ConfigurationError(
            f"task_loss is the prior {type(task_loss).__name__}; the order is AttributionLoss(task_loss, prior)."
        )
    if isinstance(prior, str):
        known = [name for name, one in vars(priors).items() if isinstance(one, type) and issubclass(one, priors.Prior)]
        raise ConfigurationError(
            f"prior must be a Prior object such as axiograd.priors.L1(), got the string {prior!r}; "
            f"{choose_from(prior.replace('_', ''), sorted(known))}."
        )
    examples = {"task_loss": "torch.nn.functional.cross_entropy", "prior": "axiograd.priors.L1()"}
    for what, value in (("task_loss", task_loss), ("prior", prior)):
        if isinstance(value, type):
            raise ConfigurationError(f"{what} is the class {value.__name__}; pass an instance, {value.__name__}(...).")
        if not callable(value):
            raise ConfigurationError(f"{what} is {value!r}, which cannot be called; pass for example {examples[what]}.")
    if not callable(method) and not isinstance(method, Attribution):
        raise ConfigurationError(f"method is {method!r}; pass a class such as axiograd.XGradient, or an object of it.")
    if isinstance(weight, str) or not (callable(weight) or isinstance(weight, int | float | Tensor)):
        raise ConfigurationError(f"weight={weight!r}: it must be a number, or a function from the step to a number.")
