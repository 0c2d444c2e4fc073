"""What all attribution methods share: two calls, `attribute` and `explain`, and the completeness of their answer."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeVar, cast

import torch
from torch import Tensor

from axiograd._calls import Call, LinearTarget, Model, ordinary, read_call, select
from axiograd._state import runnable, unwrap_parallel
from axiograd._typing import Inputs, Target
from axiograd.attribution.layer import FromLayer, Layer
from axiograd.attribution.passes import (
    Pass,
    attribution_pass,
    check_finite,
    detached,
    differentiate,
    listed,
    run,
    without_batch,
)
from axiograd.attribution.results import Completeness, Explanation
from axiograd.attribution.sums import summed
from axiograd.errors import BaselineError, ConfigurationError, DisconnectedError, InputError, NotFiniteError

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(eq=False, slots=True)
class AttributionCall:
    """One call of a method, its arguments read and checked."""

    model: Model
    inputs: Inputs
    additional: Any
    arguments: Call
    target: Target
    baselines: tuple[Tensor, ...]
    create_graph: bool
    wants_outputs: bool
    #: Of what is attributed, for methods that need to know it.
    degree: float = 1.0
    #: Whether that is proven, and not only up to an epsilon.
    exact: bool = False
    #: How outputs and gradient are found: a training step may know a cheaper way.
    through: Callable[..., Pass] = differentiate

    @property
    def is_training_step(self) -> bool:
        """Whether this is the forward pass that a training step counts on, and changes the model's state."""
        return self.create_graph and self.wants_outputs


@dataclass(eq=False, slots=True)
class Computed:
    """What a method computed; `references` are the baselines against which it did, averaged over."""

    attributions: Sequence[Tensor]
    outputs: Any = None
    references: Sequence[tuple[Tensor, ...]] = ()


def in_captums_order(attribute: _Function) -> _Function:
    """Let `attribute(inputs, target)` also be called with its arguments in Captum's order, `self.captum_order`.

    Two positional arguments are inputs and target, as everywhere here. Three or more are in Captum's order, and so are
    two where the target is named, or where the second can only be a baseline: floats in the inputs' dimensions, or a
    float. The function is kept as ``__wrapped__``, by which Captum's NoiseTunnel calls it.

    >>> from axiograd import IntegratedGradients
    >>> method, x = IntegratedGradients(lambda x: x**2, n_steps=1), torch.tensor([[3.0, 5.0]])
    >>> method.attribute(x, 1), method.attribute(x, 3.0, 1), method.attribute(x, 3.0, target=1)
    (tensor([[ 0., 25.]]), tensor([[ 0., 16.]]), tensor([[ 0., 16.]]))
    """

    @functools.wraps(attribute)
    def called(self: Attribution, inputs: Any, *further: Any, **named: Any) -> Any:
        order = self.captum_order
        certain = len(further) > 1 or "target" in named
        if not further or not (certain or (order[0] == "baselines" and _is_baseline(further[0], inputs))):
            return attribute(self, inputs, *further, **named)
        if len(further) > len(order):
            raise ConfigurationError(
                f"attribute takes {', '.join(order)} after the inputs, got {len(further)} arguments."
            )
        given = dict(zip(order, further, strict=False))
        return attribute(self, inputs, **given, **named)

    return cast("_Function", called)


def _is_baseline(value: Any, inputs: Any) -> bool:
    """No class has a number with a fraction; a float per sample may be the truth of a regression, and no baseline."""
    if isinstance(value, tuple | list) and isinstance(inputs, tuple | list):
        return any(_is_baseline(one, x) for one, x in zip(value, inputs, strict=False))
    if isinstance(value, Tensor) and isinstance(inputs, Tensor):
        return value.is_floating_point() and value.dim() == inputs.dim() > 1
    return isinstance(value, float)


class Attribution(ABC):
    """Base of all methods: subclasses say how features, baselines and one model become attributions.

    With ``layer=``, a module of the model or its name, what that module returns is attributed to in place of the
    inputs: attributions, baselines (token ids are read as inputs) and certificate are about its output. Baselines of
    IntegratedGradients are inputs, as Captum's are, and the layer's baseline is what it returns for them.

    >>> from axiograd import InputXGradient
    >>> model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Flatten(), torch.nn.Linear(6, 1))
    >>> InputXGradient(model, layer="0").attribute(torch.tensor([[0, 4]])).shape
    torch.Size([1, 2, 3])
    """

    #: Whether parameters can be trained through the attribution.
    differentiable: ClassVar[bool] = True
    #: Whether it takes baselines other than zero.
    takes_baselines: ClassVar[bool] = False
    #: How outputs name the baseline when the user gives none.
    default_baseline: ClassVar[str] = "zero"
    #: With ``layer=``: whether baselines are inputs, for which the layer has an output, or already outputs of it.
    layer_baselines_of_inputs: ClassVar[bool] = False
    #: The arguments of `attribute` behind the inputs as Captum orders them.
    captum_order: ClassVar[tuple[str, ...]] = ("target", "additional_forward_args")
    #: Whether features are a factor of their attributions; under the name by which Captum's NoiseTunnel asks.
    multiplies_by_inputs: bool = False

    def __init__(self, model: Model, *, layer: Layer | None = None) -> None:
        if isinstance(model, type):
            raise ConfigurationError(f"the model is the class {model.__name__}: expected an instance of it.")
        self.model: Model = runnable(model)
        #: Whose output is attributed to in place of the inputs; None: the inputs.
        self.layer = layer
        self._function: Model = self.model if layer is None else FromLayer(self.model, layer)

    def __repr__(self) -> str:
        """The model, and the settings that are not the usual ones."""
        parameters = inspect.signature(type(self)).parameters
        usual = {name: p.default for name, p in parameters.items() if name != "model" and hasattr(self, name)}
        changed = {name: getattr(self, name) for name in usual if getattr(self, name) is not usual[name]}
        settings = [_short(self.model), *(f"{name}={_short(value)}" for name, value in changed.items())]
        return f"{type(self).__name__}({', '.join(settings)})"

    # What Captum and its NoiseTunnel ask of a method.

    @property
    def forward_func(self) -> Model:
        """The model, under Captum's name: its NoiseTunnel goes around our methods."""
        return self.model

    def has_convergence_delta(self) -> bool:
        """Whether `attribute` takes ``return_convergence_delta``; Captum's NoiseTunnel asks."""
        return True

    def compute_convergence_delta(
        self,
        attributions: Any,
        start_point: Any,
        end_point: Inputs,
        target: Target = None,
        additional_forward_args: Any = None,
    ) -> Tensor:
        """Σ attribution − (F(end) − F(start)) per sample, for attributions at hand, under Captum's name.

        >>> from axiograd import InputXGradient
        >>> x = torch.tensor([[1.0, 3.0]])
        >>> InputXGradient(lambda x: (x**2).sum(1)).compute_convergence_delta(x**2, 1.0, x)
        tensor([2.])
        """
        end = read_call(end_point, additional_forward_args, check=False).prepared(create_graph=False)
        start = end.at(start_point)
        first = next(value for value in end.values() if isinstance(value, Tensor))

        def scores_of(call: Call) -> Tensor:
            with attribution_pass(self.model, first.device, create_graph=False, preserve=True), torch.no_grad():
                return self._score(run(self.model, call, call.features), target, len(first))

        return _gap(read_call(attributions, check=False).features, scores_of(end), scores_of(start))[0]

    def attribute_future(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Captum's call for models that return futures, which its own gradient methods do not have either."""
        raise NotImplementedError(f"{type(self).__name__} has no attribute_future: use attribute.")

    # What methods override.

    @abstractmethod
    def _compute(self, call: AttributionCall) -> Computed:
        """Attribute; runs inside a context that has gradients on and guards the model's state."""

    def _score(self, outputs: Any, target: Target, batch: int) -> Tensor:
        """The scalar per sample that is attributed."""
        return select(outputs, target, batch)

    def _admit(self, call: AttributionCall) -> AttributionCall:
        """The last check before the model is run, and before its state is guarded."""
        return call

    def _read_baselines(self, baselines: Any, arguments: Call) -> tuple[Tensor, ...]:
        read = arguments.fill(baselines, "baselines")
        if not self.takes_baselines and any(bool(b.any()) for b in read):
            raise BaselineError(
                f"{type(self).__name__} has no baseline other than zero, got one with other values. "
                "IntegratedGradients takes any baseline."
            )
        return read

    def _baseline_name(self, baselines: Any) -> str:
        if baselines is not None:
            return "given"
        at_layer = self.layer is not None and self.layer_baselines_of_inputs
        return "the layer at zero" if at_layer else self.default_baseline

    def _energy(self, call: AttributionCall) -> Callable[[], Tensor] | None:  # noqa: ARG002
        """What finds the share of each score that is an energy map, where the network has such a part."""
        return None

    # The calls.

    @in_captums_order
    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        baselines: Any = None,
        additional_forward_args: Any = None,
        create_graph: bool = False,
        return_convergence_delta: bool = False,
    ) -> Any:
        """Attributions in the structure of the inputs; the model's state does not change.

        With ``return_convergence_delta`` also Σ attribution − (F(x) − F(x′)) per sample.
        """
        call = self._call(inputs, target, baselines, additional_forward_args, create_graph=create_graph)
        with self._guarded(call, preserve=True):
            computed = self._compute(call)
        attributions = call.arguments.pack(computed.attributions)
        return (attributions, self._delta(call, computed)[0]) if return_convergence_delta else attributions

    def explain(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        baselines: Any = None,
        additional_forward_args: Any = None,
        create_graph: bool = False,
    ) -> Explanation:
        """Outputs and attributions from one forward pass.

        With ``create_graph=True`` this is the forward pass of a training step: outputs and attributions
        keep their graphs, and BatchNorm statistics and random state advance as in any forward pass.
        """
        call = self._call(
            inputs, target, baselines, additional_forward_args, create_graph=create_graph, wants_outputs=True
        )
        return self._explained(call, target, baselines)

    def _explained(self, call: AttributionCall, target: Target, baselines: Any = None) -> Explanation:
        with self._guarded(call, preserve=not call.is_training_step):
            computed = self._compute(call)
        return Explanation(
            computed.outputs if call.create_graph else detached(computed.outputs),
            call.arguments.pack(computed.attributions),
            target,
            type(self).__name__,
            self._baseline_name(baselines),
            call.inputs if call.arguments.frame is None else call.arguments.frame,
            self._energy(call),
        )

    def completeness(
        self, inputs: Inputs, target: Target = None, *, baselines: Any = None, additional_forward_args: Any = None
    ) -> Completeness:
        """The error of Σ attribution = F(x) − F(x′), absolute and relative, with the scale that it is relative to."""
        if not getattr(self, "multiply_by_inputs", True):
            raise ConfigurationError(
                "multiply_by_inputs=False: attributions without the factor x − x′ do not add up to F(x) − F(x′), so "
                "they have no completeness error."
            )
        call = self._call(inputs, target, baselines, additional_forward_args, create_graph=False)
        with self._guarded(call, preserve=True):
            computed = self._compute(call)
        delta, difference = self._delta(call, computed)
        bad = ~difference.isfinite().reshape(-1, call.arguments.batch).all(0)
        if bool(bad.any()):
            raise NotFiniteError(
                f"F(x) − F(x′) is NaN or Inf for sample {listed(bad)}: the model is not finite at the baseline, so "
                "completeness is undefined. Give another baseline."
            )
        return Completeness.of(delta, difference, self._baseline_name(baselines))

    def _call(
        self,
        inputs: Inputs,
        target: Target,
        baselines: Any,
        additional: Any,
        *,
        create_graph: bool,
        wants_outputs: bool = False,
    ) -> AttributionCall:
        """Read the arguments of a call."""
        if create_graph and not self.differentiable:
            raise DisconnectedError(
                f"{type(self).__name__} gives attributions that no parameter can be trained through; use one of "
                "XGradient, IntegratedGradients, ExpectedGradients, InputXGradient, Gradient, Saliency, LogGradient."
            )
        model = self._function
        with torch.inference_mode(mode=False) if torch.is_inference_mode_enabled() else nullcontext():
            arguments = read_call(inputs, additional, check=self.layer is None).prepared(create_graph=create_graph)
            if isinstance(model, FromLayer) and self.layer is not None:
                of_inputs = self.layer_baselines_of_inputs
                baselines = model.baselines_at(baselines, arguments, create_graph=create_graph, of_inputs=of_inputs)
                arguments = model.outputs_at(arguments, create_graph=create_graph)
                inputs, additional = arguments.positional, arguments.keyword
            elif arguments.frame is not None:
                inputs = arguments.features[0]
            read = tuple(map(ordinary, self._read_baselines(baselines, arguments)))
            if type(target) is LinearTarget:
                target = LinearTarget(ordinary(target.weights))
        call = AttributionCall(
            model if create_graph else unwrap_parallel(model),
            inputs,
            additional,
            arguments,
            ordinary(target) if isinstance(target, Tensor) else target,
            read,
            create_graph,
            wants_outputs,
        )
        try:
            return self._admit(call)
        except InputError as error:
            raise without_batch(call.model, arguments) or error from error

    def _guarded(self, call: AttributionCall, *, preserve: bool) -> ExitStack:
        device = call.arguments.features[0].device
        return attribution_pass(call.model, device, create_graph=call.create_graph, preserve=preserve)

    def _delta(self, call: AttributionCall, computed: Computed) -> tuple[Tensor, Tensor]:
        """Σ attribution − (F(x) − F(x′)), and F(x) − F(x′) itself."""
        arguments, features = call.arguments, call.arguments.features

        def scores_at(point: Sequence[Tensor]) -> Tensor:
            # Every pass starts from the random state and the buffers that the attribution started from.
            with self._guarded(call, preserve=True), torch.no_grad():
                return self._score(run(call.model, arguments, point), call.target, arguments.batch)

        def scores_at_start(reference: Sequence[Tensor]) -> Tensor:
            scores = scores_at(reference)
            if not bool(scores.isnan().any()):
                return scores
            # 0/0, as of B-cos networks at zero: the limit along the path. A number this small is far from underflow,
            # and changes what is homogeneous by less than rounding.
            near = [r + torch.finfo(x.dtype).eps ** 2 * (x - r) for r, x in zip(reference, features, strict=True)]
            return torch.where(scores.isnan(), scores_at(near), scores)

        with torch.inference_mode(mode=False), torch.no_grad():
            starts = [scores_at_start(reference) for reference in computed.references or (call.baselines,)]
            return _gap(computed.attributions, scores_at(features), torch.stack(starts).mean(0))


class SinglePass(Attribution):
    """Methods that are a function of the inputs and of one gradient, aᵢ = combine(xᵢ, ∂F/∂xᵢ)."""

    @abstractmethod
    def _combine(self, x: Tensor, gradient: Tensor) -> Tensor:
        """The attribution of one feature tensor."""

    def _differentiate(self, call: AttributionCall) -> Pass:
        """One forward and one backward pass at the inputs."""
        score = functools.partial(self._score, target=call.target, batch=call.arguments.batch)
        return call.through(call.model, call.arguments, score, create_graph=call.create_graph)

    def _compute(self, call: AttributionCall) -> Computed:
        x, done = call.arguments.features, self._differentiate(call)
        check_finite(x, done.scores, done.gradients)
        return Computed([self._combine(xi, g) for xi, g in zip(x, done.gradients, strict=True)], done.outputs)


def _gap(attributions: Sequence[Tensor], scores: Tensor, at_baseline: Tensor) -> tuple[Tensor, Tensor]:
    """Σ attribution − (F(x) − F(x′)), and F(x) − F(x′) itself; for the target "all", outputs come first in both."""
    difference = (scores - at_baseline).movedim(0, -1)
    return summed(attributions, difference.dim(), difference.dtype) - difference, difference


def private_generator() -> torch.Generator:
    """A method's own, seeded from the global random state, which stays as it is: no two calls draw the same.

    Two methods that are made from the same state do: give them generators of their own.
    """
    generator = torch.Generator()
    generator.set_state(torch.get_rng_state())
    return generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))


def _short(value: Any) -> str:
    """A setting in a word or two: modules by their class, tensors by their shape."""
    if isinstance(value, Tensor):
        return f"tensor{list(value.shape)}"
    if isinstance(value, torch.nn.Module):
        return type(value).__name__
    if isinstance(value, str | int | float | tuple | list):
        return repr(value)
    return getattr(value, "__name__", None) or type(value).__name__.strip("_")
