"""One small piecewise-linear network for every operator that the held-gate step knows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

CLASSES = 3


class Tail(nn.Module):
    """From anything to three outputs: what comes before counts, whatever its shape."""

    def __init__(self, body: Callable[[Tensor], Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.layers = nn.ModuleList(layers)
        self.last = nn.LazyLinear(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(self, x).flatten(1))


class Scaled(nn.Module):
    """Scalar biases and a scale, as in Fixup."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after, self.scale = (nn.Parameter(torch.full((1,), v)) for v in (0.1, -0.2, 1.3))

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.before).relu() * self.scale - self.after


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(F.relu(self.first(x), inplace=True))
        y += x
        return y.relu_()


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x).relu()).relu()


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (2, 6, 6)


def image(*layers: Callable[[], nn.Module], first: Callable[[], nn.Module] | None = None) -> Case:
    def make() -> nn.Module:
        head = [nn.Conv2d(2, 4, 3, padding=1) if first is None else first()]
        return nn.Sequential(*head, *(layer() for layer in layers), nn.Flatten(), nn.LazyLinear(CLASSES))

    return Case(make)


def row(function: Callable[[Tensor], Tensor]) -> Case:
    return Case(lambda: Tail(lambda self, x: function(self.layers[0](x)), nn.Linear(6, 6)), (6,))


def gates(function: Callable[[Tensor], Tensor]) -> Case:
    return Case(lambda: Tail(lambda self, x: function(self.layers[0](x)), nn.Conv2d(2, 4, 3, padding=1)))


FIXED = torch.linspace(-1, 1, 6, dtype=torch.float64)
MATRIX = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(6, 6)

CASES: dict[str, Case] = {
    "linear, relu": Case(lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES)), (6,)),
    "no biases": Case(
        lambda: nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, CLASSES, bias=False)), (6,)
    ),
    "conv1d": Case(lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(CLASSES)), (2, 7)),
    "conv3d": Case(
        lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(), nn.LazyLinear(CLASSES)),
        (1, 4, 4, 4),
    ),
    "strided, dilated": image(nn.ReLU, first=lambda: nn.Conv2d(2, 4, 3, stride=2, dilation=2, padding=2)),
    "grouped": image(nn.ReLU, first=lambda: nn.Conv2d(2, 4, 3, groups=2, padding="same")),
    "depthwise": image(nn.ReLU, lambda: nn.Conv2d(2, 2, 3, groups=2), first=lambda: nn.Conv2d(2, 2, 1)),
    "circular padding": image(nn.ReLU, first=lambda: nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular")),
    "transposed": image(nn.ReLU, lambda: nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1)),
    "leaky": image(lambda: nn.LeakyReLU(0.2)),
    "leaky in place": image(lambda: nn.LeakyReLU(0.2, inplace=True)),
    "prelu": image(lambda: nn.PReLU(4)),
    "one prelu": image(nn.PReLU),
    "relu6": image(nn.ReLU6),
    "hardtanh": image(lambda: nn.Hardtanh(-0.5, 0.3)),
    "hardtanh in place": image(lambda: nn.Hardtanh(-0.5, 0.3, inplace=True)),
    "threshold": image(lambda: nn.Threshold(0.1, -2.0)),
    "hardshrink": image(lambda: nn.Hardshrink(0.2)),
    "max pool, overlapping and padded": image(lambda: nn.MaxPool2d(3, 2, padding=1)),
    "max pool, ceil": image(lambda: nn.MaxPool2d(4, 3, ceil_mode=True)),
    "max pool, dilated": image(lambda: nn.MaxPool2d(2, 1, dilation=2)),
    "adaptive max pool": image(lambda: nn.AdaptiveMaxPool2d((2, 3))),
    "max pool 1d": Case(
        lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.MaxPool1d(2), nn.Flatten(), nn.LazyLinear(CLASSES)), (2, 7)
    ),
    "average pools": image(nn.ReLU, lambda: nn.AvgPool2d(3, 1, padding=1), lambda: nn.AdaptiveAvgPool2d(3)),
    "interpolation": image(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), nn.ReLU, lambda: nn.Conv2d(4, 1, 3)),
    "nearest": image(lambda: nn.Upsample(scale_factor=2), nn.ReLU, lambda: nn.Conv2d(4, 1, 3)),
    "pixel shuffle": image(lambda: nn.PixelShuffle(2), nn.ReLU, lambda: nn.PixelUnshuffle(3)),
    "channel shuffle": image(lambda: nn.ChannelShuffle(2), nn.ReLU),
    "unfold": image(nn.ReLU, lambda: nn.Unfold(2), nn.ReLU),
    "paddings": image(lambda: nn.ReflectionPad2d(1), lambda: nn.ConstantPad2d(1, 0.5), nn.ReLU),
    "running statistics": image(lambda: nn.BatchNorm2d(4).eval(), nn.ReLU),
    "dropout": image(nn.ReLU, lambda: nn.Dropout(0.4), lambda: nn.Conv2d(4, 2, 3)),
    "dropout in place": image(lambda: nn.Dropout(0.4, inplace=True), nn.ReLU, lambda: nn.Conv2d(4, 2, 3)),
    "dropout of channels": image(nn.ReLU, lambda: nn.Dropout2d(0.4), lambda: nn.Conv2d(4, 2, 3)),
    "dropout, idle": image(nn.ReLU, lambda: nn.Dropout(0.4).eval(), lambda: nn.Conv2d(4, 2, 3)),
    "fixup's scalars": image(Scaled, lambda: nn.Conv2d(4, 2, 3)),
    "residual sum": image(Residual, nn.ReLU, first=lambda: nn.Conv2d(2, 2, 1)),
    "a layer used twice": image(Twice, first=lambda: nn.Conv2d(2, 2, 1)),
    "weight norm": image(nn.ReLU, first=lambda: weight_norm(nn.Conv2d(2, 4, 3))),
    "concatenation": gates(lambda h: torch.cat([h.relu(), -h, torch.ones_like(h)], 1).relu()),
    "stack": gates(lambda h: torch.stack([h[:, 0], h[:, 1].relu()], 1)),
    "slices": gates(lambda h: h[:, :2, ::2] - h[:, 2:, 1::2].relu()),
    "split": gates(lambda h: sum(part.relu() for part in h.split([1, 3], 1)[1].chunk(3, 1))),
    "moves": gates(lambda h: h.permute(0, 2, 3, 1).flip(1).roll(1, 2).transpose(1, 2).reshape(len(h), -1).relu()),
    "abs": gates(torch.abs),
    "maximum": gates(lambda h: torch.maximum(h, 0.5 * h.flip(1)) - torch.minimum(h, h.roll(1, 1))),
    "maxout": gates(lambda h: h.unflatten(1, (2, 2)).max(2).values),
    "max of two": gates(lambda h: torch.max(h, -h) + h.min(h.flip(2))),
    "max of ties": gates(lambda h: torch.maximum(h.relu(), h.flip(1).relu())),
    "amax": gates(lambda h: h.relu().amax((2, 3)) - h.amin(1, keepdim=True).sum((1, 2, 3))[:, None]),
    "max of all": gates(lambda h: h + h.max() - h.min()),
    "sorted": gates(lambda h: h.flatten(1).sort(1).values[:, 3:9] + h.flatten(1).topk(6, 1).values),
    "kth value": gates(lambda h: h.flatten(1).kthvalue(5, 1).values[:, None] * 2),
    "by keyword": gates(
        lambda h: (
            torch.clamp(input=h, min=-0.3, max=0.4)
            + torch.max(input=h, dim=1, keepdim=True).values
            + torch.amax(input=h, dim=1, keepdim=True)
            + torch.maximum(input=h, other=0.5 * h.flip(1))
            + F.prelu(input=h, weight=torch.full((1,), 0.2, dtype=h.dtype))
            + F.relu(input=h)
            + torch.abs(input=h)
        )
    ),
    "clamp": gates(lambda h: h.clamp(-0.3, 0.4) + h.clamp(min=0.1) + h.clamp_max(0.2)),
    "where": gates(lambda h: torch.where(h > 0.1, h, 0.3 * h + 1)),
    "masked fill": gates(lambda h: h.masked_fill(h > 0.5, 0.25)),
    "a mask": gates(lambda h: h * (h > 0.2)),
    "numbers": gates(lambda h: (1 - 2 * h) / 3 + 0.5),
    "mean, sum, cumsum": gates(lambda h: h - h.mean((2, 3), keepdim=True) + h.sum(1, keepdim=True) + h.cumsum(2)),
    "matrices": row(lambda h: (h @ MATRIX).relu() + torch.einsum("bi,ij->bj", h, MATRIX) + F.linear(h, MATRIX, FIXED)),
    "addmm": row(lambda h: torch.addmm(FIXED, h, MATRIX).relu()),
    "division": row(lambda h: (h / (2 + FIXED)).relu()),
    "samples that meet": row(lambda h: h - h.mean(0) + h.max(0).values),
    "branch": row(lambda h: h.relu() if bool(h.sum() > 0) else -h),
    "indices": row(lambda h: h[:, torch.tensor([0, 2, 2, 5])].index_select(1, torch.tensor([1, 0])).relu()),
    "gather": row(lambda h: h.gather(1, h.argsort(1)[:, :3])),
}


def make(name: str, batch: int = 4) -> tuple[nn.Module, Tensor, Tensor]:
    """The network in float64, inputs, and classes."""
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make()
    modes = [module.training for module in model.modules()]
    with torch.no_grad():
        model.double().eval()(torch.randn(2, *case.shape, dtype=torch.float64))
    for module, mode in zip(model.modules(), modes, strict=True):
        module.training = mode
    return model, torch.randn(batch, *case.shape, dtype=torch.float64), torch.arange(batch) % CLASSES
