"""A model with its method of attribution, and what is found out about it once."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import logits, read_call
from axiograd._state import unwrap_parallel
from axiograd._typing import Inputs
from axiograd.attribution import Gradient
from axiograd.attribution.passes import differentiate


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
