"""Captum's methods with the two calls of ours."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from axiograd._calls import Call, LinearTarget, Model, logits, select
from axiograd._extras import optional
from axiograd._state import all_modules, module_of, running_eagerly
from axiograd._typing import Target
from axiograd.attribution.base import Attribution, AttributionCall, Computed, private_generator
from axiograd.attribution.passes import check_finite, run
from axiograd.errors import BaselineError, ConfigurationError

#: What the two calls pass themselves.
_OURS = {"inputs", "target", "baselines", "additional_forward_args", "return_convergence_delta"}


class CaptumMethod(Attribution):
    """Any method of Captum that attributes to inputs: a class, an instance, or a function from model to instance.

    Keywords go to Captum's constructor if it knows them, and to its ``attribute`` otherwise. Attributions are
    always detached, for Captum's are not connected to the parameters. The target "all" is a loop over outputs.
    Completeness is ours: Σ attribution − (F(x) − F(x′)), where F(x′) is the mean over a distribution of baselines.

    >>> from captum.attr import DeepLift
    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU())
    >>> nn.init.ones_(model[0].weight).shape
    torch.Size([1, 2])
    >>> CaptumMethod(model, DeepLift).attribute(torch.tensor([[3.0, -1.0]]), baselines=0.0)
    tensor([[ 3., -1.]])
    """

    differentiable = False

    def __init__(
        self, model: Model, method: Any, /, *, generator: torch.Generator | None = None, **options: Any
    ) -> None:
        super().__init__(model)
        self._attr = optional("captum.attr", "captum", "CaptumMethod")
        if taken := _OURS & options.keys():
            raise ConfigurationError(f"{', '.join(sorted(taken))}: pass it to attribute or explain, not here.")
        kind = method if isinstance(method, type) else type(method)
        #: Captum's name for it, or the function's.
        self.name = kind.__name__ if issubclass(kind, self._attr.Attribution) else getattr(method, "__name__", "method")
        self._takes_distribution = issubclass(kind, self._attr.GradientShap | self._attr.DeepLiftShap)
        self.method, self.generator, self._private = method, generator, private_generator()
        known = set(inspect.signature(method).parameters) if isinstance(method, type) else set()
        self.constructor_options = {k: v for k, v in options.items() if k in known}
        self.options = {k: v for k, v in options.items() if k not in known}
        if hasattr(self._build(self.model), "model") and module_of(self.model) is None:
            raise ConfigurationError(
                f"{self.name} uses hooks on modules and finds none in {self.model!r}: pass the nn.Module."
            )

    def _build(self, forward: Any) -> Any:
        """Captum's object for a forward function."""
        if isinstance(self.method, self._attr.Attribution):
            if self.method.forward_func is not self.model:
                raise ConfigurationError(
                    f"the given {self.name} was constructed for another model: construct it with this one."
                )
            # A copy for the other function, which still knows the layers of the model.
            same = {id(module): module for module in all_modules(self.model)}
            built = copy.deepcopy(self.method, same | {id(self.model): forward})
        else:
            try:
                built = self.method(forward, **self.constructor_options)
            except (TypeError, AttributeError) as error:
                raise ConfigurationError(
                    f"{self.name} cannot be made from the model and {self.constructor_options or 'no options'} "
                    f"({error}): pass what is missing as keywords, or a function from a model to a method, such as "
                    "lambda model: NoiseTunnel(Saliency(model))."
                ) from error
        layered = self._attr.LayerAttribution | self._attr.NeuronAttribution
        if not isinstance(built, self._attr.Attribution) or isinstance(built, layered):
            raise ConfigurationError(
                f"{self.name} is not a method of Captum that attributes to inputs: expected a class, an instance, or "
                "a function that makes one from a model."
            )
        return built

    def _read_baselines(self, baselines: Any, arguments: Call) -> tuple[Tensor, ...]:
        if baselines is None:
            return ()
        if not self._takes_distribution:
            return arguments.fill(baselines, "baselines")
        given = (baselines,) if isinstance(baselines, Tensor) else tuple(baselines)
        pairs = list(zip(given, arguments.features, strict=False))
        if len(given) != len(arguments.slots) or any(b.shape[1:] != x.shape[1:] for b, x in pairs):
            raise BaselineError(
                f"{self.name} takes a distribution of baselines: per input a tensor [n, *features], got shapes "
                f"{[tuple(b.shape) for b in given]} for {[tuple(x.shape) for x in arguments.features]}."
            )
        return tuple(b.to(x) for b, x in pairs)

    def _compute(self, call: AttributionCall) -> Computed:
        arguments = call.arguments
        with torch.no_grad():
            outputs = run(call.model, arguments, arguments.features)
            scores = self._score(outputs, call.target, arguments.batch)
        forward = _Scores(call)
        with _lent(call.model), running_eagerly(), self._seeded():
            method = self._build(forward)
            if isinstance(call.target, str):
                each = [self._attribute(method, forward, call, i) for i in range(scores.shape[1])]
                attributions = [torch.stack(per_output) for per_output in zip(*each, strict=True)]
            else:
                attributions = self._attribute(method, forward, call, _for_captum(call.target, arguments.batch))
        check_finite(arguments.features, scores, attributions)
        return Computed(attributions, outputs, self._references(call))

    def _attribute(self, method: Any, forward: _Scores, call: AttributionCall, target: Any) -> list[Tensor]:
        options = dict(self.options)
        parameters = inspect.signature(method.attribute).parameters
        if call.baselines:
            if "baselines" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                options["baselines"] = _bare(call.baselines, call)
            elif any(bool(b.any()) for b in call.baselines):
                raise BaselineError(f"{self.name} takes no baselines.")
        elif self._takes_distribution:
            raise BaselineError(f"{self.name} needs a distribution of baselines: pass baselines=[n, *features].")
        features = tuple(x.detach().clone() for x in call.arguments.features)
        found = method.attribute(
            _bare(features, call), target=target, additional_forward_args=forward.constants or None, **options
        )
        return [a.detach() for a in ([found] if isinstance(found, Tensor) else found)]

    def _references(self, call: AttributionCall) -> list[tuple[Tensor, ...]]:
        features = call.arguments.features
        if not (self._takes_distribution and call.baselines):
            return [call.baselines or call.arguments.fill(None, "baselines")]
        rows = zip(*(b.unbind(0) for b in call.baselines), strict=True)
        return [tuple(b.expand_as(x) for b, x in zip(row, features, strict=True)) for row in rows]

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Captum draws from the global states of torch (restored by the caller) and of NumPy."""
        seed = int(torch.randint(2**32, (), generator=self.generator or self._private))
        state = np.random.get_state()  # noqa: NPY002  # the legacy state is the one that Captum uses
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002


class _Scores(nn.Module):
    """What Captum differentiates: features, then the other tensors with a row per sample, to selectable scores."""

    def __init__(self, call: AttributionCall) -> None:
        super().__init__()
        self.owner = module_of(call.model)  # registered, so that methods with hooks find the layers
        self.held = (call.model,)
        self.target = call.target
        arguments = call.arguments
        values = dict(enumerate(arguments.positional)) | dict(arguments.keyword)
        per_sample = [slot for slot in arguments.rows_beside() if isinstance(values[slot], Tensor)]
        self.arguments = replace(arguments, slots=(*arguments.slots, *per_sample))
        self.constants = tuple(values[slot] for slot in per_sample)
        self.weighted = isinstance(call.target, LinearTarget) and len(call.target.weights) == arguments.batch
        if isinstance(call.target, LinearTarget) and self.weighted:
            self.constants += (call.target.weights,)

    def forward(self, *tensors: Tensor) -> Tensor:
        target: Target = LinearTarget(tensors[-1]) if self.weighted else self.target
        inputs = tensors[: len(self.arguments.slots)]
        outputs = run(self.held[0], self.arguments, inputs)
        if target is None or isinstance(target, str) or callable(target):
            return select(outputs, target, len(inputs[0]))
        return logits(outputs)


def _for_captum(target: Target, batch: int) -> Any:
    """The target by which Captum indexes what `_Scores` returns."""
    if target is None or callable(target):
        return None
    if isinstance(target, Tensor):
        return target.reshape(-1)
    return target[0] if isinstance(target, list) and len(target) == 1 < batch else target


def _bare(tensors: tuple[Tensor, ...], call: AttributionCall) -> Any:
    """Options such as sliding windows have the structure of the inputs, so a single tensor stays one."""
    return tensors[0] if len(tensors) == 1 and not isinstance(call.inputs, tuple) else tensors


@contextmanager
def _lent(model: Model) -> Iterator[None]:
    """The model, whose modules may be written on: all that they hold comes back as it was.

    Parameters are swapped for copies: a method that rewrites weights (LRP) then never touches the user's storage, nor
    what is saved there for a later ``backward()``.
    """
    modules = all_modules(model)
    held = [vars(module) for module in modules]
    held += [part for own in held for part in own.values() if isinstance(part, dict)]
    before = [dict(part) for part in held]
    copies: dict[int, nn.Parameter] = {}
    with warnings.catch_warnings():
        for where in (r"captum\.", r"axiograd\.attribution\.captum"):
            warnings.filterwarnings("ignore", module=where)
        warnings.filterwarnings("ignore", message=".*backward hook.*")
        try:
            for module in modules:
                for name, p in module._parameters.items():  # noqa: SLF001  # setattr would run a module's own __setattr__
                    if p is not None:
                        own = nn.Parameter(p.detach().clone(), requires_grad=p.requires_grad)
                        module._parameters[name] = copies.setdefault(id(p), own)  # noqa: SLF001
            yield
        finally:
            for part, content in zip(held, before, strict=True):
                part.clear()
                part.update(content)
