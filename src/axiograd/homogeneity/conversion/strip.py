"""The paper's way to an X-DNN: take out additive constants, rewrite what is not homogeneous, prove the result."""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_leaves

from axiograd._calls import is_floating
from axiograd.errors import AxiogradError, ConversionError
from axiograd.homogeneity.conversion.carry import carry_biases
from axiograd.homogeneity.conversion.edits import Edit, ExampleCall, running, runs_torchs_code
from axiograd.homogeneity.conversion.layers import UncentredBatchNorm
from axiograd.homogeneity.conversion.rewrite import RewrittenForward, ScaleKeepingForward, degree_of, is_torchs, track

if TYPE_CHECKING:
    from axiograd.homogeneity.certificate import Certificate

Prove = Callable[[nn.Module], "Certificate"]

LIFT_INSTEAD = 'how="lift" changes no layer and works for any architecture.'

_AFFINE = (nn.Linear, nn.Bilinear, _ConvNd)
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def strip(
    model: nn.Module, call: ExampleCall, prove: Prove, *, carries: bool = False
) -> tuple[nn.Module, list[Edit], "Certificate"]:
    """Biases and batch norms first, then functions, in the modules whose code calls them.

    With `carries` biases, means and shifts stay, carried by the signal. A model whose own code reads the biases of its
    layers keeps them, as zeros.
    """
    if carries and call.roles.may_mask():
        raise ConversionError(
            f"{type(model).__name__} takes a mask, and the means that carry biases would count padding: "
            'how="strip" and how="lift" leave it out.'
        )
    try:
        stripped, edits = _strip(model, call, zero_biases=False, carries=carries)
    except AxiogradError:
        raise
    except Exception as error:  # noqa: BLE001  # the user's own code, without its biases
        try:
            stripped, edits = _strip(model, call, zero_biases=True, carries=carries)
        except Exception:  # noqa: BLE001
            raise ConversionError(
                f"{type(model).__name__} no longer runs once it is stripped ({type(error).__name__}: {error}). "
                + LIFT_INSTEAD
            ) from error
    with running(stripped) if carries else nullcontext():  # in train mode a carried batch norm mixes its batch
        certificate = prove(stripped)
    if not certificate.ok:
        raise ConversionError(
            f"{type(model).__name__} could not be stripped completely; these violations remain:\n{certificate}\n"
            f"{LIFT_INSTEAD}"
        )
    return stripped, edits, certificate


def _strip(model: nn.Module, call: ExampleCall, *, zero_biases: bool, carries: bool) -> tuple[nn.Module, list[Edit]]:
    stripped = copy.deepcopy(model)
    edits = carry_biases(stripped, call) if carries else []
    edits += _exchange(stripped, zero_biases=zero_biases, carries=carries)
    owners = _owners(stripped, call, carries=carries)
    if call.roles.may_mask():
        stripped.forward = RewrittenForward(stripped, call.roles, rewrites=False)
    for path, degrees in owners.items():
        module = stripped.get_submodule(path)
        if degrees is None:
            module.forward = ScaleKeepingForward(module)
        else:
            module.forward = RewrittenForward(module, None if path else call.roles, degrees, carries=carries)
    calibrate(stripped, call)
    for path, forward in rewritten_forwards(stripped).items():
        edits += [Edit(path, *edit) for edit in forward.edits]
    order = {path: i for i, (path, _) in enumerate(stripped.named_modules())}
    return stripped, sorted(edits, key=lambda edit: order[edit.module])


@torch.no_grad()
def _owners(model: nn.Module, call: ExampleCall, *, carries: bool) -> dict[str, list[float] | None]:
    """The modules in whose own code a function is rewritten, with the degrees of their arguments, by path.

    A dry run of a copy that is rewritten as a whole, in which all degrees are known. A module without parts of its own
    whose answer has degree 0 is a norm, whoever wrote it; None stands for its degrees.
    """
    trial = copy.deepcopy(model)
    forward = trial.forward = RewrittenForward(trial, call.roles, carries=carries)
    paths = {module: path for path, module in trial.named_modules()}
    stack = [trial]
    degrees: dict[nn.Module, list[float]] = {}
    found: dict[str, list[float] | None] = {}

    def note(owner: nn.Module) -> None:
        found.setdefault(paths[owner], degrees.get(owner, []))

    forward.on_rewrite = note

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        stack.append(module)
        forward.owner = module
        degrees[module] = [degree_of(leaf) for leaf in tree_leaves((args, kwargs))]

    def leave(module: nn.Module, args: Any, y: Any) -> None:
        stack.pop()
        forward.owner = stack[-1]
        own_layer = not is_torchs(module) and not any(module.children())
        if own_layer and len(args) == 1 and is_floating(y) and args[0].shape == y.shape and degree_of(y) == 0:
            degree = degree_of(args[0])
            if degree and module is not trial:
                found[paths[module]] = None
                track(y, degree)

    for module in paths:
        module.register_forward_pre_hook(enter, with_kwargs=True)
        module.register_forward_hook(leave)
    for training in (True, False):
        del stack[1:]
        with running(trial, training=training), _calibrating(trial):
            _attempt_run(trial, call)
    return found


def rewritten_forwards(model: nn.Module) -> dict[str, RewrittenForward]:
    """The rewritten forwards in a model, by module path."""
    found = {path: module.__dict__.get("forward") for path, module in model.named_modules()}
    return {path: forward for path, forward in found.items() if isinstance(forward, RewrittenForward)}


def _exchange(model: nn.Module, *, zero_biases: bool, carries: bool) -> Iterator[Edit]:
    """Take out biases, and exchange batch norms, in place."""
    for path, module in model.named_modules():
        kind, torchs = type(module).__name__, runs_torchs_code(module)
        if isinstance(module, _BATCH_NORMS) and torchs:
            _uncentre(module)
            yield Edit(path, kind, type(module).__name__)
        elif isinstance(module, nn.MultiheadAttention) and torchs:
            for name in {"in_proj_bias", "bias_k", "bias_v"} & module._parameters.keys():  # noqa: SLF001
                module.register_parameter(name, None)
        elif isinstance(module, _NORMS) and torchs and not carries:
            module.register_parameter("bias", None)
        elif isinstance(module, _AFFINE) and isinstance(module.bias, nn.Parameter) and not carries:
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
