"""`to_xdnn`: any model into an X-DNN, with the list of what was changed and the proof."""

import copy
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from axiograd._calls import read_leaves
from axiograd._notebook import shown_by
from axiograd._state import describe_model, require_shapes, unwrap
from axiograd._typing import Inputs
from axiograd.errors import AxiogradError, ConfigurationError, ConversionError, InputError
from axiograd.homogeneity.conversion.calibrate import Calibration, LayerFit, calibrated_strip, warn_of_overfitting
from axiograd.homogeneity.conversion.edits import Edit, ExampleCall, running
from axiograd.homogeneity.conversion.kept import Examples, Judge, Kept
from axiograd.homogeneity.conversion.lift import Lifted, energy_parts
from axiograd.homogeneity.conversion.scale import Mask, Roles, Slot
from axiograd.homogeneity.conversion.strip import LIFT_INSTEAD, Prove, strip

if TYPE_CHECKING:
    from axiograd.homogeneity.certificate import Certificate


How = Literal["auto", "strip", "carry", "calibrate", "lift"]
#: What "auto" tries, in this order: the earlier ones explain more of the network itself.
_TRIED: tuple[How, ...] = ("strip", "calibrate", "lift")


#: Examples whose gradients are taken at once: 200 photos in a ResNet-50 would need 20 GB.
_GRADIENTS = 16


class ConversionWarning(UserWarning):
    """A converted model gives other answers than the original."""


@dataclass(frozen=True)
class Conversion:
    """A model that is an X-DNN, with what it kept of the original, the changes that made it one, and the proof.

    >>> import torch
    >>> from axiograd.homogeneity.conversion import to_xdnn
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> conversion = to_xdnn(net, torch.randn(8, 4), how="strip")
    >>> print(conversion)
    Sequential by strip, answers kept: not measured (8 examples; 32 or more are needed)
    X-DNN of degree 1, exact
    state dict: 2 entries removed, 0 added, the others unchanged
    2 edits:
      2×  Linear with bias  → Linear without bias  0 … 2
    """

    how: str
    model: nn.Module
    edits: tuple[Edit, ...]
    certificate: "Certificate"
    #: The model that was converted, as it was.
    original: nn.Module
    #: How many held-out examples get the class that they got before.
    kept: Kept
    #: Names of the parameters and buffers that were taken out, and of those that are new.
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    #: Of a lift: the share of its attributions that is an energy map, Σ|E| / (Σ|E| + Σ|x·∇f|) with E = F − x·∇f over
    #: the largest outputs of the examples.
    energy: float | None = None
    #: Of a calibration: how much of each layer is reproduced, on calibration and on held-out inputs.
    layers: tuple[LayerFit, ...] = ()
    #: Of a lift: the point around which it is homogeneous; None is zero.
    baseline: Any = None
    #: What "auto" tried before: each form with what it kept, or why it is not possible.
    tried: tuple[tuple[str, str], ...] = ()

    _repr_html_ = shown_by("conversion_html")

    def __str__(self) -> str:
        exact = "exact" if self.certificate.exact else "up to the epsilons that the certificate names"
        lines = [f"{type(self.original).__name__} by {self.how}, answers kept: {self.kept}"]
        lines += [f"tried before: {how}, {outcome}" for how, outcome in self.tried]
        lines.append(f"X-DNN of degree {self.certificate.degree:g}, {exact}")
        lines.append(f"state dict: {len(self.removed)} entries removed, {len(self.added)} added, the others unchanged")
        if self.energy is not None:
            lines.append(energy_in_words(self.energy))
        if self.layers:
            last, weakest = self.layers[-1], min(self.layers, key=lambda layer: layer.held_out)
            lines.append(
                f"calibration: the last layer reproduces {last.held_out:.3f} of the original's on held-out inputs "
                f"({last.calibration:.3f} on the others), the weakest, {weakest.name}, {weakest.held_out:.3f}"
            )
        lines.append(f"{len(self.edits)} {'edit' if len(self.edits) == 1 else 'edits'}:")
        return "\n".join(lines + _table(self.edits))


def energy_in_words(share: float) -> str:
    """What a lift's attributions are made of.

    >>> print(energy_in_words(0.72))
    most of this map (72%) is the input's own energy, x²/‖x‖² (the brightness of an image); the rest is Input×Gradient
    of the original
    """
    much = "most" if share > 0.5 else "some" if share > 0.1 else "little"  # noqa: PLR2004
    return (
        f"{much} of this map ({share:.0%}) is the input's own energy, x²/‖x‖² (the brightness of an image); "
        "the rest is Input×Gradient of the original"
    )


def _table(edits: Iterable[Edit]) -> list[str]:
    groups: dict[tuple[str, str], list[Edit]] = {}
    for edit in edits:
        groups.setdefault((edit.before, edit.after), []).append(edit)
    rows = []
    for (before, after), group in groups.items():
        places = [edit.module or "(the model)" for edit in group]
        where = places[0] if len(places) == 1 else f"{places[0]} … {places[-1]}"
        rows.append((f"{len(group)}×", before, "→ " + after, where, group[0].source))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    return [
        "  " + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[4]]).rstrip() for row in rows
    ]


def to_xdnn(
    model: nn.Module,
    example_inputs: Inputs,
    *,
    how: How = "auto",
    radius: float | None = None,
    baseline: Any = None,
    mask: Mask | None = None,
    calibration: Any = None,
    additional_forward_args: Any = None,
) -> Conversion:
    """Convert a copy of the model into a nonnegatively homogeneous network, F(αx) = α·F(x), and prove that it is one.

    - "strip" takes out additive constants and exchanges what is not homogeneous: the paper's way, for training.
    - "carry" keeps biases, carried by the signal: b·m(x)/m̄ (`axiograd.layers`), for training and fine-tuning.
    - "calibrate" reads biases off the input and fits weights to unlabelled examples by least squares, layer by layer.
    - "lift" is ρ(x)·f(x/ρ(x)), ρ = RMS(x)/r: any network, no layer changed, and part of its map is an energy map.
    - "auto", for trained networks, is the first of strip, calibrate and lift that keeps 95 % of the answers on examples
      that it was not fitted to; it needs 32 examples or more, which get more than one class.

    `calibration` (a tensor, a loader, or a `Calibration`) has the inputs to calibrate on, by default the examples. A
    quarter of the examples, or what the calibration holds out, judges: see `.kept`. Padding has no part in a scale:
    `mask` is the name or the position of the argument that is nonzero (or True) for the tokens that count, or a
    function of the model's arguments that returns it; `attention_mask` and PyTorch's `key_padding_mask` arguments are
    found without it.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    >>> conversion = to_xdnn(net, torch.randn(16, 4), how="lift")
    >>> conversion.certificate.degree, conversion.certificate.exact
    (1.0, True)
    """
    if how not in get_args(How):
        raise ConfigurationError(f"how={how!r}; choose 'auto', 'strip', 'carry', 'calibrate' or 'lift'.")
    if how != "lift" and (radius is not None or baseline is not None):
        raise ConfigurationError("radius and baseline belong to how='lift'; otherwise centre the inputs yourself.")
    if how not in {"auto", "calibrate"} and calibration is not None:
        raise ConfigurationError(f"calibration belongs to how='calibrate' and how='auto', not to {how!r}.")
    module = unwrap(model)
    if not isinstance(module, nn.Module):
        raise ConversionError(f"to_xdnn converts an nn.Module; got {describe_model(module)}: wrap it in a module.")
    require_shapes(module)
    examples = Examples(example_inputs, additional_forward_args)
    call = _read_example(module, examples, baseline=baseline, mask=mask)
    _check_that_it_runs(module, call)
    if calibration is None:
        fitted, judging = examples.split()
        judge = Judge(module, judging, examples.count)
    else:
        fitted, calibration = examples, Calibration.ensure(calibration).loaded(_one_tensor(module, call))
        judge = Judge(module, Examples(calibration.split()[1]), len(calibration.images))
    converter = _Converter(module, fitted, judge, radius, baseline, mask, calibration)
    conversion = converter.choose(call.roles) if how == "auto" else converter.convert(how)
    _warn_of_loss(conversion)
    return conversion


@dataclass(frozen=True)
class _Converter:
    """The forms of one model, on the same examples."""

    original: nn.Module
    examples: Examples
    judge: Judge
    radius: float | None
    baseline: Any
    mask: Mask | None
    calibration: Calibration | None

    def choose(self, roles: Roles) -> Conversion:
        """The first form that keeps enough of the answers, or the one that keeps most of them."""
        name = type(self.original).__name__
        if self.prove(self.original).ok:
            return self.convert("strip")
        if self.judge.why:
            raise ConversionError(
                "how='auto' compares answers before and after a conversion, which is not possible here "
                f"({self.judge.why}): pass real examples of {name}'s data, a hundred or more and of several classes. "
                "To train a network from scratch, name how='carry' or how='strip'."
            )
        done: list[Conversion] = []
        tried: list[tuple[str, str]] = []
        for how in _TRIED:
            if how == "lift" and roles.may_mask():  # of a text model the map would be almost only energy
                continue
            try:
                done.append(self.convert(how))
            except AxiogradError as error:
                tried.append((how, f"not possible: {str(error).splitlines()[0]}"))
                continue
            if done[-1].kept.enough:
                break
            tried.append((how, str(done[-1].kept)))
        if not done:
            raise ConversionError(
                f"{name} could not be converted. " + " ".join(f"{how}: {outcome}" for how, outcome in tried)
            )
        best = max(done, key=lambda one: (one.kept.enough, one.kept.share or 0.0))
        return replace(best, tried=tuple((how, outcome) for how, outcome in tried if how != best.how))

    def convert(self, how: str) -> Conversion:
        """One form, judged."""
        try:
            twin = copy.deepcopy(self.original)
        except Exception as error:
            raise ConversionError(
                f"{type(self.original).__name__} cannot be deep-copied, and to_xdnn changes only a copy."
            ) from error
        call = _read_example(twin, self.examples, baseline=self.baseline, mask=self.mask)
        edits = _without_cache(twin)
        energy: float | None = None
        layers: tuple[LayerFit, ...] = ()
        if how == "calibrate":
            example = _one_tensor(twin, call)
            calibration = self.calibration or Calibration(example).loaded(example)
            result, further, certificate, layers = _calibrate(twin, example, calibration, self.prove)
        elif how == "lift":
            result, further, certificate = _lift(twin, call, self.prove, radius=self.radius, baseline=self.baseline)
            energy = _energy(result, self.examples.rows(slice(_GRADIENTS)))
        else:
            result, further, certificate = strip(twin, call, self.prove, carries=how == "carry")
        prefix = "model." if how == "lift" else ""
        before, after = {prefix + key for key in self.original.state_dict()}, set(result.state_dict())
        return Conversion(
            how=how,
            model=result,
            edits=(*edits, *further),
            certificate=certificate,
            original=self.original,
            kept=self.judge(result),
            removed=tuple(sorted(before - after)),
            added=tuple(sorted(after - before)),
            energy=energy,
            layers=layers,
            baseline=self.baseline,
        )

    def prove(self, candidate: nn.Module) -> "Certificate":
        from axiograd.homogeneity import certify  # homogeneity exports this module too

        few = self.examples.rows(slice(_GRADIENTS))
        return certify(candidate, few.inputs, baseline=self.baseline, additional_forward_args=few.additional)


def _warn_of_loss(conversion: Conversion) -> None:
    if conversion.layers:
        warn_of_overfitting(conversion.layers)
    if conversion.kept.share is not None and not conversion.kept.enough:
        advice = {
            "strip": 'calibrate it on a hundred examples or more (how="calibrate"), or train it before use',
            "carry": "train or fine-tune it before use",
            "calibrate": "pass more examples, or fine-tune it before use",
            "lift": "it differs on inputs larger or smaller than the examples: fine-tune it before use",
        }[conversion.how]
        if "calibrate" in dict(conversion.tried):
            advice = "train or fine-tune it before use"
        warnings.warn(
            f"{type(conversion.original).__name__} by {conversion.how} gives other answers than the original, kept: "
            f"{conversion.kept}; {advice}.",
            ConversionWarning,
            stacklevel=3,
        )


def _read_example(model: nn.Module, examples: Examples, *, baseline: Any, mask: Mask | None) -> ExampleCall:
    """The example call, with the role of every argument: further ones do not scale."""
    inputs, additional = examples.inputs, examples.additional
    leaves = read_leaves(inputs, additional_forward_args=additional, baseline=baseline)
    n = 0 if isinstance(inputs, Mapping) else 1 if isinstance(inputs, Tensor) else len(inputs)
    constants: set[Slot] = {*range(n, len(leaves.args)), *leaves.kwargs}
    constants -= set(inputs) if isinstance(inputs, Mapping) else set()
    call = ExampleCall(leaves, Roles.of(model, constants, mask))
    slots = call.roles.by_slot(leaves.args, leaves.kwargs)
    if isinstance(mask, str | int) and call.roles.mask not in slots:
        raise ConfigurationError(f"mask={mask!r} names no argument; the call has {list(slots)}.")
    for leaf in leaves.leaves:
        if leaf.scales and (leaf.value.numel() == 0 or not bool(torch.isfinite(leaf.value).all())):
            raise InputError(
                f"example input {leaf.name} of shape {tuple(leaf.value.shape)} is empty or has NaN or infinite values."
            )
    return call


def _without_cache(model: nn.Module) -> list[Edit]:
    """Keys and values that are kept for the next token are not an output to attribute, and no trace can hold them."""
    edits = []
    for path, module in model.named_modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False) is True:
            config.use_cache = False  # type: ignore[union-attr]  # it has the attribute
            edits.append(Edit(path, "use_cache=True", "use_cache=False"))
    return edits


@torch.no_grad()
def _check_that_it_runs(model: nn.Module, call: ExampleCall) -> None:
    """In eval mode on the example inputs: an error here is not caused by the conversion."""
    try:
        with running(model):
            output = call(model)
    except Exception as error:
        raise InputError(
            f"{type(model).__name__} itself fails on the example inputs ({type(error).__name__}: {error}): pass inputs "
            "with which it runs."
        ) from error
    if isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] > 1:  # noqa: PLR2004  # class scores
        sums = output.double().sum(1) if bool((output >= 0).all()) else output.double().exp().sum(1)
        if bool((sums - 1).abs().max() < 1e-4):  # noqa: PLR2004
            raise ConversionError(
                f"{type(model).__name__} returns probabilities: its last operation is a softmax, which no X-DNN has. "
                "Convert the network that returns its logits, and take the softmax of them afterwards."
            )


def _one_tensor(model: nn.Module, call: ExampleCall) -> Tensor:
    """The model's only input; calibration supports no others."""
    args = call.leaves.args
    if len(args) != 1 or call.leaves.kwargs or not isinstance(args[0], Tensor):
        raise ConversionError(
            f"{type(model).__name__} takes more than one tensor; calibration is for models of one input tensor."
        )
    return args[0]


#: What to try where calibration does not work.
_INSTEAD = "strip without calibration exchanges norms, attention and the like for forms that keep the scale; "
_INSTEAD += LIFT_INSTEAD


def _calibrate(
    model: nn.Module, example: Tensor, calibration: Calibration, prove: Prove
) -> tuple[nn.Module, list[Edit], "Certificate", tuple[LayerFit, ...]]:
    """Strip by least squares; what comes out is proved or refused."""
    name, training = type(model).__name__, model.training

    def refuse(offending: Any) -> None:
        where = f"{offending.op} in {offending.module}" if offending.module else offending.op
        raise ConversionError(f"{name} has {where}, for which calibration has no homogeneous form.\n{_INSTEAD}")

    with running(model):
        before = prove(model)
    if before.epsilons:  # of norms other than BatchNorm, which stay as they are: known before anything is fitted
        refuse(before.epsilons[0])
    try:
        result, layers = calibrated_strip(model, example, calibration)
    except AxiogradError:
        raise
    except Exception as error:
        raise ConversionError(
            f"{name} could not be calibrated ({type(error).__name__}: {error}). {_INSTEAD}"
        ) from error
    certificate = prove(result)
    if not (certificate.ok and certificate.exact):
        refuse([*certificate.epsilons, *certificate.violations][0])
    if certificate.degree != 1:
        raise ConversionError(
            f"{name} would become a network of degree {certificate.degree:g}, where degree 1 is wanted: it multiplies "
            f"values that both grow with the input. {_INSTEAD}"
        )
    edits = [Edit(layer.name, "affine layer", "W h + b·c(h), fitted") for layer in layers]
    return result.train(training), edits, certificate, layers


def _lift(
    model: nn.Module, call: ExampleCall, prove: Prove, *, radius: float | None, baseline: Any
) -> tuple[Lifted, list[Edit], "Certificate"]:
    """The model at the given radius, or at the root mean square of the example inputs without their padding."""
    if radius is not None and not radius > 0:
        raise ConfigurationError(f"radius={radius}; it is an RMS of inputs and must be positive.")
    lifted = Lifted(model, radius or 1.0, baseline, roles=call.roles)
    if radius is None:
        rho = lifted.enter(call.leaves.args, call.leaves.kwargs).rho.detach()
        lifted.radius.copy_(rho.double().square().mean().sqrt())
    if lifted.radius == 0:
        raise InputError(
            "the example inputs are all zero, so the data's scale is unknown: pass real inputs or radius=."
        )
    certificate = prove(lifted)
    if not certificate.ok:
        raise ConversionError(f"{type(model).__name__} was lifted but not proved:\n{certificate}.")
    return lifted, [Edit("", type(model).__name__, f"ρ(x)·f(x/ρ(x)), ρ(x) = RMS(x)/{lifted.radius:.4g}")], certificate


def _energy(lifted: Lifted, examples: Examples) -> float | None:
    """Σ|E| / (Σ|E| + Σ|F − E|), E = F − x·∇f; None where the model lets no gradient through or answers zero."""
    try:
        with running(lifted):
            output, energy = energy_parts(lifted, examples.inputs, additional_forward_args=examples.additional)
    except RuntimeError:
        return None
    own, rest = float(energy.abs().sum()), float((output - energy).abs().sum())
    return own / (own + rest) if own + rest > 0 else None
