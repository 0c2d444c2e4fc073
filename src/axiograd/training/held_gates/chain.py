"""The held-gate step of plain chains of torch's own layers, for networks that take less time than a step's bookkeeping.

The model is not watched as it runs: each layer is called, differentiated and called again by its own formulas, without
autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._calls import Call, Model
from axiograd.attribution.passes import Pass, Score, leaves
from axiograd.homogeneity.conversion.scale import per_sample
from axiograd.training.held_gates.links import links_of
from axiograd.training.held_gates.multiples import common
from axiograd.training.held_gates.operators import NotChainError
from axiograd.training.held_gates.step import Direction, HeldPass, Outputs, add_gradient, one_score
from axiograd.training.held_gates.tape import Tensors
from axiograd.training.task import Task


class Chain(HeldPass):
    """One pass through a chain."""

    def __init__(self, model: Any, x: Tensor) -> None:
        self._links = links_of(model)
        if x.dim() < 2 or torch.is_autocast_enabled(x.device.type) or type(x) is not Tensor:  # noqa: PLR2004
            raise NotChainError("the input is not a batch of plain numbers.")
        self._weights: list[Tensor] = []
        #: Of each link: the places of its weights among those that are trained.
        self._places: list[tuple[int | None, ...]] = []
        places: dict[int, int] = {}
        for link in self._links:
            found: list[int | None] = []
            for weight in link.weights():
                if weight is not None and (type(weight) is not nn.Parameter or weight.dtype != x.dtype):
                    raise NotChainError("a weight is not a parameter of the input's number format.")
                trained = weight is not None and weight.requires_grad
                if weight is not None and trained and id(weight) not in places:
                    places[id(weight)] = len(self._weights)
                    self._weights.append(weight)
                found.append(places[id(weight)] if trained else None)
            self._places.append(tuple(found))
        self._kept = Tensors(self._weights, [])
        self._inputs: list[Tensor] = []
        self._gradients: list[Tensor] = []

    @property
    def kept(self) -> Tensors:
        return self._kept

    def run(self, x: Tensor) -> Tensor:
        """F(x), the gates kept."""
        with torch.no_grad():
            for link in self._links:
                self._inputs.append(x)
                x = link.forward(x)
        return x

    def differentiate(self, cotangent: Tensor) -> Tensor:
        """Jᵀρ, the gradients on the way kept."""
        with torch.no_grad():
            for link in reversed(self._links):
                self._gradients.append(cotangent)
                cotangent = link.back(cotangent)
        self._gradients.reverse()
        return cotangent

    def weight_gradients(
        self, inputs: Sequence[Tensor], tensors: Tensors, *, linear: bool, times: Tensor | None = None
    ) -> tuple[list[Tensor | None], dict[int, Tensor]]:
        total: list[Tensor | None] = [None] * len(tensors.weights)
        (x,) = inputs
        for i, (link, places) in enumerate(zip(self._links, self._places, strict=True)):
            if places:
                gradient = self._gradients[i]
                gradient = gradient if times is None else per_sample(times, gradient) * gradient
                self._add_products(total, i, x, gradient, linear=linear)
            x = link.again(x, linear) if i + 1 < len(self._links) else x
        return total, {}

    def plain_gradients(
        self,
        inputs: Sequence[Tensor],  # noqa: ARG002 - those of the pass
        tensors: Tensors,
        r: Tensor,
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        total: list[Tensor | None] = [None] * len(tensors.weights)
        for i in reversed(range(len(self._links))):
            if self._places[i]:
                self._add_products(total, i, self._inputs[i], r, linear=False)
            r = self._links[i].back(r)
        return total, [r]

    def _add_products(self, total: list[Tensor | None], i: int, x: Tensor, gradient: Tensor, *, linear: bool) -> None:
        weight, bias = self._places[i]
        wanted = weight is not None, bias is not None and not linear
        if any(wanted):
            for place, found in zip((weight, bias), self._links[i].products(x, gradient, wanted), strict=True):
                if place is not None:
                    add_gradient(total, place, found)


def weights_of(scores: Tensor, result: Tensor) -> Tensor:
    """u with scores = u·result, sample by sample."""
    node = scores.grad_fn
    while node is not None and node.name() in _SAME_NUMBERS:
        node = node.next_functions[0][0]
    if node is result.grad_fn:  # the only output itself
        return torch.ones_like(result)
    (u,) = torch.autograd.grad(scores.sum(), result, retain_graph=True)
    return u


#: Where autograd passes all numbers on.
_SAME_NUMBERS = {"ViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward1", "UnsafeViewBackward0"}


def differentiate_chain(
    model: Model,
    arguments: Call,
    score: Score,
    task: Task,
    *,
    create_graph: bool,
) -> Pass:
    """What `differentiate_shared` gives, whether products are shared or not."""
    if len(arguments.positional) != 1 or arguments.keyword:
        raise NotChainError("the model has several inputs.")
    (x,) = leaves(arguments.features, create_graph=create_graph)
    chain = Chain(model, x.detach())
    outputs = chain.run(x.detach())
    result, way = Outputs.apply(chain, outputs, 1, x, *chain.kept.weights)  # type: ignore[no-untyped-call]
    scores = one_score(score(result))
    u = weights_of(scores, result)
    r = task.gradient(result, result)
    if r is None:
        raise NotChainError("the task does not depend on the output.")
    chain.cotangent, chain.scale, chain.shared = common(u, r)
    chain.gradients = (chain.differentiate(chain.cotangent),)
    return Pass(result, scores, Direction.apply(chain, way))  # type: ignore[no-untyped-call]
