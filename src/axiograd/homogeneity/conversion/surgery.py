"""Strip module instances: biases out, and every module of a known type exchanged for its homogeneous counterpart."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from axiograd.homogeneity.conversion.activations import ACTIVATIONS, TwoSlopes
from axiograd.homogeneity.conversion.attention import NormalisedAttention
from axiograd.homogeneity.conversion.counterpart import Counterpart
from axiograd.homogeneity.conversion.edit import Edit
from axiograd.homogeneity.conversion.gates import GATES, NormalisedGate, NormalisedGLU
from axiograd.homogeneity.conversion.norms import BATCH_NORMS, SCALE_KEEPING, UncentredBatchNorm
from axiograd.homogeneity.conversion.recurrent import RECURRENT


@dataclass(frozen=True)
class Surgery:
    """How to strip: gates of degree 0, or of degree 1 where they turn out to be activations."""

    gate_degree: float = 0.0

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
            module.register_parameter("bias", None)
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
        return f"{name} {'without' if module.bias is None else 'with'} bias"
    return name
