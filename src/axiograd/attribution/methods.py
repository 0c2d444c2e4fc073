"""The one table of methods: a name, a title and a class. A new method is one file, and one line here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from axiograd._calls import Model
from axiograd._names import choose_from
from axiograd._typing import Inputs
from axiograd.attribution.base import Attribution
from axiograd.attribution.expected_gradients import ExpectedGradients
from axiograd.attribution.gradient import Gradient
from axiograd.attribution.held_gradient import HeldGradient
from axiograd.attribution.input_x_gradient import InputXGradient
from axiograd.attribution.integrated_gradients import IntegratedGradients
from axiograd.attribution.layer import Layer
from axiograd.attribution.log_gradient import LogGradient
from axiograd.attribution.occlusion import Occlusion
from axiograd.attribution.random_attribution import RandomAttribution
from axiograd.attribution.saliency import Saliency
from axiograd.attribution.x_gradient import XGradient
from axiograd.errors import ConfigurationError, NotHomogeneousError

#: Parameters that count gradients, under whichever name a method has for them.
_COUNTS = ("n_steps", "n_samples")


@dataclass(frozen=True)
class MethodEntry:
    """A method, and what it needs; the needs are read off its constructor.

    >>> METHODS["expected-gradients"].count, METHODS["expected-gradients"].needs_references
    ('n_samples', True)
    >>> METHODS["integrated-gradients"].titled(128)
    'Integrated Gradients (128)'
    """

    name: str
    title: str
    method: type[Attribution]
    #: Whether its attributions are meant to add up to F(x) − F(0).
    adds_up: bool = False
    #: Whether it may be used on certified models only.
    certified: bool = False

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """What its constructor takes beside the model, with the defaults (`inspect.Parameter.empty` where none)."""
        parameters = list(inspect.signature(self.method).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}

    @property
    def count(self) -> str | None:
        """The name of the setting that counts its gradients; None for methods of one gradient."""
        return next((name for name in _COUNTS if name in self.settings), None)

    @property
    def needs_references(self) -> bool:
        """Whether it draws its baselines from given references."""
        return "references" in self.settings

    def titled(self, steps: int | None = None) -> str:
        """The title, with the number of gradients where there is a choice."""
        if self.count is None:
            return self.title
        return f"{self.title} ({self.settings[self.count] if steps is None else steps})"

    def build(
        self,
        model: Model,
        *,
        steps: int | None = None,
        references: Any = None,
        generator: torch.Generator | None = None,
        internal_batch_size: int | None = None,
        **further: Any,
    ) -> Attribution:
        """The method on a model; of steps, references, generator and batch size it gets what it has a use for.

        >>> METHODS["saliency"].build(torch.nn.Identity(), steps=128).attribute(torch.ones(1, 1))
        tensor([[1.]])
        """
        if self.needs_references and references is None:
            raise ConfigurationError(f"{self.title} needs references to draw its baselines from, got none.")
        offered = {"references": references, "generator": generator, "internal_batch_size": internal_batch_size}
        if self.count is not None:
            offered[self.count] = steps
        useful = {name: value for name, value in offered.items() if value is not None and name in self.settings}
        return self.method(model, **useful, **further)


_ALL = (
    MethodEntry("x-gradient", "X-Gradient", XGradient, adds_up=True, certified=True),
    MethodEntry("integrated-gradients", "Integrated Gradients", IntegratedGradients, adds_up=True),
    MethodEntry("expected-gradients", "Expected Gradients", ExpectedGradients),
    MethodEntry("input-x-gradient", "Input×Gradient", InputXGradient, adds_up=True),
    MethodEntry("held-gradient", "Held gradient", HeldGradient, adds_up=True),
    MethodEntry("gradient", "Gradient", Gradient),
    MethodEntry("saliency", "Saliency", Saliency),
    MethodEntry("log-gradient", "Log-gradient", LogGradient),
    MethodEntry("occlusion", "Occlusion", Occlusion),
    MethodEntry("random", "Random", RandomAttribution),
)
METHODS: Mapping[str, MethodEntry] = {entry.name: entry for entry in _ALL}


def find_method(name: str | type[Attribution]) -> MethodEntry:
    """The entry of a method by its name, its class or its class's name; a class of the user's own has one, too.

    >>> find_method("saliency") is find_method("Saliency") is find_method(Saliency)
    True
    >>> find_method("x-gradeint")
    Traceback (most recent call last):
    axiograd.errors.ConfigurationError: no method 'x-gradeint': did you mean 'x-gradient'? ...
    """
    for entry in METHODS.values():
        if name in (entry.name, entry.method.__name__, entry.method):
            return entry
    if not isinstance(name, str):
        return MethodEntry(name.__name__, name.__name__, name)
    raise ConfigurationError(f"no method {name!r}: {choose_from(name, METHODS)}.")


def choose_method(model: Model, inputs: Inputs, *, layer: Layer | None = None) -> tuple[type[Attribution], str]:
    """The method that suits a model, and why in one sentence.

    >>> choose_method(torch.nn.Linear(2, 1, bias=False), torch.ones(1, 2))
    (<class '...XGradient'>, 'X-Gradient: the model is certified, so it equals Integrated Gradients in one pass.')
    """
    try:
        XGradient(model, layer=layer)._call(inputs, None, None, None, create_graph=False)  # noqa: SLF001 - proves it
    except NotHomogeneousError:
        pass
    else:
        return XGradient, "X-Gradient: the model is certified, so it equals Integrated Gradients in one pass."
    if HeldGradient(model, layer=layer).attends(inputs):
        return HeldGradient, (
            "Held gradient: the model uses attention, so scales of norms and slopes are held and the rest adds up in "
            "one pass; it is not Integrated Gradients."
        )
    return IntegratedGradients, "Integrated Gradients: the model is not certified, so the path is integrated in steps."
