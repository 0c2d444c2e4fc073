"""The attempt to refute: the model itself, run beside the proof, on the example and on an input unlike it.

F(αx) = αᵏF(x) for α far from 1, Euler's identity x·∇F = kF, and autograd's slope along a line against a difference of
outputs. A certificate that survives is not proved by it; one that does not is withdrawn. Cost: ten forward and two
backward passes on at most two samples, where the program holds for every batch size.
"""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import Leaves
from axiograd._state import running_eagerly
from axiograd.errors import InputError
from axiograd.homogeneity.certificate import Violation
from axiograd.homogeneity.probe import EXAMPLE, ModelProbe, Point, in_double
from axiograd.homogeneity.tracing.failure import fails_itself, wrong_format
from axiograd.homogeneity.tracing.program import Program
from axiograd.homogeneity.tracing.sizes import Sizes

#: Far from 1, so that thresholds show; even powers of 2, by which sums, products, roots and comparisons scale exactly.
ALPHAS = (2.0**-6, 2.0**6)
#: Where epsilons count, they are left behind first.
BEYOND_EPSILONS = 2.0**12
#: Rows that are tried where the program holds for any number of them.
ROWS = 2
#: Points of the path 0 → x at which the gradient is measured.
PATH = tuple(2.0**-j for j in range(9))
MODEST_PATH = PATH[:4]
#: Numbers of a gradient that are compared at a time.
_PIECE = 2**18

#: A gradient that differs from the slope by more, relative to what a line like it has, is another one.
_SLOPE = 0.02
#: Where it does over the first step, and agrees over one of these, the function is steep and the gradient right.
_NEARER_STEPS = (1e-9, 1e-12)

_FIX = (
    "The proof is about what torch.export traced. Look for code that behaves differently when it is traced "
    "(torch.compiler.is_compiling, is_exporting, type(x) is Tensor), for hooks, and for rules added by hand."
)


#: What autograd says of a model whose gradient cannot be had.
_NO_GRADIENT = re.compile("derivative for .* not implemented|modified by an inplace operation")


def attempt(model: Callable[..., Any], probe: ModelProbe, degree: float, *, exact: bool) -> Violation | None:
    """Run the model on the example and elsewhere; a contradiction counts if it is there in float64, too."""
    against = _contradiction(probe, degree, exact=exact)
    if against is None or probe.own_dtype == torch.float64:
        return against
    twin = in_double(model, probe.arguments)
    if twin is not None:
        return _contradiction(ModelProbe(twin, probe.arguments, torch.float64), degree, exact=exact)
    return None if against.op == "slope" else against  # rounded differences say little


@contextmanager
def quiet_and_eager() -> Iterator[None]:
    """Compiled modules run as they are written: what they compute is tried, not how fast."""
    with warnings.catch_warnings(), running_eagerly():
        warnings.simplefilter("ignore")
        yield


def example_probe(model: Callable[..., Any], arguments: Leaves, program: Program) -> ModelProbe:
    """The model at the example, with few samples of it where that is another example of the same."""
    few = ModelProbe(model, few_rows(arguments, program.sizes), precision=program.precision)
    if few.arguments is not arguments:
        try:
            few.outputs(few.directions())
        except Exception:  # noqa: BLE001 - it needs as many samples as it was given
            return ModelProbe(model, arguments, precision=program.precision)
    return few


def few_rows(arguments: Leaves, sizes: Sizes) -> Leaves:
    """The first samples of a batch, where the proof holds for any number of them."""
    tensors = [leaf.value for leaf in arguments.leaves if isinstance(leaf.value, Tensor)]
    batch = {len(t) if t.dim() else 0 for t in tensors}
    if len(batch) != 1 or batch.pop() <= ROWS:
        return arguments
    leaves = tuple(
        replace(leaf, value=leaf.value[:ROWS], baseline=None if leaf.baseline is None else leaf.baseline[:ROWS])
        if isinstance(leaf.value, Tensor)
        else leaf
        for leaf in arguments.leaves
    )
    few = sizes.cover([tuple(leaf.value.shape) if isinstance(leaf.value, Tensor) else None for leaf in leaves])
    return replace(arguments, leaves=leaves) if few else arguments


def _contradiction(probe: ModelProbe, degree: float, *, exact: bool) -> Violation | None:
    for name, directions in islice(probe.points(), 2):
        start = [d if exact else BEYOND_EPSILONS * d for d in directions]
        try:
            found = _refuted_at(name, probe.at(start), probe, degree, exact=exact)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            if _NO_GRADIENT.search(str(error)):
                return _violation("autograd", f"On {name}, autograd has no gradient: {error}")
            if name == EXAMPLE:
                _require_outputs(probe)
            continue  # a model may refuse inputs unlike the example, and torch.cond gradients of branches
        if found is not None:
            return found
    return None


def _require_outputs(probe: ModelProbe) -> None:
    """Raise if the model does not run on the example."""
    try:
        probe.outputs(probe.directions())
    except InputError:
        raise
    except Exception as error:
        raise wrong_format(probe.model, probe.directions(), error) or fails_itself(error) from error


def _refuted_at(name: str, point: Point, probe: ModelProbe, degree: float, *, exact: bool) -> Violation | None:
    total = 0.0
    euler = probe.euler(point, degree)
    if euler is not None:
        sum_, score, total, rounding = euler
        if abs(sum_ - score) > probe.tolerance * total + rounding:
            return _violation("Euler", f"On {name}, x·∇F = {sum_:.6g} where kF = {score:.6g}, F a sum of the outputs.")
    for alpha in ALPHAS if exact else ALPHAS[1:]:
        scaled = probe.outputs([alpha * s for s in point.directions])
        found = _scaling(name, probe, point.outputs, scaled, alpha, degree, total)
        if found is not None:
            return found
    # What a hook hides may have degree 0, which Euler's identity does not see. The example may lie on a kink.
    if name == EXAMPLE or probe.epsilon > torch.finfo(torch.float32).eps:
        return None
    slopes = _slopes(probe, point)
    if slopes is None:
        return None
    return _violation("slope", f"On {name}, {_SLOPES.format(*slopes)}, as if a hook changed the gradient.")


def _scaling(
    name: str, probe: ModelProbe, base: list[Tensor], scaled: list[Tensor], alpha: float, degree: float, total: float
) -> Violation | None:
    """F(αx) against αᵏF(x), relative to the output of the sample, and beyond what rounding of Σ|x·∇F| may leave."""
    factor = alpha**degree
    for before, after in zip(base, scaled, strict=True):
        expected = factor * (before if before.is_complex() else before.double())
        usable = expected.isfinite() & after.isfinite()
        gap = torch.where(usable, (after - expected).abs(), 0)
        if not gap.numel():
            continue
        rows = gap.shape[0] if gap.dim() else 1
        size = torch.where(usable, expected.abs(), 0).reshape(rows, -1).amax(1, keepdim=True)
        over = gap.reshape(rows, -1) - probe.tolerance * size - 100 * probe.epsilon * total * factor
        if bool((over > 0).any()):
            where = int(over.argmax())
            return _violation(
                "scaling",
                f"At {alpha:g} times {name}, an output is {_number(after, where)} where αᵏF(x) = "
                f"{_number(expected, where)}.",
            )
    return None


def _number(tensor: Tensor, where: int) -> str:
    value = tensor.flatten()[where]
    return f"{complex(value):.6g}" if tensor.is_complex() else f"{float(value):.6g}"


def wrong_gradient(model: Callable[..., Any], probe: ModelProbe, functions: list[type]) -> Violation | None:
    """Gradients that were written by hand against differences, in float64 where the model has such a copy."""
    twin = in_double(model, probe.arguments)
    if twin is not None:
        probe = ModelProbe(twin, probe.arguments, torch.float64)
    names = ", ".join(function.__name__ for function in functions)
    for name, start in probe.points():
        try:
            found = _slopes(probe, probe.at(start))
        except Exception:  # a model may refuse inputs unlike the example
            if name == EXAMPLE:
                raise
            continue
        if found is not None:
            return Violation(
                module="",
                op=names,
                source=_line_of(functions[0]),
                reason=f"The gradient of the autograd.Function {names} is not that of its forward pass: on {name}, "
                f"{_SLOPES.format(*found)}.",
                fix="Correct its backward, or write it with PyTorch's operators.",
                kind="gradient",
            )
    return None


def _line_of(function: type) -> str:
    try:
        return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):  # written at a prompt
        return ""


_SLOPES = "autograd's derivative along a line is {:.6g} where outputs change by {:.6g}"


def _slopes(probe: ModelProbe, point: Point) -> tuple[float, float] | None:
    """Autograd's derivative along a random line and the difference of outputs, if they disagree."""
    generator = torch.Generator().manual_seed(2)
    # Zeros stay zeros: relu has no slope there.
    line = [
        x * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device, x.dtype)
        for x in point.directions
    ]
    gradient, difference, doubt, size = probe.slope(point, line, 1e-6 if probe.dtype == torch.float64 else 2e-3)
    if not abs(gradient - difference) > _SLOPE * size + 5 * doubt:
        return None
    if probe.dtype == torch.float64:  # a steep function is not a straight line over the first step
        nearer = (probe.slope(point, line, step)[1] for step in _NEARER_STEPS)
        if any(abs(gradient - difference) <= _SLOPE * size for difference in nearer):
            return None
    return gradient, difference


def _violation(op: str, reason: str) -> Violation:
    return Violation(module="", op=op, source="", reason=f"Refuted. {reason}", fix=_FIX, kind="refuted")


def epsilon_error(probe: ModelProbe, degree: float) -> float | None:
    """How far X-Gradient is from Integrated Gradients on the example, single features, relative to the largest."""
    path = MODEST_PATH if probe.epsilon > torch.finfo(torch.float32).eps else PATH
    try:
        directions = probe.directions()
        gradients = [probe.at([t * d for d in directions]).gradients for t in path]
    except Exception:  # noqa: BLE001 - not measured
        return None
    per_input = zip(directions, *gradients, strict=True)
    pairs = [path_error(x, torch.stack(list(g)), path, degree) for x, *g in per_input]
    size = max((s for _, s in pairs), default=0.0)
    error = max((gap for gap, _ in pairs), default=0.0) / size if size else 0.0
    return error if error < float("inf") else None  # neither infinite nor NaN


def path_error(x: Tensor, gradients: Tensor, path: tuple[float, ...], degree: float) -> tuple[float, float]:
    """max |X-Gradient − Integrated Gradients| and max |X-Gradient|, from ∇F(tx) at t = 1, 1/2, 1/4 …

    h(t) = ∇F(tx)/tᵏ⁻¹ is constant where F is homogeneous; it is taken as linear between the points, and constant
    below the last: IG = x·∫ tᵏ⁻¹ h(t) dt.
    """
    if not x.numel():
        return 0.0, 0.0
    t = torch.tensor(path, dtype=torch.float64, device=gradients.device)[:, None]
    weights = torch.tensor(path_weights(path, degree), dtype=torch.float64, device=gradients.device)[:, None]
    errors, sizes = [], []
    # Piece by piece: float64 copies of a whole batch of images would be what a training step's memory peaks at.
    for values, grads in zip(x.flatten().split(_PIECE), gradients.reshape(len(path), -1).split(_PIECE, 1), strict=True):
        normed = grads.double() / t.pow(degree - 1)
        errors.append((values.double() * (weights * (normed - normed[:1])).sum(0)).abs().max())
        sizes.append((values.double() * normed[0]).abs().max() / degree)
    return float(torch.stack(errors).max()), float(torch.stack(sizes).max())


def path_weights(path: tuple[float, ...], degree: float) -> list[float]:
    """∫ tᵏ⁻¹ φⱼ(t) dt of the hat functions φⱼ on a descending path that starts at 1; φ of the last reaches to 0.

    >>> path_weights((1.0, 0.5), 1.0)
    [0.25, 0.75]
    """
    k = degree
    weights = [0.0] * len(path)
    for j in range(len(path) - 1):
        b, a = path[j], path[j + 1]
        whole, moment = (b**k - a**k) / k, (b ** (k + 1) - a ** (k + 1)) / (k + 1)
        rising = (moment - a * whole) / (b - a)
        weights[j] += rising
        weights[j + 1] += whole - rising
    weights[-1] += path[-1] ** k / k
    return weights
