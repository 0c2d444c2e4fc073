"""The training objective of the paper: task loss + λ·Ω(attributions)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

from axiograd import priors
from axiograd._calls import LinearTarget, logits, read_call, select
from axiograd._state import module_of, modules_behind, unwrap_parallel
from axiograd._typing import Inputs, Target
from axiograd.attribution import Attribution, Explanation, Gradient, InputXGradient, Saliency, XGradient
from axiograd.attribution.passes import differentiate, run
from axiograd.errors import ConfigurationError, DisconnectedError, TargetError
from axiograd.homogeneity.remembered import certified
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
        weight = float(self.schedule(self.step) if callable(self.schedule) else self.schedule)
        if not abs(weight) <= priors.base.LARGEST_WEIGHT:
            raise ConfigurationError(
                f"the weight of the prior is {weight} at step {self.step}; it must be finite in float32."
            )
        return weight

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
        given: object = model
        if not callable(given):
            raise ConfigurationError(
                f"the first argument is the model, got a {type(model).__name__}: call loss(model, inputs, target)."
            )
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
        try:
            return self._terms(bound, inputs, chosen, additional_forward_args, task, prior_arguments)
        except TargetError as error:
            if attribution_target is None and type(chosen) is LinearTarget:  # drawn for as many outputs as there were
                raise TargetError(
                    f"the model gave {chosen.weights.flatten(1).shape[1]} outputs per sample when this loss first saw "
                    "it, and gives a different number now: make a new AttributionLoss after exchanging its last layer."
                ) from error
            raise

    def _terms(
        self, bound: Bound, inputs: Inputs, target: Target, additional: Any, task: Task, arguments: Mapping[str, Any]
    ) -> LossTerms:
        """By a held step where that can be, else by differentiating twice."""
        if self.training and isinstance(target, Residual) and self._may_hold(bound, inputs, additional):
            step = HeldStep(task, first=bound.why_twice is None)
            try:
                terms = self._held(bound, step, inputs, target, additional, task, arguments)
            except NotHeldError as reason:
                bound.why_twice = str(reason)
                target.forget()
            else:
                too_small = step.work < _PAYS and self.double_backward is None
                bound.why_twice = f"it is faster for {step.work:.1g} multiplications a pass" if too_small else ""
                self.step += 1
                return terms
        method = bound.method
        explanation = method.explain(inputs, target, additional_forward_args=additional, create_graph=self.training)
        prior = self.prior_of(bound.model, inputs, additional, explanation.attributions, target, arguments)
        if self.training and not bound.connected:
            check_connected(prior, bound.model)
            bound.connected = True
        value, weight = task(explanation.outputs), self.weight
        self.step += self.training
        total = value + weight * prior
        return LossTerms(total, value, prior, explanation.outputs, explanation.attributions, weight)

    def _may_hold(self, bound: Bound, inputs: Inputs, additional: Any) -> bool:
        if bound.why_twice:
            return False
        call = read_call(inputs, additional)
        if any(x.requires_grad for x in call.features):
            bound.why_twice = "the inputs ask for gradients of their own"
        elif bound.why_twice is None and not certified(bound.method.model, call).piecewise_linear:
            bound.why_twice = "the model is not piecewise linear (certificate.not_piecewise_linear says where)"
        return not bound.why_twice

    def _held(
        self,
        bound: Bound,
        step: HeldStep,
        inputs: Inputs,
        target: Target,
        additional: Any,
        task: Task,
        arguments: Mapping[str, Any],
    ) -> LossTerms:
        method, weight = bound.method, self.weight
        call = method._call(inputs, target, None, additional, wants_outputs=True, create_graph=True)  # noqa: SLF001
        call.through = step.differentiate
        explanation: Explanation = method._explained(call, target)  # noqa: SLF001 (what `explain` is made of)
        prior = self.prior_of(bound.model, inputs, additional, explanation.attributions, target, arguments)
        value = task(explanation.outputs)
        total = step.connect(value + weight * prior)
        shown = partial(tree_map_only, Tensor, _OnlyTotal.apply)
        return LossTerms(
            total, shown(value), shown(prior), shown(explanation.outputs), shown(explanation.attributions), weight
        )

    @property
    def total_only(self) -> bool:
        """Whether the last step was a held one, in which the total alone has gradients."""
        return self._bound is not None and self._bound.why_twice == ""

    @property
    def why_twice(self) -> str | None:
        """Why the last step took second derivatives, "" if it did not; None before the first."""
        return None if self._bound is None else self._bound.why_twice

    def bind(self, model: Callable[..., Any]) -> Bound:
        """The method on this model; made, and its wrapping checked, when the model is new."""
        if self._bound is None or self._bound.model is not model:
            refuse_what_loses_gradients(model)
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
        return self._bound

    def _twice(self, model: Any, method: Any) -> str | None:
        if self.double_backward:
            return "double_backward=True asks for it"
        if self.outputs != "residual":
            return "the residual alone needs no second derivatives"
        if getattr(method, "layer", None) is not None:
            return "the output of a layer is attributed to"
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

    def prior_of(
        self, model: Any, inputs: Inputs, additional: Any, found: Any, target: Target, arguments: Mapping[str, Any]
    ) -> Tensor:
        """Ω(A), for all outputs Σ_c Ω(A_c)."""

        def value(attributions: Tensor, of: Target) -> Tensor:
            return self.prior(attributions, **{**self._offered(model, inputs, additional, of), **arguments})

        attributions = self.pick(found)
        if isinstance(target, str) and target == "all":
            each = [LinearTarget(weights[None]) for weights in torch.eye(len(attributions))]
            return torch.stack([value(*pair) for pair in zip(attributions, each, strict=True)]).sum()
        return value(attributions, target)

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


def output_shape(bound: Bound, inputs: Inputs, additional: Any = None) -> torch.Size:
    """The shape of the outputs, by one look at a new model or at inputs of a new size, which leaves it as it was."""
    layer = getattr(bound.method, "layer", None)
    arguments = read_call(inputs, additional) if layer is None else read_call(inputs, additional, check=False)
    values = [value for value in arguments.values() if isinstance(value, Tensor)]
    batch = arguments.batch if layer is None else len(values[0])
    size = tuple(value.shape[1:] for value in values)
    if size not in bound.output_shapes:
        method = Gradient(unwrap_parallel(bound.model), layer=layer)
        call = method._call(inputs, None, None, additional, create_graph=True)  # noqa: SLF001 (a look as it makes them)
        with method._guarded(call, preserve=True):  # noqa: SLF001
            # With a backward pass: a model that cannot be differentiated by its inputs says so here.
            score = lambda outputs: logits(outputs).reshape(call.arguments.batch, -1).sum(1)  # noqa: E731
            outputs = differentiate(call.model, call.arguments, score, create_graph=False).outputs
        bound.output_shapes[size] = logits(outputs).shape[1:]
    return torch.Size([batch, *bound.output_shapes[size]])


def _check_parts(task_loss: Any, prior: Any, method: Any, weight: Any) -> None:
    """Raise for a class where an object is meant, for names, and for arguments in another order."""
    if isinstance(task_loss, priors.Prior):
        raise ConfigurationError(
            f"task_loss is the prior {type(task_loss).__name__}; the order is AttributionLoss(task_loss, prior)."
        )
    for what, value in (("task_loss", task_loss), ("prior", prior)):
        if isinstance(value, type):
            raise ConfigurationError(f"{what} is the class {value.__name__}; pass an instance, {value.__name__}(...).")
    if isinstance(prior, str):
        known = [name for name, one in vars(priors).items() if isinstance(one, type) and issubclass(one, priors.Prior)]
        near = [name for name in known if name.lower() == prior.lower().replace("_", "")] or ["L1"]
        raise ConfigurationError(
            f"prior must be a Prior object such as axiograd.priors.{near[0]}(), got the string {prior!r}. "
            f"There are {', '.join(sorted(known))}."
        )
    for what, value, example in (
        ("task_loss", task_loss, "torch.nn.functional.cross_entropy"),
        ("prior", prior, "axiograd.priors.L1()"),
        ("method", method, "axiograd.XGradient"),
    ):
        if not callable(value) and not isinstance(value, Attribution):
            raise ConfigurationError(f"{what} is {value!r}, which cannot be called; pass for example {example}.")
    if isinstance(weight, str) or not (callable(weight) or isinstance(weight, int | float | Tensor)):
        raise ConfigurationError(f"weight={weight!r}: it must be a number, or a function from the step to a number.")


def check_connected(prior: Tensor, model: Any) -> None:
    """Raise unless some parameter has a gradient from the prior: else training would silently ignore it."""
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


def refuse_what_loses_gradients(model: object) -> None:
    """Raise for wrappers that take the input gradient inside a step for the backward pass that they wait for.

    DDP with a static graph then skips its all-reduce, and a sharded model frees its weights: both without an error.

    >>> refuse_what_loses_gradients(nn.Linear(2, 2))
    """
    instead = "a prior needs the input's gradient inside the step: use DistributedDataParallel without static_graph."
    for root in modules_behind(model) if callable(model) else ():
        if _is_sharded(root):
            raise ConfigurationError(f"the model is sharded, and would lose its weights' gradients; {instead}")
        for name, module in root.named_modules():
            if isinstance(module, DistributedDataParallel) and module.static_graph:
                where = f" ({name})" if name else ""
                raise ConfigurationError(
                    f"the model{where} is wrapped in DistributedDataParallel with static_graph=True, which would skip "
                    f"its all-reduce; {instead}"
                )


def searches_its_graph(model: object) -> str | None:
    """Why the model's wrapper needs the graph that autograd makes of a whole forward pass; None if it does not.

    >>> searches_its_graph(nn.Linear(2, 2))
    """
    modules = model.modules() if isinstance(model, nn.Module) else ()
    if any(isinstance(module, DistributedDataParallel) and module.find_unused_parameters for module in modules):
        return "DistributedDataParallel looks for unused parameters in the graph"
    return None


def _is_sharded(module: nn.Module) -> bool:
    """Whether the parameters are cut into pieces that live on different ranks (FSDP)."""
    if any(hasattr(parameter, "full_tensor") for parameter in module.parameters()):
        return True
    if not torch.distributed.is_available():
        return False
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    # After a forward pass, the parameters of the outermost one are still whole.
    return any(isinstance(part, FSDPModule | FullyShardedDataParallel) for part in module.modules())
