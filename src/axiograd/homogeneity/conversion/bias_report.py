"""What would removing biases cost? What the constants of a model carry, and what each conversion keeps."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _NormBase

from axiograd.errors import AxiogradError, InputError
from axiograd.homogeneity.conversion.calibrate import OverfittingWarning
from axiograd.homogeneity.conversion.convert import ConversionWarning, to_xdnn
from axiograd.homogeneity.conversion.edits import running
from axiograd.homogeneity.conversion.kept import ENOUGH

#: Below this share of the output, constants are negligible.
LITTLE = 0.01
#: Examples that a conversion is made with; those beyond are for a fit.
EXAMPLES = 16
#: Samples that go through the model together.
ROWS = 20
#: Layers and classes that are printed.
SHOWN = 8


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
            return f"{carried}, and no conversion works without training."
        # What changes least about the attributions comes first among those that keep enough.
        good = [how for how, kept in found.items() if kept >= ENOUGH]
        how = good[0] if good else max(found, key=lambda name: found[name])
        after = "" if good else "; distil or fine-tune it before use"
        if how == "lift":
            after = f"; part of its attributions is an energy map{after}"
        return f"{carried}; {how} keeps {found[how]:.0%} of the answers{after}."

    def __str__(self) -> str:
        lines = [f"{self.model}, {self.samples} samples", f"carried by constants: {self.share:.1%} of the output"]
        lines += [f"  {part:+8.1%}  {name or '(the model)'}" for name, part in self.layers[:SHOWN]]
        if len(self.layers) > SHOWN:
            others = sum(part for _, part in self.layers[SHOWN:])
            lines.append(f"  {others:+8.1%}  {len(self.layers) - SHOWN} other modules together")
        if self.rest > LITTLE:
            lines.append(f"  {self.rest:8.1%}  by curvature: norms, smooth activations, attention")
        if len(self.classes) > 1:
            shown = ", ".join(f"{index}: {share:.0%} ({n})" for index, share, n in self.classes[:SHOWN])
            lines.append(f"by predicted class (samples): {shown}{' …' if len(self.classes) > SHOWN else ''}")
        if self.accuracy is not None:
            lines.append(f"accuracy of the original: {self.accuracy:.1%}")
        for cost in self.costs:
            right = "" if cost.accuracy is None else f", accuracy {cost.accuracy:.1%}"
            outcome = f"not possible: {cost.why}" if cost.kept is None else f"same prediction: {cost.kept:.1%}{right}"
            lines.append(f"{cost.how}: {outcome}")
        return "\n".join([*lines, self.recommendation])


def bias_report(model: nn.Module, samples: Tensor, labels: Tensor | None = None) -> BiasReport:
    """How much of the output the biases carry, and what each conversion would cost, without training.

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
        violations = certify(model, samples[:EXAMPLES]).violations
        names = sorted({name for violation in violations for name in violation.parameters})
        parts = [_parts(model, rows, names) for rows in samples.split(ROWS)]
        answers = _answers(model, samples[1::2])
        costs = _costs(model, samples, answers, None if labels is None else labels[1::2])
    score, constants, chosen = (torch.cat(found) for found in zip(*(part[:3] for part in parts), strict=True))
    total = float(score.abs().sum())
    if total == 0:
        raise InputError(f"{type(model).__name__} returns zero for every sample: there is nothing to attribute.")
    layers = {path: sum(part[3][path] for part in parts) / total for path in parts[0][3]}
    here = {int(index): chosen == index for index in chosen.unique()}
    classes = [
        (i, float(constants[rows].abs().sum()) / (float(score[rows].abs().sum()) or 1.0), int(rows.sum()))
        for i, rows in here.items()
    ]
    return BiasReport(
        model=type(model).__name__,
        samples=len(samples),
        share=float(constants.abs().sum()) / total,
        layers=tuple(sorted(layers.items(), key=lambda item: -abs(item[1]))),
        rest=abs(float(constants.sum()) / total - sum(layers.values())),
        classes=tuple(sorted(classes, key=lambda item: (-item[2], item[0]))),
        accuracy=None if labels is None else _share(answers, labels[1::2]),
        costs=costs,
    )


def _matrix(output: Any) -> Tensor:
    if not isinstance(output, Tensor) or output.dim() > 2:  # noqa: PLR2004  # samples by outputs
        raise InputError("bias_report is for models that return one tensor, samples by outputs.")
    return output.reshape(len(output), -1)


def _parts(model: nn.Module, rows: Tensor, names: list[str]) -> tuple[Tensor, Tensor, Tensor, dict[str, float]]:
    """Each sample's score, its part F − x·∇F and its class, and what each module's constants c give, c·∂F/∂c."""
    tensors = dict(model.named_parameters())
    leaves = {name: tensors[name].detach().clone().requires_grad_() for name in names if name in tensors}
    x = rows.detach().clone().requires_grad_()
    with torch.enable_grad():
        output = _matrix(functional_call(model, leaves, (x,)))
        chosen = output.argmax(1)
        score = output.gather(1, chosen[:, None])[:, 0]
        gradient, *found = torch.autograd.grad(score.sum(), [x, *leaves.values()], materialize_grads=True)
    given: dict[str, float] = {}
    for (name, value), slope in zip(leaves.items(), found, strict=True):
        path, _, kind = name.rpartition(".")
        module = model.get_submodule(path)
        constant = value.detach()
        if isinstance(module, _NormBase) and module.running_mean is not None and module.running_var is not None:
            if kind != "bias":  # of what a batch norm adds in eval mode, β − γμ/σ, the slope is that of β
                continue
            constant = constant - module.running_mean * (module.running_var + module.eps).rsqrt() * module.weight
        given[path] = given.get(path, 0.0) + float((constant.detach() * slope).sum())
    return score.detach(), (score - (x * gradient).flatten(1).sum(1)).detach(), chosen, given


@torch.no_grad()
def _answers(model: nn.Module, samples: Tensor) -> Tensor:
    """The predicted class, or the sign of a single output."""
    outputs = torch.cat([_matrix(model(rows)) for rows in samples.split(ROWS)])
    if not bool(outputs.isfinite().all()):
        raise InputError(f"{type(model).__name__} returns NaN or infinity for some of the samples.")
    return outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()


def _costs(model: nn.Module, samples: Tensor, before: Tensor, labels: Tensor | None) -> tuple[Cost, ...]:
    made, judged = samples[::2], samples[1::2]
    ways: dict[str, dict[str, Any]] = {how: {"how": how} for how in ("strip", "carry", "calibrate", "lift")}
    ways["calibrate"]["calibration"] = made
    costs = []
    for how, options in ways.items():
        try:
            with warnings.catch_warnings():
                for category in (OverfittingWarning, ConversionWarning):
                    warnings.simplefilter("ignore", category)
                after = _answers(to_xdnn(model, made[:EXAMPLES], **options).model.eval(), judged)
        except AxiogradError as error:
            costs.append(Cost(how, None, why=str(error).splitlines()[0]))
        else:
            costs.append(Cost(how, _share(after, before), None if labels is None else _share(after, labels)))
    return tuple(costs)


def _share(answers: Tensor, wanted: Tensor) -> float:
    return float((answers == wanted.to(answers)).float().mean())
