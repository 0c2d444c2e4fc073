"""A model with its method of attribution, and what one look at it finds out."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import Call, logits, read_call
from axiograd._state import unwrap_parallel
from axiograd._typing import Inputs
from axiograd.attribution import Gradient, LogGradient
from axiograd.attribution.passes import differentiate, leaves, run
from axiograd.homogeneity.conversion.lift import Lifted
from axiograd.training.held_gates.lifted import enter
from axiograd.training.held_gates.operators import NotChainError, NotHeldError, NotSharedError
from axiograd.training.held_gates.step import Held, record


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
    #: Whether the model may be a chain of layers whose formulas are known.
    may_chain: bool = True
    #: Whether the gates are those of the network inside a lifted one.
    lifted: bool = False
    #: Whether there are no second derivatives, because of reentrant checkpoints.
    only_held: bool = False
    #: Multiplications with weights per sample.
    work: float = 0.0
    #: Why its wrapper must see plain passes and nothing else; "" if it need not.
    plain_passes: str = ""
    #: Why the last step took second derivatives.
    last: str | None = None

    def give_up(self, reason: NotHeldError) -> None:
        """Take another way in the steps to come."""
        if isinstance(reason, NotChainError):
            self.may_chain = False
        elif isinstance(reason, NotSharedError):
            self.may_share = False
        else:
            self.why_twice = str(reason)


def output_shape(bound: Bound, inputs: Inputs, additional: Any = None) -> torch.Size:
    """The shape of the outputs, by one look at a new model or at inputs of a new size, which leaves it as it was.

    The look also finds out whether the gates of the model can be held.
    """
    layer = getattr(bound.method, "layer", None)
    arguments = read_call(inputs, additional) if layer is None else read_call(inputs, additional, check=False)
    values = [value for value in arguments.values() if isinstance(value, Tensor)]
    batch = arguments.batch if layer is None else len(values[0])
    size = tuple(value.shape[1:] for value in values)
    if size not in bound.output_shapes:
        method = Gradient(unwrap_parallel(bound.model), layer=layer)
        call = method._call(inputs, None, None, additional, create_graph=True)  # noqa: SLF001 (a look as it makes them)
        with method._guarded(call, preserve=True):  # noqa: SLF001
            outputs = _looked_at(bound, call.model, call.arguments)
        bound.output_shapes[size] = logits(outputs).shape[1:]
    return torch.Size([batch, *bound.output_shapes[size]])


def _recorded(bound: Bound, model: Any, arguments: Call) -> tuple[Held, Any]:
    if isinstance(model, Lifted) and type(bound.method) is not LogGradient:
        entered = enter(model, arguments.prepared(create_graph=False))
        inside = entered.arguments
        held, outputs, _ = record(model.model, inside, leaves(inside.features, create_graph=False), attached=True)
        bound.lifted = True
        return held, model.leave(outputs, entered.rho)
    held, outputs, _ = record(model, arguments, leaves(arguments.features, create_graph=False), attached=True)
    return held, outputs


def _looked_at(bound: Bound, model: Any, arguments: Call) -> Any:
    if bound.plain_passes:
        with torch.no_grad():
            return run(model, arguments, arguments.features)
    if not bound.why_twice:
        try:
            held, outputs = _recorded(bound, model, arguments)
        except (NotHeldError, RuntimeError) as reason:
            bound.why_twice = str(reason)
        else:
            bound.why_twice, bound.work = "", held.tape.work / arguments.batch
            bound.only_held = held.reentrant
            return outputs
    # With a backward pass: a model that cannot be differentiated by its inputs says so here.
    score = lambda outputs: logits(outputs).reshape(arguments.batch, -1).sum(1)  # noqa: E731
    return differentiate(model, arguments, score, create_graph=False).outputs
