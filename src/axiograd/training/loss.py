"""The training objective of the paper: task loss + λ·Ω(attributions)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._target import logits
from axiograd._typing import Inputs, Target
from axiograd.attribution import Attribution, Gradient, XGradient
from axiograd.attribution._arguments import Arguments
from axiograd.errors import ConfigurationError, DisconnectedError
from axiograd.homogeneity.behind import module_of
from axiograd.training.distributed import refuse_static_graph
from axiograd.training.schedules import Schedule, ensure_schedule, weight_at
from axiograd.training.targets import Outputs, attribution_target as choose_target


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


class AttributionLoss(nn.Module):
    """L(F(x), y) + λ·Ω(A(F, x)) from one forward pass; `total.backward()` trains through both terms.

    λ is `weight`, a number or a schedule step -> λ. Attributed is the true class (`outputs="target"`), each output, the
    priors summed ("all"), a random combination of outputs with signs ±1 per sample ("random", for squared priors
    unbiased for "all"), or what the method takes without a target (None). Further keywords go to the method; a
    `generator` draws combinations and, for a method that draws, its references.
    In `eval()` nothing is differentiated twice and terms come without graphs.

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
        **method_arguments: Any,
    ) -> None:
        super().__init__()
        if outputs not in {"target", "all", "random", None}:
            raise ConfigurationError(f'outputs must be "target", "all", "random" or None, got {outputs!r}')
        if isinstance(method, Attribution) and method_arguments:
            raise ConfigurationError(f"{sorted(method_arguments)} cannot be given to a method that already exists")
        self.task_loss = task_loss
        self.prior = prior
        self.schedule = ensure_schedule(weight)
        self.method = method
        self.outputs: Outputs = outputs
        self.of = of
        self.generator = generator
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
                "call loss.eval() for validation, or leave the context for training"
            )
        chosen = attribution_target
        if chosen is None:
            chosen = self.choose_target(bound, inputs, target, additional_forward_args)
        explanation = bound.method.explain(
            inputs, chosen, additional_forward_args=additional_forward_args, create_graph=self.training
        )
        attributions = self.pick(explanation.attributions)
        prior = self.prior_of(attributions, chosen, prior_arguments)
        if self.training and not bound.connected:
            _check_connected(prior, model)
            bound.connected = True
        terms = self.combine(explanation.outputs, target, prior, explanation.attributions)
        self.step += self.training
        return terms

    def bind(self, model: Callable[..., Any]) -> Bound:
        """The method on this model; made, and its wrapping checked, when the model is new."""
        if self._bound is None or self._bound.model is not model:
            refuse_static_graph(model)
            if not isinstance(self.method, Attribution):
                draws = self.generator is not None and "generator" in inspect.signature(self.method).parameters
                further = {"generator": self.generator} if draws else {}
                method = self.method(model, **self.method_arguments, **further)
            elif self.method.model is model:
                method = self.method
            else:
                raise ConfigurationError(
                    f"the loss was given a {type(self.method).__name__} of another model; pass the class, or a method "
                    "of the model that the loss is called with (after wrapping it, if it is wrapped)"
                )
            self._bound = Bound(model, method)
        return self._bound

    def choose_target(self, bound: Bound, inputs: Inputs, target: Any, additional: Any) -> Target:
        """What to attribute, by `outputs`."""
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
                f"AttributionLoss(..., of=...), got of={self.of!r}"
            )
        return by_name[self.of]

    def prior_of(self, attributions: Tensor, target: Target, arguments: Mapping[str, Any]) -> Tensor:
        """Ω(A), for all outputs Σ_c Ω(A_c)."""
        if isinstance(target, str) and target == "all":
            return torch.stack([self.prior(one, **arguments) for one in attributions]).sum()
        return self.prior(attributions, **arguments)

    def combine(self, outputs: Any, target: Any, prior: Tensor, attributions: Any) -> LossTerms:
        """The task loss, and the sum of both terms."""
        task: Any = self.task_loss(outputs, target)
        if not isinstance(task, Tensor) or task.ndim > 0:
            what = f"shape {tuple(task.shape)}" if isinstance(task, Tensor) else type(task).__name__
            raise ConfigurationError(f"the task loss must be a scalar (take its mean), got {what}")
        weight = self.weight
        return LossTerms(task + weight * prior, task, prior, outputs, attributions, weight)

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


def output_shape(bound: Bound, inputs: Inputs, additional: Any = None) -> torch.Size:
    """The shape of the outputs, by one look at a new model or at inputs of a new size, which leaves it as it was."""
    arguments = Arguments.ensure(inputs, additional)
    batch = arguments.batch
    values = (*arguments.positional, *arguments.keyword.values())
    size = tuple(value.shape[1:] for value in values if isinstance(value, Tensor))
    if size not in bound.output_shapes:
        look = Gradient(bound.model).explain(
            inputs, lambda outputs: logits(outputs).reshape(batch, -1).sum(1), additional_forward_args=additional
        )
        bound.output_shapes[size] = logits(look.outputs).shape[1:]
    return torch.Size([batch, *bound.output_shapes[size]])


def _check_connected(prior: Tensor, model: Any) -> None:
    """Raise unless some parameter has a gradient from the prior: else training would ignore it without a word."""
    module = module_of(model)
    parameters = [] if module is None else [p for p in module.parameters() if p.requires_grad]
    if module is not None and not parameters:
        raise DisconnectedError("the model has no parameter that requires a gradient; unfreeze what should be trained")
    if not prior.requires_grad:
        raise DisconnectedError(
            "the prior has no gradient: the attributions are detached, by the method, by the model or by the prior"
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
            "the attributions have a graph that stops before the model (Captum's do); use a method of axiograd"
        )
