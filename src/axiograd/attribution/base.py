"""What all attribution methods share: two calls, `attribute` and `explain`, and the completeness of their answer."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn, overload

import torch
from torch import Tensor

from axiograd._calls import Call, LinearTarget, Model, read_call, select
from axiograd._state import PARALLEL, runnable, unwrap_parallel
from axiograd._typing import Inputs, Target
from axiograd.attribution.captum_calls import called_as_in_captum
from axiograd.attribution.layer import FromLayer, Layer
from axiograd.attribution.passes import (
    Pass,
    attribution_pass,
    detached,
    differentiate,
    listed,
    run,
    summed,
    without_batch,
)
from axiograd.attribution.results import Completeness, Explanation
from axiograd.errors import BaselineError, ConfigurationError, DisconnectedError, InputError, NotFiniteError


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
        """Whether this is the forward pass that a training step counts on, not an extra look."""
        return self.create_graph and self.wants_outputs


@dataclass(eq=False, slots=True)
class Computed:
    """What a method computed; `references` are the baselines against which it did, averaged over."""

    attributions: Sequence[Tensor]
    outputs: Any = None
    references: Sequence[tuple[Tensor, ...]] = ()


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
    #: How outputs name the baseline when the user gives none.
    default_baseline: ClassVar[str] = "zero"
    #: With ``layer=``: whether baselines are inputs, for which the layer has an output, or already outputs of it.
    layer_baselines_of_inputs: ClassVar[bool] = False
    #: Whether features are a factor of their attributions; under the name by which Captum's NoiseTunnel asks.
    multiplies_by_inputs: bool = False

    def __init__(self, model: Model, *, layer: Layer | None = None) -> None:
        self.model: Model = runnable(model)
        if isinstance(model, type):
            raise ConfigurationError(f"the model is the class {model.__name__}: expected an instance of it.")
        #: Whose output is attributed to in place of the inputs; None: the inputs.
        self.layer = layer
        self._function: Model = self.model if layer is None else FromLayer(self.model, layer)

    def __repr__(self) -> str:
        """The model, and the settings that are not the usual ones."""
        parameters = inspect.signature(type(self)).parameters
        own = {name: getattr(self, name) for name in parameters if name != "model" and hasattr(self, name)}
        usual = {name: parameters[name].default for name in own}
        changed = [f"{name}={_spoken(value)}" for name, value in own.items() if value is not usual[name]]
        return f"{type(self).__name__}({', '.join([_spoken(self.model), *changed])})"

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

    @abstractmethod
    def _compute(self, call: AttributionCall) -> Computed:
        """Attribute; runs inside a context that has gradients on and guards the model's state."""

    def _differentiate(self, call: AttributionCall) -> Pass:
        """One forward and one backward pass at the inputs."""
        arguments, target = call.arguments, call.target
        return call.through(
            call.model,
            arguments,
            lambda outputs: self._score(outputs, target, arguments.batch),
            create_graph=call.create_graph,
        )

    def _score(self, outputs: Any, target: Target, batch: int) -> Tensor:
        """The scalar per sample that is attributed."""
        return select(outputs, target, batch)

    def _read_baselines(self, baselines: Any, arguments: Call) -> tuple[Tensor, ...]:
        """Methods that have no other baseline than zero accept only that."""
        read = arguments.fill(baselines, "baselines")
        if any(bool(b.any()) for b in read):
            raise BaselineError(
                f"{type(self).__name__} has no baseline other than zero, got one with values other than zero. "
                "IntegratedGradients takes any baseline."
            )
        return read

    @overload
    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        baselines: Any = None,
        additional_forward_args: Any = None,
        create_graph: bool = False,
        return_convergence_delta: Literal[False] = False,
    ) -> Any: ...
    @overload
    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        baselines: Any = None,
        additional_forward_args: Any = None,
        create_graph: bool = False,
        return_convergence_delta: Literal[True],
    ) -> tuple[Any, Tensor]: ...
    @called_as_in_captum("target", "additional_forward_args")
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
        """Attributions in the structure of the inputs; an extra look that leaves the model as it was.

        With ``return_convergence_delta`` also Σ attribution − (F(x) − F(x′)) per sample.
        """
        call = self._call(inputs, target, baselines, additional_forward_args, create_graph=create_graph)
        with self._guarded(call, preserve=True):
            computed = self._compute(call)
        attributions = call.arguments.pack(computed.attributions)
        if not return_convergence_delta:
            return attributions
        return attributions, self._delta(call, computed)[0]

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
        )

    def completeness(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        baselines: Any = None,
        additional_forward_args: Any = None,
    ) -> Completeness:
        """The error of Σ attribution = F(x) − F(x′), absolute and relative, with the scale that it is relative to."""
        if not getattr(self, "multiply_by_inputs", True):
            raise ConfigurationError(
                "multiply_by_inputs=False: attributions without the factor x − x′ do not add up to F(x) − F(x′), so "
                "that they have no completeness error."
            )
        call = self._call(inputs, target, baselines, additional_forward_args, create_graph=False)
        with self._guarded(call, preserve=True):
            computed = self._compute(call)
        delta, difference = self._delta(call, computed)
        if not bool(difference.isfinite().all()):
            bad = ~difference.isfinite().reshape(-1, call.arguments.batch).all(0)
            raise NotFiniteError(
                f"F(x) − F(x′) is NaN or Inf for sample {listed(bad)}: the model has no value at the baseline, so that "
                "completeness is undefined. Give another baseline."
            )
        return Completeness.of(delta, difference, self._baseline_name(baselines))

    def _baseline_name(self, baselines: Any) -> str:
        if baselines is not None:
            return "given"
        return (
            "the layer at zero" if self.layer is not None and self.layer_baselines_of_inputs else self.default_baseline
        )

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
        if create_graph and not self.differentiable:
            raise DisconnectedError(
                f"{type(self).__name__} gives attributions that no parameter can be trained through; use one of "
                "XGradient, IntegratedGradients, ExpectedGradients, InputXGradient, Gradient, Saliency, LogGradient."
            )
        with torch.inference_mode(mode=False) if torch.is_inference_mode_enabled() else nullcontext():
            if self.layer is not None and isinstance(self._function, FromLayer):
                given = read_call(inputs, additional, check=False).prepared(create_graph=create_graph)
                arguments = self._function.outputs_at(given, create_graph=create_graph)
                of_inputs = self.layer_baselines_of_inputs
                baselines = self._function.baselines_at(
                    baselines, given, create_graph=create_graph, of_inputs=of_inputs
                )
                inputs, additional = arguments.positional, arguments.keyword
            else:
                arguments = read_call(inputs, additional).prepared(create_graph=create_graph)
            read = tuple(_ordinary(b) for b in self._read_baselines(baselines, arguments))
            if isinstance(target, Tensor):
                target = _ordinary(target)
            elif type(target) is LinearTarget:
                target = LinearTarget(_ordinary(target.weights))
        if arguments.frame is not None:
            inputs = arguments.features[0]
        model = self._function
        if not create_graph and isinstance(model, PARALLEL):
            model = unwrap_parallel(model)
        try:
            return self._admit(
                AttributionCall(model, inputs, additional, arguments, target, read, create_graph, wants_outputs)
            )
        except InputError as error:
            raise without_batch(model, arguments) or error from error

    def _admit(self, call: AttributionCall) -> AttributionCall:
        """The last word before the model is run, and before its state is guarded."""
        return call

    def _guarded(self, call: AttributionCall, *, preserve: bool) -> Any:
        device = call.arguments.features[0].device
        return attribution_pass(call.model, device, create_graph=call.create_graph, preserve=preserve)

    def _delta(self, call: AttributionCall, computed: Computed) -> tuple[Tensor, Tensor]:
        """Σ attribution − (F(x) − F(x′)), and F(x) − F(x′) itself."""
        arguments = call.arguments
        all_references = computed.references or (call.baselines,)

        def scores_at(features: Sequence[Tensor]) -> Tensor:
            # Every pass starts from the random state and the buffers that the attribution started from.
            with self._guarded(call, preserve=True), torch.no_grad():
                return self._score(run(call.model, arguments, features), call.target, arguments.batch)

        with torch.inference_mode(mode=False), torch.no_grad():
            at_baseline = torch.stack([self._limit(scores_at, r, arguments.features) for r in all_references]).mean(0)
            return _gap(computed.attributions, scores_at(arguments.features), at_baseline)

    def _limit(
        self, scores_at: Callable[[Sequence[Tensor]], Tensor], start: Sequence[Tensor], end: Sequence[Tensor]
    ) -> Tensor:
        """F at the start of the path; where that is 0/0, as of B-cos networks at zero, its limit along the path."""
        scores = scores_at(start)
        undefined = scores.isnan()
        if not bool(undefined.any()):
            return scores
        # At zero, a number this small is far from underflow and changes what is homogeneous by less than rounding.
        near = [a + torch.finfo(b.dtype).eps ** 2 * (b - a) for a, b in zip(start, end, strict=True)]
        return torch.where(undefined, scores_at(near), scores)


class SinglePass(Attribution):
    """Methods that are a function of the inputs and of one gradient, aᵢ = combine(xᵢ, ∂F/∂xᵢ)."""

    @abstractmethod
    def _combine(self, x: Tensor, gradient: Tensor) -> Tensor:
        """The attribution of one feature tensor."""

    def _compute(self, call: AttributionCall) -> Computed:
        done = self._differentiate(call)
        done.check_finite(call.arguments.features)
        pairs = zip(call.arguments.features, done.gradients, strict=True)
        return Computed([self._combine(x, g) for x, g in pairs], done.outputs)


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


def _spoken(value: Any) -> str:
    """A setting in a word or two: modules by their class, tensors by their shape."""
    if isinstance(value, Tensor):
        return f"tensor{list(value.shape)}"
    if isinstance(value, torch.nn.Module):
        return type(value).__name__
    if isinstance(value, str | int | float | tuple | list):
        return repr(value)
    return getattr(value, "__name__", None) or type(value).__name__.strip("_")


def _ordinary(tensor: Tensor) -> Tensor:
    """Autograd cannot save tensors that were made in inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor
