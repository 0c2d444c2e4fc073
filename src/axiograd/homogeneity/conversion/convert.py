"""`to_xdnn`: any model into an X-DNN, with the list of what was changed and the proof."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from axiograd._calls import read_leaves
from axiograd._notebook import shown_by
from axiograd._state import describe_model, require_shapes, unwrap
from axiograd._typing import Inputs
from axiograd.errors import AxiogradError, ConfigurationError, ConversionError, InputError
from axiograd.homogeneity.conversion.calibrate import Calibration, LayerFit, calibrated_strip, warn_of_overfitting
from axiograd.homogeneity.conversion.lift import Lifted, energy_parts
from axiograd.homogeneity.conversion.scale import Mask, Roles, Slot
from axiograd.homogeneity.conversion.strip import LIFT_INSTEAD, Edit, ExampleCall, Prove, running, strip

if TYPE_CHECKING:
    from axiograd.homogeneity.certificate import Certificate


@dataclass(frozen=True)
class Conversion:
    """A model that is an X-DNN, with the changes that made it one and the certificate that proves it.

    >>> import torch
    >>> from axiograd.homogeneity.conversion import to_xdnn
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> conversion = to_xdnn(net, torch.randn(8, 4))
    >>> print(conversion)
    Sequential by strip: X-DNN of degree 1, exact
    state dict: 2 entries taken out, 0 new, the others as they were
    2 edits:
      2×  Linear with bias  → Linear without bias  0 … 2
    """

    how: str
    model: nn.Module
    edits: tuple[Edit, ...]
    certificate: "Certificate"
    #: Class of the model before it was converted.
    original: str
    #: Names of the parameters and buffers that were taken out, and of those that are new.
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    #: Of a lift: Σ|F − x·∇f| / Σ|F| over the largest outputs of the examples, the part that is an energy map.
    energy: float | None = None
    #: Of a calibrated strip: how much of each layer is reproduced, on calibration and on held-out inputs.
    layers: tuple[LayerFit, ...] = ()

    _repr_html_ = shown_by("conversion_html")

    def __str__(self) -> str:
        exact = "exact" if self.certificate.exact else "up to the epsilons that the certificate names"
        lines = [f"{self.original} by {self.how}: X-DNN of degree {self.certificate.degree:g}, {exact}"]
        lines.append(
            f"state dict: {len(self.removed)} entries taken out, {len(self.added)} new, the others as they were"
        )
        if self.energy is not None:
            lines.append(
                f"energy map: {self.energy:.0%} of the outputs (F − x·∇f, shared out as x²/‖x‖²); "
                "the rest is Input×Gradient of the original"
            )
        if self.layers:
            last, weakest = self.layers[-1], min(self.layers, key=lambda layer: layer.held_out)
            lines.append(
                f"calibration: the last layer reproduces {last.held_out:.3f} of the original's on held-out inputs "
                f"({last.calibration:.3f} on the others), the weakest, {weakest.name}, {weakest.held_out:.3f}"
            )
        lines.append(f"{len(self.edits)} {'edit' if len(self.edits) == 1 else 'edits'}:")
        return "\n".join(lines + _table(self.edits))


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
    how: Literal["strip", "lift"] = "strip",
    radius: float | None = None,
    baseline: Any = None,
    mask: Mask | None = None,
    calibration: Any = None,
    additional_forward_args: Any = None,
) -> Conversion:
    """Convert a copy of the model into a nonnegatively homogeneous network, F(αx) = α·F(x), and prove that it is one.

    "strip" takes out additive constants and exchanges what is not homogeneous; "lift" is F(x) = ρ(x)·f(x/ρ(x)).
    Padding has no part in either: `mask` is the name or the position of the argument that is nonzero (or True) for the
    tokens that count, or a function of the model's arguments that returns it; `attention_mask` and PyTorch's
    `key_padding_mask` arguments are found without it.

    With `calibration` (unlabelled inputs as a tensor, as a loader, or in a `Calibration`) strip keeps the accuracy:
    biases are read off the input and weights fitted by least squares, layer by layer.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    >>> conversion = to_xdnn(net, torch.randn(16, 4), how="lift")
    >>> conversion.certificate.degree, conversion.certificate.exact
    (1.0, True)
    """
    if how not in {"strip", "lift"}:
        raise ConfigurationError(f"how={how!r}; choose 'strip' or 'lift'.")
    if how == "strip" and (radius is not None or baseline is not None):
        raise ConfigurationError("radius and baseline belong to how='lift'; for 'strip', centre the inputs yourself.")
    if how == "lift" and calibration is not None:
        raise ConfigurationError("calibration belongs to how='strip'; a lift takes its radius from the example inputs.")
    module = unwrap(model)
    if not isinstance(module, nn.Module):
        raise ConversionError(f"to_xdnn converts an nn.Module; got {describe_model(module)}: wrap it in a module.")
    require_shapes(module)
    call = _read_example(module, example_inputs, additional_forward_args, baseline=baseline, mask=mask)
    try:
        twin = copy.deepcopy(module)
    except Exception as error:
        raise ConversionError(
            f"{type(module).__name__} cannot be deep-copied, and to_xdnn changes only a copy."
        ) from error
    edits = _without_cache(twin)
    _check_that_it_runs(twin, call)

    def prove(candidate: nn.Module) -> "Certificate":
        from axiograd.homogeneity import certify  # homogeneity exports this module too

        return certify(candidate, example_inputs, baseline=baseline, additional_forward_args=additional_forward_args)

    energy: float | None = None
    layers: tuple[LayerFit, ...] = ()
    if calibration is not None:
        result, further, certificate, layers = _calibrate(twin, call, Calibration.ensure(calibration), prove)
    elif how == "strip":
        result, further, certificate = strip(twin, call, prove)
    else:
        result, further, certificate = _lift(twin, call, prove, radius=radius, baseline=baseline)
        energy = _energy(result, example_inputs, additional_forward_args)
    prefix = "model." if how == "lift" else ""
    before, after = {prefix + key for key in module.state_dict()}, set(result.state_dict())
    return Conversion(
        how=how,
        model=result,
        edits=(*edits, *further),
        certificate=certificate,
        original=type(module).__name__,
        removed=tuple(sorted(before - after)),
        added=tuple(sorted(after - before)),
        energy=energy,
        layers=layers,
    )


def _read_example(model: nn.Module, inputs: Any, additional: Any, *, baseline: Any, mask: Mask | None) -> ExampleCall:
    """The example call, with the role of every argument: further ones do not scale."""
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
    """In eval mode on the example inputs: what fails here is not the conversion's doing."""
    try:
        with running(model):
            call(model)
    except Exception as error:
        raise InputError(
            f"{type(model).__name__} itself fails on the example inputs ({type(error).__name__}: {error}): pass inputs "
            "with which it runs."
        ) from error


#: What to try where reading biases does not do.
_INSTEAD = "strip without calibration exchanges norms, attention and the like for forms that keep the scale; "
_INSTEAD += LIFT_INSTEAD


def _calibrate(
    model: nn.Module, call: ExampleCall, calibration: Calibration, prove: Prove
) -> tuple[nn.Module, list[Edit], "Certificate", tuple[LayerFit, ...]]:
    """Strip by least squares; what comes out is proved or refused."""
    name, training = type(model).__name__, model.training
    args = call.leaves.args
    if len(args) != 1 or call.leaves.kwargs or not isinstance(args[0], Tensor):
        raise ConversionError(f"{name} is called with more than one tensor; calibration is for models of one input.")

    def refuse(offending: Any) -> None:
        where = f"{offending.op} in {offending.module}" if offending.module else offending.op
        raise ConversionError(f"{name} has {where}, for which calibration has no homogeneous form. {_INSTEAD}")

    with running(model):
        before = prove(model)
    if before.epsilons:  # of norms other than BatchNorm, which stay as they are: known before anything is fitted
        refuse(before.epsilons[0])
    try:
        result, layers = calibrated_strip(model, args[0], calibration)
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
    warn_of_overfitting(layers)
    edits = [Edit(layer.name, "affine layer with its norm", "W h + b·c(h), fitted") for layer in layers]
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


def _energy(lifted: Lifted, inputs: Inputs, additional: Any) -> float | None:
    """Σ|F − x·∇f| / Σ|F|; None where the model lets no gradient through or answers zero."""
    try:
        with running(lifted):
            output, energy = energy_parts(lifted, inputs, additional_forward_args=additional)
    except RuntimeError:
        return None
    total = float(output.abs().sum())
    return float(energy.abs().sum()) / total if total > 0 else None
