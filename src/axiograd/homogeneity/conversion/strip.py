"""The paper's way to an X-DNN: take out additive constants, exchange what is not homogeneous, prove the result."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from axiograd.errors import AxiogradError, ConversionError
from axiograd.homogeneity.conversion.calibration import calibrate, hand_written_norms, owners_of_functions, patches
from axiograd.homogeneity.conversion.counterparts import (
    ACTIVATIONS,
    GATES,
    Counterpart,
    NormalisedGate,
    NormalisedGLU,
    TwoSlopes,
)
from axiograd.homogeneity.conversion.example import ExampleCall
from axiograd.homogeneity.conversion.layers import (
    BATCH_NORMS,
    RECURRENT,
    SCALE_KEEPING,
    NormalisedAttention,
    UncentredBatchNorm,
)
from axiograd.homogeneity.conversion.patched import PatchedForward, ScaleKeepingForward

if TYPE_CHECKING:
    from axiograd.homogeneity.certificate import Certificate

Prove = Callable[[nn.Module], "Certificate"]


@dataclass(frozen=True)
class Edit:
    """One change: where, from what, to what; `source` is the line of functional code, if it was that."""

    module: str
    before: str
    after: str
    source: str = ""

    def __str__(self) -> str:
        line = f" ({self.source})" if self.source else ""
        return f"{self.module or 'the model'}: {self.before} → {self.after}{line}"


@dataclass(frozen=True)
class ModuleStripper:
    """How to strip: gates of degree 0, or of degree 1 where they turn out to be activations."""

    gate_degree: float = 0.0
    #: Biases become zeros that no training changes, for code that reads them.
    zero_biases: bool = False

    def strip(self, root: nn.Module) -> tuple[nn.Module, list[Edit]]:
        """Exchange modules in place; the root itself may be exchanged too."""
        edits: list[Edit] = []
        done: dict[int, nn.Module] = {}
        reference = next((p for p in root.parameters() if p.is_floating_point()), None)
        for path, parent, name, module in list(_walk(root)):
            if id(module) not in done:
                before = _describe(module)
                done[id(module)] = self._counterpart(module, reference)
                after = _describe(done[id(module)])
                if before != after:
                    edits.append(Edit(path, before, after))
            if parent is not None:
                parent._modules[name] = done[id(module)]  # noqa: SLF001  # setattr refuses names such as "0"
        return done.get(id(root), root), edits

    def _counterpart(self, module: nn.Module, reference: Tensor | None) -> nn.Module:
        if isinstance(module, nn.Linear | nn.Bilinear | _ConvNd):
            self._take_out_bias(module)
        elif kind := _kind(module, ACTIVATIONS):
            dtype = torch.float32 if reference is None else torch.promote_types(reference.dtype, torch.float32)
            fitted = TwoSlopes(module, dtype)
            return fitted.to(reference.device) if reference is not None else fitted
        elif _kind(module, GATES):
            return NormalisedGate(module, degree=self.gate_degree, reference=reference)
        elif isinstance(module, nn.GLU):
            return NormalisedGLU(module, reference)
        elif _kind(module, BATCH_NORMS):
            _uncentre(module, reference)
        elif kind := _kind(module, (*SCALE_KEEPING, *RECURRENT, nn.MultiheadAttention)):
            counterparts = {**SCALE_KEEPING, **RECURRENT, nn.MultiheadAttention: NormalisedAttention}
            _recast(module, counterparts[kind], reference)
        return module

    def _take_out_bias(self, module: nn.Module) -> None:
        bias = module._parameters.get("bias")  # noqa: SLF001
        if bias is None or not self.zero_biases:
            module.register_parameter("bias", None)
        else:
            del module._parameters["bias"]  # noqa: SLF001
            module.register_buffer("bias", torch.zeros_like(bias), persistent=False)


def _walk(root: nn.Module) -> Iterator[tuple[str, nn.Module | None, str, nn.Module]]:
    """Every module once per place where it is held, parents first, without looking inside counterparts."""
    stack: list[tuple[str, nn.Module | None, str, nn.Module]] = [("", None, "", root)]
    seen: set[int] = set()
    while stack:
        place = stack.pop()
        yield place
        path, _, _, module = place
        if id(module) in seen or isinstance(module, Counterpart):
            continue
        seen.add(id(module))
        for name, child in reversed(list(module._modules.items())):  # noqa: SLF001  # children() hides repeats
            if child is not None:
                stack.append((f"{path}.{name}" if path else name, module, name, child))


def _kind(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> type[nn.Module] | None:
    """The type in `kinds` whose forward this module runs: a subclass with a forward of its own is functional code."""
    if isinstance(module, Counterpart):
        return None
    own = type(module).forward
    return next((k for k in kinds if type(module) is k), None) or next(
        (k for k in kinds if isinstance(module, k) and own is k.forward), None
    )


def _recast(module: nn.Module, counterpart: type[Counterpart], reference: Tensor | None) -> None:
    module.__class__ = counterpart  # keeps parameters, keys, hooks, mode, and every place that holds the module
    for name in ("bias", "in_proj_bias", "bias_k", "bias_v"):
        if name in module._parameters and not isinstance(module, nn.RNNBase):  # noqa: SLF001
            module.register_parameter(name, None)
    module.start(reference)  # type: ignore[operator]  # every recast counterpart is Scaled


def _uncentre(module: nn.Module, reference: Tensor | None) -> None:
    fresh = UncentredBatchNorm(module.num_features, affine=False)  # type: ignore[arg-type]  # an int by construction
    module.__class__ = UncentredBatchNorm
    module._parameters.pop("bias", None)  # noqa: SLF001
    mean, variance = module._buffers.pop("running_mean", None), module._buffers.get("running_var")  # noqa: SLF001
    if mean is not None and variance is not None:
        variance.add_(mean.square())  # E[x²] = Var[x] + E[x]²
    for name, value in fresh._buffers.items():  # noqa: SLF001
        if module._buffers.get(name) is None and value is not None:  # noqa: SLF001
            module.register_buffer(name, value if reference is None else value.to(reference.device))


def _describe(module: nn.Module) -> str:
    name = type(module).__name__
    if isinstance(module, nn.Linear | nn.Bilinear | _ConvNd):
        return f"{name} {'with' if isinstance(module.bias, nn.Parameter) else 'without'} bias"
    return name


def strip(model: nn.Module, call: ExampleCall, prove: Prove) -> tuple[nn.Module, list[Edit], "Certificate"]:
    """Modules first, then functional code, then what the certificate still points at, until it is satisfied.

    Sigmoid and softmax are taken for gates (degree 0) first; if that leaves no degree for the output, for activations.
    A model whose own code reads the biases of its layers keeps them, as zeros.
    """
    failed: Certificate | None = None
    zero_biases = False
    norms = hand_written_norms(model, call)
    for gate_degree in (0.0, 1.0):
        try:
            stripped, edits, certificate = _attempt(
                model, ModuleStripper(gate_degree, zero_biases=zero_biases), norms, call, prove
            )
        except AxiogradError:
            raise
        except Exception as error:  # noqa: BLE001  # the user's own code, without its biases
            zero_biases = True
            try:
                stripped, edits, certificate = _attempt(
                    model, ModuleStripper(gate_degree, zero_biases=True), norms, call, prove
                )
            except Exception:  # noqa: BLE001
                raise ConversionError(
                    f"{type(model).__name__} no longer runs once it is stripped ({type(error).__name__}: {error}). "
                    + LIFT_INSTEAD
                ) from error
        if certificate.ok:
            return stripped, edits, certificate
        failed = failed or certificate
        if not any(isinstance(module, NormalisedGate) for module in stripped.modules()):
            break
    raise ConversionError(
        f"{type(model).__name__} could not be stripped completely; what is left:\n{failed}\n{LIFT_INSTEAD}"
    )


LIFT_INSTEAD = 'how="lift" needs no surgery and works for any architecture.'


def _attempt(
    model: nn.Module, stripper: ModuleStripper, norms: set[str], call: ExampleCall, prove: Prove
) -> tuple[nn.Module, list[Edit], "Certificate"]:
    stripped, edits = stripper.strip(copy.deepcopy(model))
    if call.roles.may_mask() and not isinstance(stripped, Counterpart):
        stripped.forward = PatchedForward(stripped, call.roles, rewrites=False)
    for path in norms:
        module = stripped.get_submodule(path)
        module.forward = ScaleKeepingForward(module)
    _patch(stripped, owners_of_functions(stripped, call), call)
    certificate = _patch_until_proved(stripped, call, prove)
    functional = [
        Edit(path, before, after, source)
        for path, forward in patches(stripped).items()
        for before, after, source in forward.edits.values()
    ]
    return stripped, edits + functional, certificate


def _patch_until_proved(model: nn.Module, call: ExampleCall, prove: Prove) -> "Certificate":
    while True:
        calibrate(model, call)
        certificate = prove(model)
        if certificate.ok and certificate.exact:
            return certificate
        origins = {v.module for v in certificate.violations if v.kind != "export"}
        origins |= {e.module for e in certificate.epsilons}
        if not _patch(model, origins, call):
            return certificate


def _patch(model: nn.Module, paths: set[str], call: ExampleCall) -> bool:
    """Patch the owners of offending functions, or the nearest ancestor that is not patched yet."""
    modules = dict(model.named_modules(remove_duplicate=False))
    progress = False
    for path in sorted(paths):
        owner = path
        while owner and (owner not in modules or _rewrites(modules[owner])):
            owner = owner.rpartition(".")[0]
        module = modules[owner]
        if _rewrites(module) or isinstance(module, Counterpart):
            continue
        patched = module.__dict__.get("forward")
        if isinstance(patched, PatchedForward):
            patched.rewrites = True
        else:
            module.forward = PatchedForward(module, None if module is not model else call.roles)
        progress = True
    return progress


def _rewrites(module: nn.Module) -> bool:
    patched = module.__dict__.get("forward")
    return isinstance(patched, PatchedForward) and patched.rewrites
