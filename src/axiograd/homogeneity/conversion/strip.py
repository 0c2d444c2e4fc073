"""The paper's way to an X-DNN: take out additive constants, exchange what is not homogeneous, prove the result."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from axiograd.errors import ConversionError
from axiograd.homogeneity.conversion.calibration import calibrate, owners_of_functions, patches
from axiograd.homogeneity.conversion.calling import ExampleCall
from axiograd.homogeneity.conversion.counterpart import Counterpart
from axiograd.homogeneity.conversion.edit import Edit
from axiograd.homogeneity.conversion.gates import NormalisedGate
from axiograd.homogeneity.conversion.patched import PatchedForward
from axiograd.homogeneity.conversion.surgery import Surgery

if TYPE_CHECKING:
    from axiograd.homogeneity.certificate import Certificate

Prove = Callable[[nn.Module], "Certificate"]


def strip(model: nn.Module, call: ExampleCall, prove: Prove) -> tuple[nn.Module, list[Edit], "Certificate"]:
    """Modules first, then functional code, then what the certificate still points at, until it is satisfied.

    Sigmoid and softmax are taken for gates (degree 0) first; if that leaves no degree for the output, for activations.
    """
    failed: Certificate | None = None
    for gate_degree in (0.0, 1.0):
        stripped, edits = Surgery(gate_degree).strip(copy.deepcopy(model))
        _patch(stripped, owners_of_functions(stripped, call))
        certificate = _patch_until_proved(stripped, call, prove)
        if certificate.ok:
            functional = [
                Edit(path, before, after, source)
                for path, forward in patches(stripped).items()
                for before, after, source in forward.edits.values()
            ]
            return stripped, edits + functional, certificate
        failed = failed or certificate
        if not any(isinstance(module, NormalisedGate) for module in stripped.modules()):
            break
    raise ConversionError(
        f"{type(model).__name__} could not be stripped completely; what is left:\n{failed}\n"
        'how="lift" needs no surgery and works for any architecture.'
    )


def _patch_until_proved(model: nn.Module, call: ExampleCall, prove: Prove) -> "Certificate":
    while True:
        calibrate(model, call)
        certificate = prove(model)
        if certificate.ok and certificate.exact:
            return certificate
        origins = {v.module for v in certificate.violations if v.kind != "export"}
        origins |= {e.module for e in certificate.epsilons}
        if not _patch(model, origins):
            return certificate


def _patch(model: nn.Module, paths: set[str]) -> bool:
    """Patch the owners of offending functions, or the nearest ancestor that is not patched yet."""
    modules = dict(model.named_modules(remove_duplicate=False))
    progress = False
    for path in sorted(paths):
        owner = path
        while owner not in modules or isinstance(modules[owner].__dict__.get("forward"), PatchedForward):
            if not owner:
                break
            owner = owner.rpartition(".")[0]
        module = modules[owner]
        if isinstance(module.__dict__.get("forward"), PatchedForward) or isinstance(module, Counterpart):
            continue
        module.forward = PatchedForward(module)
        progress = True
    return progress
