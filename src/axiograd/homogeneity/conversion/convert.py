"""`to_xdnn`: any model into an X-DNN, with the list of what was changed and the proof."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from axiograd._calls import is_floating, read_leaves
from axiograd._notebook import shown_by
from axiograd._state import PARALLEL, compiled_from
from axiograd._typing import Inputs
from axiograd.errors import AxiogradError, ConfigurationError, ConversionError, InputError
from axiograd.homogeneity.conversion.arguments import Mask, Roles, Slot
from axiograd.homogeneity.conversion.calibrate import Calibration, LayerFit, calibrated_strip, warn_of_overfitting
from axiograd.homogeneity.conversion.lift import Lifted, energy_parts, mask_for
from axiograd.homogeneity.conversion.scale import joint_rms
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
    module = ensure_module(model)
    call = _read_example(module, example_inputs, additional_forward_args, baseline=baseline, mask=mask)
    try:
        twin = copy.deepcopy(module)
    except Exception as error:
        raise ConversionError(
            f"{type(module).__name__} cannot be deep-copied, and to_xdnn changes only a copy."
        ) from error
    edits = _without_cache(twin)
    output = _run(twin, call)

    def prove(candidate: nn.Module) -> "Certificate":
        from axiograd.homogeneity import certify  # homogeneity exports this module too

        return certify(candidate, example_inputs, baseline=baseline, additional_forward_args=additional_forward_args)

    energy: float | None = None
    layers: tuple[LayerFit, ...] = ()
    if calibration is not None:
        result, further, certificate, layers = _calibrate(twin, call, calibration, prove)
    elif how == "strip":
        result, further, certificate = strip(twin, call, prove)
    else:
        result, further, certificate = _lift(twin, call, output, prove, radius=radius, baseline=baseline)
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
    if isinstance(mask, str | int) and call.roles.mask not in call.by_slot():
        raise ConfigurationError(f"mask={mask!r} names no argument; the call has {list(call.by_slot())}.")
    for i, x in enumerate(leaf.value for leaf in leaves.leaves if leaf.scales):
        name = f"floating-point example input {i} of shape {tuple(x.shape)}"
        if x.numel() == 0:
            raise InputError(f"{name} is empty.")
        if x.device.type == "meta":
            raise InputError(f"{name} is on the meta device and has no values to calibrate on.")
        if not bool(torch.isfinite(x).all()):
            raise InputError(f"{name} has NaN or infinite values.")
    return call


def ensure_module(model: Any) -> nn.Module:
    """The plain module behind compiled and data-parallel wrappers, or an error that says what to pass instead."""
    if not isinstance(model, nn.Module):
        raise ConversionError(
            f"to_xdnn converts an nn.Module; got {type(model).__name__}: wrap the function in a module."
        )
    inner = model.module if isinstance(model, PARALLEL) else compiled_from(model)
    if inner is not None:
        return ensure_module(inner)
    for path, module in model.named_modules():
        name = f"{path or 'the model'} ({type(module).__name__})"
        if isinstance(module, torch.jit.ScriptModule):
            raise ConversionError(f"{name} is scripted or traced; its code is fixed: pass the module it was made from.")
        if ".quantized" in type(module).__module__:
            raise ConversionError(f"{name} is quantised; rounding has no degree: convert first, then quantise.")
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise ConversionError(f"{path} is lazy and has no shape yet: run the model once on real inputs first.")
        if tensor.device.type == "meta":
            raise ConversionError(f"{path} is on the meta device and has no values: load the weights first.")
    return model


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
def _run(model: nn.Module, call: ExampleCall) -> Any:
    """The output on the example inputs in eval mode: what fails here is not the conversion's doing."""
    try:
        with running(model):
            return call(model)
    except Exception as error:
        raise InputError(
            f"{type(model).__name__} itself fails on the example inputs ({type(error).__name__}: {error}): pass inputs "
            "with which it runs."
        ) from error


def _calibrate(
    model: nn.Module, call: ExampleCall, given: Any, prove: Prove
) -> tuple[nn.Module, list[Edit], "Certificate", tuple[LayerFit, ...]]:
    """Strip by least squares; what comes out is proved or refused."""
    name, training = type(model).__name__, model.training
    args = call.leaves.args
    if len(args) != 1 or call.leaves.kwargs or not isinstance(args[0], Tensor):
        raise ConversionError(f"{name} is called with more than one tensor; calibration is for models of one input.")
    calibration = Calibration.ensure(given)
    with running(model):
        before = prove(model)
    if before.epsilons:  # of norms other than BatchNorm, which stay as they are: known before anything is fitted
        raise _without_form(name, replace(before, violations=()))
    try:
        result, layers = calibrated_strip(model, args[0], calibration)
    except AxiogradError:
        raise
    except Exception as error:
        raise ConversionError(
            f"{name} could not be calibrated ({type(error).__name__}: {error}). {_EXCHANGE}; {LIFT_INSTEAD}"
        ) from error
    certificate = prove(result)
    if not (certificate.ok and certificate.exact):
        raise _without_form(name, certificate)
    if certificate.degree != 1:
        raise ConversionError(
            f"{name} would become a network of degree {certificate.degree:g}, where degree 1 is wanted: it multiplies "
            f"values that both grow with the input. {_EXCHANGE}; {LIFT_INSTEAD}"
        )
    warn_of_overfitting(layers)
    edits = [Edit(layer.name, "affine layer with its norm", "W h + b·c(h), fitted") for layer in layers]
    return result.train(training), edits, certificate, layers


#: What to try where reading biases does not do.
_EXCHANGE = "strip without calibration exchanges norms, attention and the like for forms that keep the scale"


def _without_form(name: str, certificate: "Certificate") -> ConversionError:
    return ConversionError(
        f"{name} has {_operators(certificate)}, for which calibration has no homogeneous form. {_EXCHANGE}; "
        f"{LIFT_INSTEAD}"
    )


def _operators(certificate: "Certificate") -> str:
    """Those that break it, by name, each with the first module that has it."""
    found: dict[str, str] = {}
    places = [(e.op, e.module) for e in certificate.epsilons] + [(v.op, v.module) for v in certificate.violations]
    for op, module in places:
        if op:
            found.setdefault(op, f"{op} in {module}" if module else op)
    return ", ".join([*found.values()][:3]) or "an operator"


def _lift(
    model: nn.Module, call: ExampleCall, output: Any, prove: Prove, *, radius: float | None, baseline: Any
) -> tuple[Lifted, list[Edit], "Certificate"]:
    shared = _without_batch(call, output)
    roles = replace(call.roles, shared=frozenset(shared))
    own, others = _centred(call, shared)
    lifted = Lifted(
        model,
        _radius(radius, own, call),
        baseline,
        roles=roles,
        shared_radius=_radius(None, others, call) if others else None,
    )
    certificate = prove(lifted)
    if not certificate.ok:
        raise ConversionError(f"{type(model).__name__} was lifted but not proved:\n{certificate}.")
    return lifted, [Edit("", type(model).__name__, f"ρ(x)·f(x/ρ(x)), ρ(x) = RMS(x)/{lifted.radius:.4g}")], certificate


def _without_batch(call: ExampleCall, output: Any) -> set[Slot]:
    """Inputs that have no batch dimension while the output and others have: their sizes differ, and theirs is not its.

    If no input has the output's rows, all of them together are one sample, as a graph's nodes and edges are.
    """
    rows = {leaf.shape[0] for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.dim()}
    batched = {
        slot: all(x.dim() > 0 and {x.shape[0]} == rows for x in tree_leaves(value) if is_floating(x))
        for slot, value in call.by_slot().items()
        if call.roles.scales(slot) and any(is_floating(x) for x in tree_leaves(value))
    }
    return {slot for slot, has in batched.items() if not has} if any(batched.values()) else set()


def _centred(call: ExampleCall, shared: set[Slot]) -> tuple[list[tuple[Slot, Tensor]], list[tuple[Slot, Tensor]]]:
    """x − b of every floating-point input, with and without a batch dimension."""
    owners = [slot for slot, value in call.by_slot().items() for _ in tree_leaves(value)]
    own: list[tuple[Slot, Tensor]] = []
    others: list[tuple[Slot, Tensor]] = []
    for leaf, slot in zip(call.leaves.leaves, owners, strict=True):
        if leaf.scales and call.roles.scales(slot) and leaf.value.is_floating_point():
            x = leaf.value if leaf.baseline is None else leaf.value - leaf.baseline
            (others if slot in shared else own).append((slot, x))
    return own, others


def _radius(given: float | None, inputs: list[tuple[Slot, Tensor]], call: ExampleCall) -> float:
    """The given radius, or the root mean square of the example inputs without their padding."""
    if given is not None:
        if not given > 0:
            raise ConfigurationError(f"radius={given}; it is an RMS of inputs and must be positive.")
        return float(given)
    masks = call.roles.masks(call.leaves.args, call.leaves.kwargs)
    kept = [x.detach()[mask] if (mask := mask_for(slot, x, masks)) is not None else x.detach() for slot, x in inputs]
    found = float(joint_rms([x.reshape(1, -1).double() for x in kept]))
    if found == 0:
        raise InputError(
            "the example inputs are all zero, so the data's scale is unknown: pass real inputs or radius=."
        )
    return found


def _energy(lifted: Lifted, inputs: Inputs, additional: Any) -> float | None:
    """Σ|F − x·∇f| / Σ|F|; None where the model lets no gradient through or answers zero."""
    try:
        with running(lifted):
            output, energy = energy_parts(lifted, inputs, additional_forward_args=additional)
    except RuntimeError:
        return None
    total = float(output.abs().sum())
    return float(energy.abs().sum()) / total if total > 0 else None
