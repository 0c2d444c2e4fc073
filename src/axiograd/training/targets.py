"""Which outputs a prior sees: the true one, all of them, or a random combination."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from axiograd._calls import logits
from axiograd._typing import Target
from axiograd.attribution import LinearTarget
from axiograd.errors import ConfigurationError, TargetError

#: "target": the true class; "all": each output; "random": a random combination; "residual": what the task still gets
#: wrong; None: what the method takes unasked.
Outputs: TypeAlias = Literal["target", "all", "random", "residual"] | None


class Task:
    """L(outputs, target) as a function of the outputs.

    >>> task = Task(torch.nn.functional.mse_loss, torch.tensor([1.0]))
    >>> outputs = torch.tensor([3.0], requires_grad=True)
    >>> task(outputs), task.gradient(outputs, outputs)
    (tensor(4., grad_fn=<MseLossBackward0>), tensor([4.]))
    """

    def __init__(self, task_loss: Callable[[Any, Any], Tensor], target: Any) -> None:
        self._task_loss, self._target = task_loss, target
        self._known: tuple[Any, Tensor] | None = None
        self._gradient: tuple[Tensor, Tensor | None] | None = None

    def __call__(self, outputs: Any) -> Tensor:
        if self._known is None or self._known[0] is not outputs:
            value: Any = self._task_loss(outputs, self._target)
            if not isinstance(value, Tensor) or value.ndim > 0:
                what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ConfigurationError(f"the task loss must be a scalar (take its mean), got {what}.")
            self._known = outputs, value
        return self._known[1]

    def gradient(self, outputs: Any, tensor: Tensor) -> Tensor | None:
        """r = ∂L/∂F, by one tensor of the outputs; None if the loss does not depend on it."""
        if self._gradient is None or self._gradient[0] is not tensor:
            (r,) = torch.autograd.grad(self(outputs), [tensor], retain_graph=True, allow_unused=True)
            self._gradient = tensor, r
        return self._gradient[1]


def attribution_target(
    outputs: Outputs, target: Any, shape: torch.Size, generator: torch.Generator | None = None
) -> Target:
    """The target to attribute, for a task target and outputs of the given shape [batch, ...].

    >>> attribution_target("target", torch.tensor([0, 2]), torch.Size([2, 3]))
    tensor([0, 2])
    >>> attribution_target("target", torch.tensor([0.0, 1.0]), torch.Size([2, 1])) is None
    True
    """
    if outputs == "random":
        return random_combination(shape, generator)
    if outputs == "all":
        return "all"
    if outputs is None or shape.numel() == shape[0]:
        return None
    return _true_output(target, shape)


def random_combination(shape: torch.Size, generator: torch.Generator | None = None) -> LinearTarget:
    """Σ_c ε_c·F_c(x) with independent signs ε_c = ±1 (zero mean, unit variance), drawn for each sample.

    Its attribution is Σ_c ε_c·a_c, whose square has the expectation Σ_c a_c²: a prior on squared attributions
    costs one output and is unbiased for the sum over all.

    >>> random_combination(torch.Size([2, 3])).weights.abs()
    tensor([[1., 1., 1.], [1., 1., 1.]])
    """
    device = None if generator is None else generator.device
    n_outputs = shape.numel() // shape[0]
    signs = torch.randint(2, (shape[0], n_outputs), generator=generator, device=device)
    return LinearTarget(2.0 * signs - 1.0)


class Residual(LinearTarget):
    """u·F(x) with u = √C·r/‖r‖ per sample, r = ∂L/∂F the task's own gradient at C outputs, held fixed.

    It has the size of a random combination of signs, and looks where the task pulls. A sample that pulls nowhere,
    r = 0 (to rounding), has u = 0: no attribution, and nothing for a prior to change. The first outputs
    decide u.

    >>> target = Residual(Task(lambda outputs, y: (outputs[:, 0] - y).square().mean(), 3.0))
    >>> target(torch.tensor([[1.0, 5.0]], requires_grad=True)).detach()
    tensor([-1.4142])
    """

    def __init__(self, task: Task) -> None:
        super().__init__(torch.empty(0))
        object.__setattr__(self, "task", task)  # the base is frozen

    task: Task

    def forget(self) -> None:
        """Take u from the next outputs."""
        object.__setattr__(self, "weights", torch.empty(0))

    def __call__(self, output: Any) -> Tensor:
        if not self.weights.numel():
            object.__setattr__(self, "weights", self._combination(output))
        return super().__call__(output)

    def _combination(self, output: Any) -> Tensor:
        tensor = logits(output)
        if not tensor.requires_grad:
            raise TargetError("the residual is the task's gradient by the outputs, and these outputs have none.")
        r = self.task.gradient(output, tensor)
        if r is None:
            raise TargetError("the task loss does not depend on the outputs that are attributed.")
        rows = r.reshape(len(r), -1)
        # In two steps, so that squares of small numbers do not vanish.
        largest = rows.abs().amax(1, keepdim=True)
        rows = torch.where(largest < _negligible(r.dtype), 0.0, rows / largest)
        size = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        u: Tensor = rows * (rows.shape[1] ** 0.5 / size.clamp(min=1.0))
        return u.detach()


def _negligible(dtype: torch.dtype) -> float:
    """Gradients of outputs below this are too small to be divided by: 1e-19 in float32, 6e-5 in float16."""
    tiny: float = torch.finfo(dtype).tiny
    return tiny if dtype == torch.float16 else tiny**0.5


def _true_output(target: Any, shape: torch.Size) -> Target:
    n_outputs = shape.numel() // shape[0]
    if (
        isinstance(target, Tensor)
        and not (target.is_floating_point() or target.dtype == torch.bool)
        and len(shape) == 2  # noqa: PLR2004 ([batch, class])
        and target.numel() == shape[0]
    ):
        return target.reshape(-1)
    what = f"{target.dtype} of shape {tuple(target.shape)}" if isinstance(target, Tensor) else repr(target)
    raise TargetError(
        f'outputs="target" attributes the true class, but targets ({what}) do not name one of the {n_outputs} '
        f'outputs of shape {tuple(shape)}; use outputs="all" or outputs="random", or say which output with '
        "attribution_target=..."
    )
