"""When the export gives up: say where in the user's code, or that the model itself fails on this input."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from axiograd.errors import InputError
from axiograd.homogeneity.certificate import Violation
from axiograd.homogeneity.inputs import NamedArguments
from axiograd.homogeneity.running import modules_behind
from axiograd.homogeneity.tracing.places import locate_error


def explain_failure(model: Callable[..., Any], arguments: NamedArguments, error: Exception) -> Violation:
    """A violation for control flow that cannot be followed; InputError if the model does not run at all."""
    trouble = _run(model, arguments)
    if trouble is not None:
        raise InputError(f"the model fails on the example inputs: {type(trouble).__name__}: {trouble}") from trouble
    place = locate_error(error)
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return Violation(
        module=place.module,
        op="export",
        source=place.source,
        code=place.code,
        reason=f"torch.export cannot follow the model here ({type(error).__name__}: {first[:200]}).",
        fix=("Replace control flow that depends on values by torch.where, and calls that leave PyTorch by operators."),
        kind="export",
    )


def _run(model: Callable[..., Any], arguments: NamedArguments) -> Exception | None:
    """What the model itself raises on a copy of everything, if it raises."""
    try:
        twin = copy.deepcopy(model)
    except Exception:  # noqa: BLE001 - a model that cannot be copied is not run
        return None
    values = [v.detach().clone() if isinstance(v, Tensor) else v for v in (leaf.value for leaf in arguments.leaves)]
    args, kwargs = arguments.rebuild(values)
    with torch.random.fork_rng(), torch.no_grad():
        try:
            twin(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - this is what we are looking for
            return error
    return None


def wrong_format(model: Callable[..., Any], tensors: Sequence[Tensor], error: Exception) -> InputError | None:
    """What to do about inputs in another precision than the parameters, None if that is not the trouble."""
    given = {x.dtype for x in tensors}
    own = {p.dtype for module in modules_behind(model) for p in module.parameters() if p.is_floating_point()}
    if not own or given <= own or isinstance(error, torch.OutOfMemoryError):
        return None
    inputs, parameters = (" and ".join(sorted(map(str, formats))) for formats in (given, own))
    return InputError(
        f"the model fails on inputs of {inputs}, its parameters being {parameters} ({error}): convert one of them, for "
        "example inputs.to(next(model.parameters()).dtype)."
    )
