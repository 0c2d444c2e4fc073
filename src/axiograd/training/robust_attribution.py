"""Robust attribution training: explanations that stay when the input moves a little."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd._state import preserved_buffers, with_buffers
from axiograd.attribution import IntegratedGradients, XGradient
from axiograd.errors import ConfigurationError, InputError
from axiograd.training.objective import Objective, each_loss

#: The steps of the search add up to so many times the radius, so that it can cross the ball.
_REACH = 2.5


@dataclass(frozen=True)
class RobustTerms:
    """total = task + change, with the model's outputs at x and where the search ended."""

    total: Tensor
    task: Tensor
    change: Tensor
    outputs: Tensor
    moved: Tensor


class RobustAttribution(Objective):
    """L(F(x), y) + mean over samples of max_{‖δ‖∞≤ε} d(x, x + δ), an objective for `fit` or a loop of your own.

    d(x, x′) = x_gradient·‖A(x′) − A(x)‖₁ + integrated_gradients·‖IGᴸ(x, x′)‖₁ + loss·(L(x′) − L(x)).

    A is X-Gradient of the true class, exact in one pass for an X-DNN. IGᴸ(x, x′) attributes the change of the loss
    along the line from x to x′, by quadrature with ``n_steps`` gradients; it needs no X-DNN. `integrated_gradients`
    alone is IG-NORM, with `loss=1.0` IG-SUM-NORM, and `loss=1.0` alone is adversarial training. The maximum is sought
    by ``steps`` steps of projected sign ascent from a random start, inside ``bounds``; with none, δ is that random
    start, uniform in the ball. Where F is piecewise linear, the slope of A does not see the gates that a step switches.

    Chen, Wu, Rastogi, Liang, Jha: Robust attribution regularization, 2019.

    >>> from torch.nn import Linear, ReLU, Sequential, functional as F
    >>> model = Sequential(Linear(3, 8, bias=False), ReLU(), Linear(8, 2, bias=False))
    >>> objective = RobustAttribution(F.cross_entropy, 0.1, x_gradient=0.5, steps=0)
    >>> terms = objective(model, torch.rand(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> terms.total.backward()
    >>> bool(torch.isclose(terms.total, terms.task + terms.change)), bool(terms.change > 0)
    (True, True)
    """

    def __init__(
        self,
        task_loss: Callable[..., Tensor],
        epsilon: float,
        *,
        x_gradient: float = 0.0,
        integrated_gradients: float = 0.0,
        loss: float = 0.0,
        steps: int = 3,
        n_steps: int = 5,
        bounds: tuple[float, float] | None = (0.0, 1.0),
    ) -> None:
        super().__init__()
        if not epsilon > 0:
            raise ConfigurationError(f"epsilon={epsilon}: the radius in which inputs move must be positive.")
        weights = {"x_gradient": x_gradient, "integrated_gradients": integrated_gradients, "loss": loss}
        if min(weights.values()) < 0 or not any(weights.values()):
            raise ConfigurationError(
                f"{', '.join(f'{name}={value}' for name, value in weights.items())}: one of these weights must be "
                "positive, and none negative."
            )
        if steps < 0:
            raise ConfigurationError(f"steps={steps}: expected the number of steps of the search, 0 for a random one.")
        self.task_loss, self.epsilon, self.steps, self.n_steps, self.bounds = task_loss, epsilon, steps, n_steps, bounds
        self.x_gradient, self.integrated_gradients, self.loss = x_gradient, integrated_gradients, loss
        self._method: XGradient | None = None

    def forward(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> RobustTerms:
        """The terms of one batch."""
        if arguments or not isinstance(inputs, Tensor) or not isinstance(target, Tensor):
            given = ", ".join(arguments) or f"inputs {type(inputs).__name__} and target {type(target).__name__}"
            raise InputError(
                f"robust attribution takes one tensor and its targets, without mixup or masks; got {given}."
            )
        moved = self.search(model, inputs, target)
        outputs, still = self._seen(model, inputs, target)
        change = self._change(model, (inputs, outputs, still), moved, target).mean()
        task = self.task_loss(outputs, target)
        return RobustTerms(task + change, task, change, outputs, moved)

    def search(self, model: Callable[..., Any], inputs: Tensor, target: Tensor) -> Tensor:
        """x + δ with a large d(x, x + δ), without a graph; the model's buffers and gradients stay as they were."""
        x = inputs.detach()
        moved = within(x, x + self.epsilon * (2 * torch.rand_like(x) - 1), self.epsilon, self.bounds)
        if self.steps:
            with preserved_buffers(with_buffers(model)):
                outputs, still = self._seen(model, x, target)
                here = (x, outputs.detach(), None if still is None else still.detach())
                for _ in range(self.steps):
                    moved.requires_grad_()
                    (slope,) = torch.autograd.grad(self._change(model, here, moved, target).sum(), moved)
                    step = _REACH * self.epsilon / self.steps
                    moved = within(x, moved.detach() + step * slope.sign(), self.epsilon, self.bounds)
        return moved

    def _seen(self, model: Callable[..., Any], x: Tensor, target: Tensor) -> tuple[Tensor, Tensor | None]:
        """F(x), and A(x) if it counts."""
        if not self.x_gradient:
            return model(x), None
        if self._method is None or self._method.model is not model:
            self._method = XGradient(model)
        explanation: Any = self._method.explain(x, target, create_graph=True)
        return explanation.outputs, explanation.attributions

    def _change(
        self,
        model: Callable[..., Any],
        here: tuple[Tensor, Tensor, Tensor | None],
        moved: Tensor,
        target: Tensor,
    ) -> Tensor:
        """d(x, x′) of each sample."""
        x, outputs, still = here
        total = x.new_zeros(len(x))
        if self.x_gradient or self.loss:
            seen, there = self._seen(model, moved, target)
            if self.loss:
                losses = [each_loss(self.task_loss, found, target) for found in (seen, outputs)]
                total = total + self.loss * (losses[0] - losses[1])
            if still is not None and there is not None:
                total = total + self.x_gradient * (there - still).flatten(1).abs().sum(1)
        if self.integrated_gradients:
            method = IntegratedGradients(model, self.n_steps)
            apart = method.attribute(
                moved, lambda o: each_loss(self.task_loss, o, target), baselines=x, create_graph=True
            )
            total = total + self.integrated_gradients * apart.flatten(1).abs().sum(1)
        return total


def within(x: Tensor, moved: Tensor, epsilon: float, bounds: tuple[float, float] | None = (0.0, 1.0)) -> Tensor:
    """The nearest point to `moved` that no feature takes further than ε from x, inside the bounds.

    >>> within(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.9, 0.45, -0.1]), 0.1)
    tensor([0.6000, 0.4500, 0.0000])
    """
    moved = torch.minimum(torch.maximum(moved, x - epsilon), x + epsilon)
    return moved if bounds is None else moved.clamp(*bounds)
