"""The training objective of the paper: task loss + λ·Ω(attributions)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from axiograd import priors
from axiograd._target import LinearTarget, logits
from axiograd._typing import Inputs, Target
from axiograd.attribution import (
    Attribution,
    Explanation,
    Gradient,
    InputXGradient,
    LogGradient,
    Saliency,
    XGradient,
)
from axiograd.attribution.arguments import Arguments
from axiograd.attribution.passes import differentiate, leaves
from axiograd.errors import ConfigurationError, DisconnectedError
from axiograd.homogeneity.behind import module_of
from axiograd.homogeneity.model import out_of_parallel
from axiograd.training.distributed import refuse_sharded, refuse_static_graph, searches_its_graph
from axiograd.training.held_gates.operators import NotHeldError, NotSharedError
from axiograd.training.held_gates.step import differentiate_held, differentiate_shared, record
from axiograd.training.mixup import task_value
from axiograd.training.schedules import Schedule, ensure_schedule, weight_at
from axiograd.training.targets import Outputs, Residual, attribution_target as choose_target

#: Multiplications with weights in one forward pass from which on it pays to hold gates, with and without products
#: that task and prior share. Smaller networks spend their time between operators, of which double backward has fewer.
_PAYS = {True: 1e8, False: 1e9}

#: Functions of the outputs' gradient, which the residual can be a target of.
_OF_THE_GRADIENT = (XGradient, InputXGradient, Gradient, Saliency)


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
    """A model with its method, and what is found out about it once."""

    model: Any
    method: Any
    #: Of one sample's outputs, by the shapes of one sample's inputs.
    output_shapes: dict[tuple[torch.Size, ...], torch.Size] = field(default_factory=dict)
    connected: bool = False
    #: Why second derivatives are needed: "" if they are not, None if that is not known yet.
    why_twice: str | None = None
    #: Whether the task and the prior may share their products with the weights.
    may_share: bool = True
    #: Multiplications with weights per sample.
    work: float = 0.0
    #: Why the last step took second derivatives.
    last: str | None = None


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
        _check_parts(task_loss, prior, method)
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
        task = _Task(self.task_loss, target)
        chosen = attribution_target
        if chosen is None:
            chosen = self.choose_target(bound, inputs, target, additional_forward_args, task)
        explanation = self._explain(bound, inputs, chosen, additional_forward_args, task)
        attributions = self.pick(explanation.attributions)
        prior = self.prior_of(attributions, chosen, prior_arguments)
        if self.training and not bound.connected:
            _check_connected(prior, model)
            bound.connected = True
        value, weight = task(explanation.outputs), self.weight
        self.step += self.training
        total = value + weight * prior
        return LossTerms(total, value, prior, explanation.outputs, explanation.attributions, weight)

    def _explain(self, bound: Bound, inputs: Inputs, target: Target, additional: Any, task: "_Task") -> Explanation:
        """Outputs and attributions, in a training step without second derivatives if that can be."""
        method, how = bound.method, {"create_graph": self.training}
        while self.training:
            shared = bound.may_share and type(method) in _OF_THE_GRADIENT and _may_share(target)
            bound.last = self._why_twice(bound, inputs, target, additional, shared=shared)
            if bound.last:
                break
            through: Callable[..., Any] = differentiate_held
            if shared:
                through = partial(differentiate_shared, task=task)
            call = method._call(inputs, target, None, additional, wants_outputs=True, **how)  # noqa: SLF001 (a method's own)
            try:
                found: Explanation = method._explained(replace(call, through=through), target)  # noqa: SLF001
            except NotSharedError:
                bound.may_share = False
            except NotHeldError as reason:
                bound.why_twice = str(reason)
            else:
                return found
            if isinstance(target, Residual):
                target.forget()
        explanation: Explanation = method.explain(inputs, target, additional_forward_args=additional, **how)
        return explanation

    @property
    def why_twice(self) -> str | None:
        """Why the last step took second derivatives, "" if it did not; None before the first."""
        return None if self._bound is None else self._bound.last

    def _why_twice(self, bound: Bound, inputs: Inputs, target: Target, additional: Any, *, shared: bool) -> str:
        if isinstance(target, str) and target == "all":
            return "each output is attributed"
        if bound.why_twice is None:
            output_shape(bound, inputs, additional)
        if bound.why_twice or self.double_backward is False:
            return bound.why_twice or ""
        work = bound.work * Arguments.ensure(inputs, additional).batch
        return "" if work >= _PAYS[shared] else f"it is faster for a pass of {work:.1g} multiplications"

    def bind(self, model: Callable[..., Any]) -> Bound:
        """The method on this model; made, and its wrapping checked, when the model is new."""
        if self._bound is None or self._bound.model is not model:
            refuse_static_graph(model)
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
            if self.outputs == "residual" and not isinstance(method, _OF_THE_GRADIENT):
                raise ConfigurationError(
                    f'outputs="residual" attributes a combination of the outputs at x itself, which '
                    f"{type(method).__name__} does not; use XGradient, InputXGradient, Gradient or Saliency."
                )
            self._bound = Bound(model, method, why_twice=self._twice(model, method))
        return self._bound

    def _twice(self, model: Any, method: Any) -> str | None:
        if self.double_backward:
            return "double_backward=True asks for it"
        if getattr(method, "layer", None) is not None:
            return "the output of a layer is attributed to"
        if type(method) not in {*_OF_THE_GRADIENT, LogGradient}:
            return f"{type(method).__name__} is more than a function of one gradient at the input"
        return searches_its_graph(model)

    def choose_target(
        self, bound: Bound, inputs: Inputs, target: Any, additional: Any, task: "_Task | None" = None
    ) -> Target:
        """What to attribute, by `outputs`."""
        if self.outputs == "residual":
            return Residual(task or _Task(self.task_loss, target))
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

    def _run_identity(self) -> dict[str, Any]:
        """What decides its numbers; the step and the generator's state are a checkpoint's business."""
        parts = {**vars(self), **self._modules}
        if isinstance(self.method, Attribution):  # without the model, which is being trained
            own = {name: value for name, value in vars(self.method).items() if name != "model" and name[0] != "_"}
            parts["method"] = {"type": type(self.method), **own}
        return {name: part for name, part in parts.items() if name[0] != "_" and name not in {"step", "training"}}

    def get_extra_state(self) -> Tensor:
        """The step and the generator's state as bytes in one tensor, so that any format can store it."""
        step = torch.tensor([self.step]).view(torch.uint8)
        return step if self.generator is None else torch.cat([step, self.generator.get_state()])

    def set_extra_state(self, state: Tensor) -> None:
        """Go on where the state was taken."""
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


class _Task:
    """The task loss of one batch, computed once for the same outputs."""

    def __init__(self, task_loss: Callable[[Any, Any], Tensor], target: Any) -> None:
        self._task_loss, self._target = task_loss, target
        self._known: tuple[Any, Tensor] | None = None

    def __call__(self, outputs: Any) -> Tensor:
        if self._known is None or self._known[0] is not outputs:
            value: Any = task_value(self._task_loss, outputs, self._target)
            if not isinstance(value, Tensor) or value.ndim > 0:
                what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ConfigurationError(f"the task loss must be a scalar (take its mean), got {what}.")
            self._known = outputs, value
        return self._known[1]


def _check_parts(task_loss: Any, prior: Any, method: Any) -> None:
    """Raise for a class where an object is meant, and for names."""
    for what, value in (("task_loss", task_loss), ("prior", prior)):
        if isinstance(value, type):
            raise ConfigurationError(f"{what} is the class {value.__name__}; make one of it: {value.__name__}(...).")
    if isinstance(prior, str):
        known = [name for name, one in vars(priors).items() if isinstance(one, type) and issubclass(one, priors.Prior)]
        near = [name for name in known if name.lower() == prior.lower().replace("_", "")] or ["L1"]
        raise ConfigurationError(
            f"prior is the word {prior!r}; pass an object such as axiograd.priors.{near[0]}(). "
            f"There are {', '.join(sorted(known))}."
        )
    for what, value, example in (
        ("task_loss", task_loss, "torch.nn.functional.cross_entropy"),
        ("prior", prior, "axiograd.priors.L1()"),
        ("method", method, "axiograd.XGradient"),
    ):
        if not callable(value) and not isinstance(value, Attribution):
            raise ConfigurationError(f"{what} is {value!r}, which cannot be called; pass for example {example}.")


def output_shape(bound: Bound, inputs: Inputs, additional: Any = None) -> torch.Size:
    """The shape of the outputs, by one look at a new model or at inputs of a new size, which leaves it as it was.

    The look also finds out whether the gates of the model can be held.
    """
    layer = getattr(bound.method, "layer", None)
    arguments = Arguments.ensure(inputs, additional) if layer is None else Arguments.read(inputs, additional)
    values = [value for value in arguments.values() if isinstance(value, Tensor)]
    batch = arguments.batch if layer is None else len(values[0])
    size = tuple(value.shape[1:] for value in values)
    if size not in bound.output_shapes:
        method = Gradient(out_of_parallel(bound.model), layer=layer)
        call = method._call(inputs, None, None, additional, create_graph=True)  # noqa: SLF001 (a look as it makes them)
        with method._guarded(call, preserve=True):  # noqa: SLF001
            outputs = _looked_at(bound, call.model, call.arguments)
        bound.output_shapes[size] = logits(outputs).shape[1:]
    return torch.Size([batch, *bound.output_shapes[size]])


def _looked_at(bound: Bound, model: Any, arguments: Arguments) -> Any:
    if not bound.why_twice:
        try:
            held, outputs, _ = record(model, arguments, leaves(arguments.features, create_graph=False), attached=True)
        except (NotHeldError, RuntimeError) as reason:
            bound.why_twice = str(reason)
        else:
            bound.why_twice, bound.work = "", held.tape.work / arguments.batch
            return outputs
    # With a backward pass: a model that cannot be differentiated by its inputs says so here.
    score = lambda outputs: logits(outputs).reshape(arguments.batch, -1).sum(1)  # noqa: E731
    return differentiate(model, arguments, score, create_graph=False).outputs


def _check_connected(prior: Tensor, model: Any) -> None:
    """Raise unless some parameter has a gradient from the prior: else training would ignore it without a word."""
    module = module_of(model)
    parameters = [] if module is None else [p for p in module.parameters() if p.requires_grad]
    if module is not None and not parameters:
        raise DisconnectedError("the model has no parameter that requires a gradient; unfreeze what should be trained.")
    if not prior.requires_grad:
        raise DisconnectedError(
            "the prior has no gradient: the attributions are detached, by the method, by the model or by the prior."
        )
    if module is None:  # a function keeps its parameters to itself
        return
    try:
        gradients = torch.autograd.grad(prior, parameters, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        raise DisconnectedError(f"the prior cannot be differentiated by the parameters: {error}") from error
    if all(gradient is None for gradient in gradients):
        raise DisconnectedError(
            f"the prior's gradient reaches none of the {len(parameters)} trainable parameters, so it trains nothing: "
            "the attributions have a graph that stops before the model (Captum's do); use a method of axiograd."
        )
