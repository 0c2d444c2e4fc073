"""What would removing biases cost? What the constants of a model carry, and what each conversion keeps."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _NormBase

from axiograd.errors import AxiogradError, InputError
from axiograd.homogeneity.conversion.calibrate import OverfittingWarning
from axiograd.homogeneity.conversion.convert import to_xdnn
from axiograd.homogeneity.conversion.strip import running

#: Below this share of the output, constants are not worth a thought.
LITTLE = 0.01
#: A conversion that keeps this share of the answers is good enough as it is.
ENOUGH = 0.97
#: Examples that a conversion is made with; those beyond are for a fit.
EXAMPLES = 16
#: Samples that go through the model together.
ROWS = 20


@dataclass(frozen=True)
class Cost:
    """What one conversion leaves of a model's answers, on samples that it was not made with."""

    how: str
    #: Share of the samples whose predicted class (sign, for one output) is the original's; None where it fails.
    kept: float | None
    #: Share of right classes, where labels are given.
    accuracy: float | None = None
    #: Why there is no such conversion.
    why: str = ""


@dataclass(frozen=True)
class BiasReport:
    """What the constants of a model carry of its outputs, and what it costs to take them out.

    For a piecewise-linear network F = x·∇F + Σ c·∂F/∂c, over all its biases, means and shifts c: `share` is
    Σ|F − x·∇F| / Σ|F| over the samples, `layers` have each module's part Σ c·∂F/∂c / Σ|F| with its sign.
    """

    model: str
    samples: int
    share: float
    #: Signed parts by module, largest first.
    layers: tuple[tuple[str, float], ...]
    #: What neither the input nor the constants account for: zero for piecewise-linear networks.
    rest: float
    #: Index of the predicted class, its share as above, and its number of samples; most samples first.
    classes: tuple[tuple[int, float, int], ...]
    #: Of the original, where labels are given, on the samples that judge the conversions.
    accuracy: float | None
    costs: tuple[Cost, ...]

    @property
    def recommendation(self) -> str:
        """What to do, in words."""
        found = {cost.how: cost.kept for cost in self.costs if cost.kept is not None}
        carried = f"The constants carry {self.share:.0%} of the output"
        if self.share <= LITTLE:
            return f"{carried}: removing them costs little. Strip the model."
        if not found:
            return f"{carried}, and no conversion works as it is."
        # What changes least about the attributions comes first among those that keep enough.
        good = [how for how in ("strip", "calibrated strip", "lift") if found.get(how, 0) >= ENOUGH]
        how = good[0] if good else max(found, key=lambda name: found[name])
        advice = {
            "strip": "plain strip keeps {kept} of the answers: removing the biases costs little",
            "calibrated strip": "they can be read off the input: calibrated strip keeps {kept} of the answers",
            "lift": "take the model as it is at the data's scale: lift keeps {kept} of the answers; part of its "
            "attributions is an energy map",
        }[how].format(kept=f"{found[how]:.0%}")
        after = "" if good else "; distil or fine-tune it before use"
        return f"{carried}; {advice}{after}."

    def __str__(self) -> str:
        lines = [f"{self.model}, {self.samples} samples", f"carried by constants: {self.share:.1%} of the output"]
        lines += [f"  {part:+8.1%}  {name or '(the model)'}" for name, part in self.layers[:_SHOWN]]
        if len(self.layers) > _SHOWN:
            others = sum(part for _, part in self.layers[_SHOWN:])
            lines.append(f"  {others:+8.1%}  {len(self.layers) - _SHOWN} other modules together")
        if self.rest > LITTLE:
            lines.append(f"  {self.rest:8.1%}  by curvature: norms, smooth activations, attention")
        if len(self.classes) > 1:
            shown = ", ".join(f"{index}: {share:.0%} ({n})" for index, share, n in self.classes[:_SHOWN])
            lines.append(f"by predicted class (samples): {shown}{' …' if len(self.classes) > _SHOWN else ''}")
        if self.accuracy is not None:
            lines.append(f"accuracy of the original: {self.accuracy:.1%}")
        for cost in self.costs:
            right = "" if cost.accuracy is None else f", accuracy {cost.accuracy:.1%}"
            outcome = f"not possible: {cost.why}" if cost.kept is None else f"same prediction: {cost.kept:.1%}{right}"
            lines.append(f"{cost.how}: {outcome}")
        return "\n".join([*lines, self.recommendation])


_SHOWN = 8


def bias_report(model: nn.Module, samples: Tensor, labels: Tensor | None = None) -> BiasReport:
    """How much of the output the biases carry, and what strip, calibrated strip and lift would cost, without training.

    Every second sample makes the conversions, the others judge them, so give real samples, at least a hundred if a
    strip is to be calibrated.

    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3, bias=False))
    >>> report = bias_report(net, torch.randn(64, 4))
    >>> [name for name, _ in report.layers], round(report.rest, 6)
    (['0'], 0.0)
    """
    if samples.dim() < 2 or len(samples) < 4:  # noqa: PLR2004  # samples by features; two to convert, two to judge
        raise InputError(
            f"samples of shape {tuple(samples.shape)}: pass at least four samples, along the first dimension."
        )
    if labels is not None and len(labels) != len(samples):
        raise InputError(f"{len(labels)} labels for {len(samples)} samples.")
    from axiograd.homogeneity import certify  # homogeneity exports this module too

    with running(model):
        certificate = certify(model, samples[:EXAMPLES])
        names = sorted({name for violation in certificate.violations for name in violation.parameters})
        parts = [_parts(model, rows, names) for rows in samples.split(ROWS)]
        outputs = _outputs(model, samples[1::2])
        costs = _costs(model, samples, outputs, labels)
    score, through_input, chosen = (torch.cat(found) for found in zip(*(part[:3] for part in parts), strict=True))
    total = float(score.abs().sum())
    if total == 0:
        raise InputError(f"{type(model).__name__} returns zero for every sample: there is nothing to share out.")
    layers = {path: sum(part[3][path] for part in parts) / total for path in parts[0][3]}
    constants = score - through_input
    return BiasReport(
        model=type(model).__name__,
        samples=len(samples),
        share=float(constants.abs().sum()) / total,
        layers=tuple(sorted(layers.items(), key=lambda item: -abs(item[1]))),
        rest=abs(float(constants.sum()) / total - sum(layers.values())),
        classes=_by_class(chosen, constants, score),
        accuracy=None if labels is None else _right(outputs, labels[1::2]),
        costs=costs,
    )


def _outputs(model: nn.Module, samples: Tensor) -> Tensor:
    with torch.no_grad():
        found = torch.cat([_matrix(model(rows)) for rows in samples.split(ROWS)])
    if not bool(found.isfinite().all()):
        raise InputError(f"{type(model).__name__} returns NaN or infinity for some of the samples.")
    return found


def _matrix(output: Any) -> Tensor:
    if not isinstance(output, Tensor) or output.dim() > 2:  # noqa: PLR2004  # samples by outputs
        raise InputError("bias_report is for models that return one tensor, samples by outputs.")
    return output.reshape(len(output), -1)


def _parts(model: nn.Module, rows: Tensor, names: list[str]) -> tuple[Tensor, Tensor, Tensor, dict[str, float]]:
    """Each sample's score, its part x·∇F and its class, and what each module's constants c give to the sum, c·∂F/∂c."""
    norms = {path: module for path, module in model.named_modules() if _constant(module) is not None}
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    others = [name for name in names if name.rpartition(".")[0] not in norms]
    leaves = {name: tensors[name].detach().clone().requires_grad_() for name in others}
    probes = {path: torch.zeros_like(_constant(norm)).requires_grad_() for path, norm in norms.items()}
    x = rows.detach().clone().requires_grad_()
    with torch.enable_grad(), _added(norms, probes):
        output = _matrix(functional_call(model, leaves, (x,)))
        chosen = output.argmax(1)
        score = output.gather(1, chosen[:, None])[:, 0]
        wanted = [x, *leaves.values(), *probes.values()]
        gradient, *found = torch.autograd.grad(score.sum(), wanted, materialize_grads=True)
    given: dict[str, float] = {}
    constants = [*leaves.values(), *(_constant(norm) for norm in norms.values())]
    for path, c, g in zip([*(n.rpartition(".")[0] for n in leaves), *norms], constants, found, strict=True):
        given[path] = given.get(path, 0.0) + float((c.detach() * g).sum())
    return score.detach(), (x * gradient).flatten(1).sum(1).detach(), chosen, given


def _constant(module: nn.Module) -> Any:
    """What a batch norm adds in eval mode, β − γμ/σ, as its mean cannot be differentiated; None for other modules."""
    # Without statistics or learned scale and shift these are None, whatever their annotations say.
    named: dict[str, Tensor | None] = {
        name: getattr(module, name, None) for name in ("running_mean", "running_var", "weight", "bias")
    }
    mean, variance = named["running_mean"], named["running_var"]
    if not isinstance(module, _NormBase) or mean is None or variance is None:
        return None
    added = -mean * (variance + module.eps).rsqrt()
    added = added if named["weight"] is None else added * named["weight"]
    return (added if named["bias"] is None else added + named["bias"]).detach()


@contextmanager
def _added(norms: dict[str, nn.Module], probes: dict[str, Tensor]) -> Iterator[None]:
    """While it lasts, each norm's output has its probe added, channel by channel."""

    def adding(probe: Tensor) -> Any:
        return lambda _module, _args, y: y + probe.reshape(-1, *[1] * (y.dim() - 2))

    with ExitStack() as stack:
        for path, norm in norms.items():
            stack.enter_context(norm.register_forward_hook(adding(probes[path])))
        yield


def _by_class(chosen: Tensor, constants: Tensor, score: Tensor) -> tuple[tuple[int, float, int], ...]:
    found = []
    for index in chosen.unique().tolist():
        here = chosen == index
        size = float(score[here].abs().sum())
        found.append((int(index), float(constants[here].abs().sum()) / size if size else 0.0, int(here.sum())))
    return tuple(sorted(found, key=lambda item: (-item[2], item[0])))


def _costs(model: nn.Module, samples: Tensor, before: Tensor, labels: Tensor | None) -> tuple[Cost, ...]:
    made, judged = samples[::2], samples[1::2]
    right = None if labels is None else labels[1::2]
    ways: dict[str, dict[str, Any]] = {
        "strip": {},
        "calibrated strip": {"calibration": made},
        "lift": {"how": "lift"},
    }
    costs = []
    for how, options in ways.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OverfittingWarning)
                converted = to_xdnn(model, made[:EXAMPLES], **options).model.eval()
            after = _outputs(converted, judged)
        except AxiogradError as error:
            costs.append(Cost(how, None, why=str(error).splitlines()[0]))
        else:
            same = float((_answers(before) == _answers(after)).float().mean())
            costs.append(Cost(how, same, None if right is None else _right(after, right)))
    return tuple(costs)


def _answers(outputs: Tensor) -> Tensor:
    """The predicted class, or the sign of a single output."""
    return outputs.argmax(1) if outputs.shape[1] > 1 else outputs[:, 0] > 0


def _right(outputs: Tensor, labels: Tensor) -> float:
    return float((_answers(outputs).long() == labels.to(outputs.device).long()).float().mean())
