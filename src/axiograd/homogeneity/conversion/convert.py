"""`to_xdnn`: any model into an X-DNN, with the list of what was changed and the proof."""

import copy
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from axiograd._typing import Inputs
from axiograd.errors import ConfigurationError, ConversionError, InputError
from axiograd.homogeneity.conversion.calling import ExampleCall, ensure_module
from axiograd.homogeneity.conversion.edit import Conversion, Edit
from axiograd.homogeneity.conversion.lift import Lifted
from axiograd.homogeneity.conversion.scale import joint_rms
from axiograd.homogeneity.conversion.strip import strip
from axiograd.homogeneity.inputs import take_apart

if TYPE_CHECKING:
    from axiograd.homogeneity.certificate import Certificate


def to_xdnn(
    model: nn.Module,
    example_inputs: Inputs,
    *,
    how: Literal["strip", "lift"] = "strip",
    radius: float | None = None,
    baseline: Any = None,
    additional_forward_args: Any = None,
) -> Conversion:
    """Convert a copy of the model into a nonnegatively homogeneous network, F(αx) = α·F(x), and prove that it is one.

    "strip" takes out additive constants and exchanges what is not homogeneous; "lift" is F(x) = ρ(x)·f(x/ρ(x)).

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
    call = ExampleCall.ensure(example_inputs, additional_forward_args)
    module = ensure_module(model)
    try:
        twin = copy.deepcopy(module)
    except Exception as error:
        raise ConversionError(
            f"{type(module).__name__} cannot be deep-copied, and to_xdnn changes only a copy."
        ) from error

    def prove(candidate: nn.Module) -> "Certificate":
        from axiograd.homogeneity import certify  # homogeneity exports this module too

        return certify(candidate, example_inputs, baseline=baseline, additional_forward_args=additional_forward_args)

    if how == "strip":
        result, edits, certificate = strip(twin, call, prove)
    else:
        result = Lifted(twin, _radius(radius, _centred(example_inputs, baseline)), baseline)
        edits = [Edit("", type(module).__name__, f"ρ(x)·f(x/ρ(x)), ρ(x) = RMS(x)/{result.radius:.4g}")]
        certificate = prove(result)
        if not certificate.ok:
            raise ConversionError(f"{type(module).__name__} was lifted but not proved:\n{certificate}")
    prefix = "model." if how == "lift" else ""
    before, after = {prefix + key for key in module.state_dict()}, set(result.state_dict())
    return Conversion(
        how=how,
        model=result,
        edits=tuple(edits),
        certificate=certificate,
        original=type(module).__name__,
        removed=tuple(sorted(before - after)),
        added=tuple(sorted(after - before)),
    )


def _centred(example_inputs: Inputs, baseline: Any) -> list[Tensor]:
    """x − b of every floating-point input."""
    leaves = [leaf for leaf in take_apart(example_inputs, baseline=baseline).leaves if leaf.scales]
    return [x.value if x.baseline is None else x.value - x.baseline for x in leaves if x.value.is_floating_point()]


def _radius(given: float | None, inputs: list[Tensor]) -> float:
    """The given radius, or the root mean square of the example inputs."""
    if given is not None:
        if not given > 0:
            raise ConfigurationError(f"radius={given}; it is an RMS of inputs and must be positive.")
        return float(given)
    found = float(joint_rms([x.reshape(1, -1).double() for x in inputs]))
    if found == 0:
        raise InputError(
            "the example inputs are all zero, so the data's scale is unknown: pass real inputs or radius=."
        )
    return found
