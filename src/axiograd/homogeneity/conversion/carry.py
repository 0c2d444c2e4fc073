"""Biases that the signal carries: layers with biases and batch norms become those of `axiograd.layers`."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from axiograd.homogeneity.conversion.edits import Edit, ExampleCall, running, runs_torchs_code
from axiograd.homogeneity.conversion.rewrite import degree_of, track, without_rewrites
from axiograd.layers import (
    CarriedBatchNorm,
    CarriedConv1d,
    CarriedConv2d,
    CarriedConv3d,
    CarriedLinear,
    mean_size,
    over_channels,
)

_CARRIED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: CarriedLinear,
    nn.Conv1d: CarriedConv1d,
    nn.Conv2d: CarriedConv2d,
    nn.Conv3d: CarriedConv3d,
}


class ConvertedBatchNorm(CarriedBatchNorm):
    """A `CarriedBatchNorm` in a converted network, where functions are rewritten: its own are not."""

    def forward(self, x: Tensor) -> Tensor:
        with without_rewrites():
            y = super().forward(x)
        track(y, degree_of(x, default=1.0))
        return y


def carry_biases(model: nn.Module, call: ExampleCall) -> list[Edit]:
    """Change the classes of the layers in place; m̄ is the mean of m(x) in the model as it was, on the examples."""
    found = {
        module: path
        for path, module in model.named_modules()
        if runs_torchs_code(module)
        and (isinstance(module, _BatchNorm) or (type(module) in _CARRIED and module.bias is not None))
    }
    typical = _typical_sizes(model, call, list(found))
    edits = []
    for module, path in found.items():
        before = type(module)
        like = next(iter(module.parameters()), torch.ones(()))
        module.__class__ = _CARRIED.get(before, ConvertedBatchNorm)
        if isinstance(module, CarriedBatchNorm):
            for name, value in CarriedBatchNorm(module.num_features, affine=False).named_buffers():
                if module._buffers.get(name) is None:  # noqa: SLF001  # of one that tracks no statistics
                    module.register_buffer(name, value.to(like.device))
        size = typical.get(module, torch.ones(())).to(like.device)
        module.register_buffer("running_size" if isinstance(module, CarriedBatchNorm) else "typical", size)
        after = "with mean and shift carried" if isinstance(module, CarriedBatchNorm) else "with a carried bias"
        edits.append(Edit(path, before.__name__, f"{before.__name__} {after}"))
    return edits


@torch.no_grad()
def _typical_sizes(model: nn.Module, call: ExampleCall, layers: list[nn.Module]) -> dict[nn.Module, Tensor]:
    """The mean of m(x) over the examples, of what a bias is added to and of what a batch norm gets."""
    sizes: dict[nn.Module, list[Tensor]] = {}

    def note(module: nn.Module, args: tuple[Tensor, ...], made: Tensor) -> None:
        x = args[0]
        if not hasattr(module, "running_mean"):
            bias: Tensor = module.bias  # type: ignore[assignment]  # those layers have one
            x = made - (bias if isinstance(module, nn.Linear) else over_channels(bias, made))
        sizes.setdefault(module, []).append(mean_size(x).flatten())

    hooks = [layer.register_forward_hook(note) for layer in layers]
    with running(model):
        call(model)
    for hook in hooks:
        hook.remove()
    means = {layer: torch.cat(found).float().mean() for layer, found in sizes.items()}
    return {layer: mean for layer, mean in means.items() if bool(mean > 0)}
