"""The paper's way to an X-DNN: take out additive constants, rewrite what is not homogeneous, prove the result."""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from axiograd._calls import Leaves
from axiograd._state import in_mode, preserved_buffers, with_buffers
from axiograd.errors import AxiogradError, ConversionError
from axiograd.homogeneity.conversion.arguments import Roles, Slot
from axiograd.homogeneity.conversion.layers import UncentredBatchNorm
from axiograd.homogeneity.conversion.rewrite import GATES, RewrittenForward, ScaleKeepingForward

if TYPE_CHECKING:
    from axiograd.homogeneity.certificate import Certificate

Prove = Callable[[nn.Module], "Certificate"]

LIFT_INSTEAD = 'how="lift" changes no layer and works for any architecture.'

_AFFINE = (nn.Linear, nn.Bilinear, _ConvNd)
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
#: How far a norm's answer may move, by its epsilon, when its input is halved or doubled.
_NORM_TOLERANCE = 0.05


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
class ExampleCall:
    """The example call of a model, with the role of every argument."""

    leaves: Leaves
    roles: Roles

    def by_slot(self) -> dict[Slot, Any]:
        return self.roles.by_slot(self.leaves.args, self.leaves.kwargs)

    def __call__(self, model: nn.Module) -> Any:
        args, kwargs = self.leaves.copies()
        return model(*args, **kwargs)


@contextmanager
def running(model: nn.Module, *, training: bool = False, keep_buffers: bool = True) -> Iterator[None]:
    """Everything in one mode; modes, random numbers and, if wanted, buffers are afterwards as they were."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    owners = with_buffers(model) if keep_buffers else []
    with in_mode(model, training=training), torch.random.fork_rng(list(devices)), preserved_buffers(owners):
        yield


def strip(model: nn.Module, call: ExampleCall, prove: Prove) -> tuple[nn.Module, list[Edit], "Certificate"]:
    """Biases and batch norms first, then functions, then what the certificate still points at, until it is satisfied.

    Sigmoid and softmax are taken for gates (degree 0) first; if that leaves no degree for the output, for activations.
    A model whose own code reads the biases of its layers keeps them, as zeros.
    """
    failed: Certificate | None = None
    zero_biases = False
    norms = _hand_written_norms(model, call)
    for gate_degree in (0.0, 1.0):
        attempt = _Attempt(norms, call, prove, gate_degree)
        try:
            stripped, edits, certificate = attempt.strip(model, zero_biases=zero_biases)
        except AxiogradError:
            raise
        except Exception as error:  # noqa: BLE001  # the user's own code, without its biases
            zero_biases = True
            try:
                stripped, edits, certificate = attempt.strip(model, zero_biases=True)
            except Exception:  # noqa: BLE001
                raise ConversionError(
                    f"{type(model).__name__} no longer runs once it is stripped ({type(error).__name__}: {error}). "
                    + LIFT_INSTEAD
                ) from error
        if certificate.ok:
            return stripped, edits, certificate
        failed = failed or certificate
        if not any(isinstance(module, GATES) for module in stripped.modules()):
            break
    raise ConversionError(
        f"{type(model).__name__} could not be stripped completely; what is left:\n{failed}\n{LIFT_INSTEAD}"
    )


@dataclass(frozen=True)
class _Attempt:
    """One way to strip: with gates of degree 0 or 1."""

    #: Paths of hand-written norms.
    norms: set[str]
    call: ExampleCall
    prove: Prove
    gate_degree: float

    def strip(self, model: nn.Module, *, zero_biases: bool) -> tuple[nn.Module, list[Edit], "Certificate"]:
        stripped = copy.deepcopy(model)
        edits = list(_exchange(stripped, zero_biases=zero_biases))
        if self.call.roles.may_mask():
            stripped.forward = RewrittenForward(stripped, self.call.roles, rewrites=False)
        for path in self.norms:
            module = stripped.get_submodule(path)
            module.forward = ScaleKeepingForward(module)
        self._rewrite(stripped, self._owners(stripped))
        while True:
            calibrate(stripped, self.call)
            certificate = self.prove(stripped)
            origins = {v.module for v in certificate.violations if v.kind != "export"}
            origins |= {e.module for e in certificate.epsilons}
            if (certificate.ok and certificate.exact) or not self._rewrite(stripped, origins):
                break
        for path, forward in rewritten_forwards(stripped).items():
            edits += [Edit(path, *edit) for edit in forward.edits]
        order = {path: i for i, (path, _) in enumerate(stripped.named_modules())}
        return stripped, sorted(edits, key=lambda edit: order[edit.module]), certificate

    @torch.no_grad()
    def _owners(self, model: nn.Module) -> set[str]:
        """Paths of the modules in whose own code a function is rewritten: a dry run of a copy, rewritten as a whole."""
        trial = copy.deepcopy(model)
        forward = trial.forward = RewrittenForward(trial, self.call.roles, gate_degree=self.gate_degree)
        paths = {module: path for path, module in trial.named_modules()}
        running_modules: list[nn.Module] = []
        found: set[str] = set()
        forward.on_rewrite = lambda owner: found.add(paths[owner])

        def enter(module: nn.Module, _args: Any) -> None:
            running_modules.append(module)
            forward.owner = module

        def leave(_module: nn.Module, _args: Any, _output: Any) -> None:
            running_modules.pop()
            forward.owner = running_modules[-1] if running_modules else trial

        for module in paths:
            module.register_forward_pre_hook(enter)
            module.register_forward_hook(leave)
        for training in (True, False):
            running_modules.clear()
            with running(trial, training=training), _calibrating(trial):
                _attempt_run(trial, self.call)
        return found

    def _rewrite(self, model: nn.Module, paths: set[str]) -> bool:
        """Rewrite the owners of offending functions, or the nearest ancestor that is not rewritten yet."""
        modules = dict(model.named_modules(remove_duplicate=False))
        progress = False
        for path in sorted(paths):
            owner = path
            while owner and (owner not in modules or _rewrites(modules[owner])):
                owner = owner.rpartition(".")[0]
            module = modules[owner]
            if _rewrites(module) or isinstance(module, UncentredBatchNorm):
                continue
            roles = self.call.roles if module is model else None
            module.forward = RewrittenForward(module, roles, gate_degree=self.gate_degree)
            progress = True
        return progress


def _rewrites(module: nn.Module) -> bool:
    forward = module.__dict__.get("forward")
    return isinstance(forward, RewrittenForward) and forward.rewrites


def rewritten_forwards(model: nn.Module) -> dict[str, RewrittenForward]:
    """The rewritten forwards in a model, by module path."""
    found = {path: module.__dict__.get("forward") for path, module in model.named_modules()}
    return {path: forward for path, forward in found.items() if isinstance(forward, RewrittenForward)}


def _exchange(model: nn.Module, *, zero_biases: bool) -> Iterator[Edit]:
    """Take out biases, and exchange batch norms, in place."""
    for path, module in model.named_modules():
        kind = type(module).__name__
        torchs = type(module).forward.__module__.startswith("torch.nn.")  # a forward of one's own is functional code
        if isinstance(module, _BATCH_NORMS) and torchs:
            _uncentre(module)
            yield Edit(path, kind, type(module).__name__)
        elif isinstance(module, nn.MultiheadAttention) and torchs:
            for name in {"in_proj_bias", "bias_k", "bias_v"} & module._parameters.keys():  # noqa: SLF001
                module.register_parameter(name, None)
        elif isinstance(module, _NORMS) and torchs:
            module.register_parameter("bias", None)
        elif isinstance(module, _AFFINE) and isinstance(module.bias, nn.Parameter):
            zeros = torch.zeros_like(module.bias)
            module.register_parameter("bias", None)
            if zero_biases:
                del module._parameters["bias"]  # noqa: SLF001
                module.register_buffer("bias", zeros, persistent=False)
            yield Edit(path, f"{kind} with bias", f"{kind} without bias")


def _uncentre(module: nn.Module) -> None:
    """Change the class, which keeps parameters, keys, hooks, mode, and every place that holds the module."""
    fresh = UncentredBatchNorm(module.num_features, affine=False)  # type: ignore[arg-type]  # an int by construction
    module.__class__ = UncentredBatchNorm
    module._parameters.pop("bias", None)  # noqa: SLF001
    mean, variance = module._buffers.pop("running_mean", None), module._buffers.get("running_var")  # noqa: SLF001
    if mean is not None and variance is not None:
        variance.add_(mean.square())  # E[x²] = Var[x] + E[x]²
    like = next((p for p in module.parameters()), variance)
    for name, value in fresh._buffers.items():  # noqa: SLF001
        if module._buffers.get(name) is None and value is not None:  # noqa: SLF001
            module.register_buffer(name, value if like is None else value.to(like.device))


@torch.no_grad()
def _hand_written_norms(model: nn.Module, call: ExampleCall) -> set[str]:
    """Paths of modules without parts that answer 2x and x/2 as they answer x: norms, whoever wrote them."""
    found: set[str] = set()

    def probe(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], y: Any) -> None:
            x = args[0] if args else None
            if not (isinstance(x, Tensor) and isinstance(y, Tensor) and x.is_floating_point() and x.shape == y.shape):
                return
            allowed = _NORM_TOLERANCE * y.square().mean().sqrt()
            uneven = torch.linspace(0.5, 2.0, x.shape[-1], dtype=x.dtype, device=x.device)
            halved, doubled, otherwise = (
                (type(module).forward(module, factor * x, *args[1:], **kwargs) - y).abs().max()
                for factor in (0.5, 2.0, uneven)
            )
            # A sign or a step stays as it is under uneven factors too, and has no gradient.
            if halved < allowed and doubled < allowed < otherwise:
                found.add(path)

        return hook

    with ExitStack() as stack:
        for path, module in model.named_modules():
            if not any(module.children()) and type(module).forward.__module__.split(".")[0] != "torch":
                stack.enter_context(module.register_forward_hook(probe(path), with_kwargs=True))
        stack.enter_context(running(model))
        call(model)
    return found


@torch.no_grad()
def calibrate(model: nn.Module, call: ExampleCall) -> None:
    """Fit all constants: the example inputs go through the stripped model once.

    In eval mode everything is fitted; then, in train mode, what functional code reaches only there.
    """
    norms = [m for m in model.modules() if isinstance(m, UncentredBatchNorm) and not bool(m.num_batches_tracked > 0)]
    with ExitStack() as stack:
        for norm in norms:  # one that has seen batches knows its scale better than a few example inputs do
            norm.calls = 0
            stack.enter_context(norm.register_forward_pre_hook(lambda module, args: module.calibrate(*args)))
        for forward in rewritten_forwards(model).values():
            forward.calls.clear()
        stack.enter_context(running(model, keep_buffers=False))
        stack.enter_context(_calibrating(model))
        call(model)
    if rewritten_forwards(model):
        with running(model, training=True), _calibrating(model):
            _attempt_run(model, call)


@contextmanager
def _calibrating(model: nn.Module) -> Iterator[None]:
    forwards = rewritten_forwards(model).values()
    for forward in forwards:
        forward.calibrating = True
    try:
        yield
    finally:
        for forward in forwards:
            forward.calibrating = False


def _attempt_run(model: nn.Module, call: ExampleCall) -> None:
    with suppress(RuntimeError, ValueError):  # e.g. a batch of one: train mode is not for this example
        call(model)
