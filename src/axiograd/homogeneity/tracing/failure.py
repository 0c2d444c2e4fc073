"""When the export gives up, or the model itself: where in the user's code, and what to do."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from axiograd._state import modules_behind
from axiograd.errors import InputError
from axiograd.homogeneity.certificate import Violation
from axiograd.homogeneity.tracing.places import locate_error


def fails_itself(error: Exception) -> InputError:
    """What is said where the model does not run at all."""
    return InputError(f"the model fails on the example inputs: {type(error).__name__}: {error}")


def explain_failure(error: Exception) -> Violation:
    """A violation for what the export cannot follow, control flow most often."""
    place = locate_error(error)
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return Violation(
        module=place.module,
        op="export",
        source=place.source,
        code=place.code,
        reason=f"torch.export cannot follow the model here ({type(error).__name__}: {first[:200]}).",
        fix="Replace control flow that depends on values by torch.where, and calls that leave PyTorch by operators.",
        kind="export",
    )


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
