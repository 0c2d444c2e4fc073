"""Perceptron and convolutional networks; where there is an X variant, it is the same definition without biases.

State-dict keys of the ImageNet networks are torchvision's.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.layers import affine_layers


class MLP(nn.Sequential):
    """Linear, ReLU, …, Linear with the paper's 118-512-128-32-1 by default.

    `homogeneous=True` has no biases or, with `biases="carried"`, carried ones.

    >>> model = MLP(num_classes=1, in_channels=118, homogeneous=True)
    >>> [tuple(p.shape) for p in model.parameters()]
    [(512, 118), (128, 512), (32, 128), (1, 32)]
    >>> x = torch.randn(2, 118)
    >>> torch.allclose(model(3 * x), 3 * model(x), atol=1e-5)
    True
    """

    def __init__(
        self,
        num_classes: int = 1,
        in_channels: int = 118,
        *,
        homogeneous: bool = False,
        biases: str = "none",
        hidden: Sequence[int] = (512, 128, 32),
        dropout: float = 0.0,
    ) -> None:
        _, linear = affine_layers(homogeneous=homogeneous, biases=biases)
        layers: list[nn.Module] = []
        for before, after in pairwise((in_channels, *hidden, num_classes)):
            if layers:
                layers += [nn.ReLU(), nn.Dropout(dropout)] if dropout else [nn.ReLU()]
            layers.append(linear(before, after))
        super().__init__(*layers)


class _PooledFeatures(nn.Module):
    """classifier(flatten(avgpool(features(x)))), which AlexNet and VGG share."""

    features: nn.Module
    avgpool: nn.Module
    classifier: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
        return logits


class AlexNet(_PooledFeatures):
    """AlexNet in its one-tower form; `homogeneous=True` is X-AlexNet, F(αx) = αF(x), without biases or,
    with `biases="carried"`, with `axiograd.layers`' carried ones.

    `width` scales the number of channels, `hidden` is the width of the classifier, `pool` the side of the map
    that it sees. `small=True` is for inputs of about 28 to 64 pixels: a 3×3 stem of stride 1 and pools of 2.

    >>> model = AlexNet(num_classes=5, homogeneous=True, width=0.25, hidden=32).eval()
    >>> x = torch.rand(2, 3, 64, 64)
    >>> torch.allclose(model(3 * x), 3 * model(x), rtol=1e-4)
    True
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        homogeneous: bool = False,
        biases: str = "none",
        width: float = 1.0,
        hidden: int = 4096,
        pool: int = 6,
        small: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        conv, linear = affine_layers(homogeneous=homogeneous, biases=biases)
        a, b, c, d, e = (max(1, round(width * n)) for n in (64, 192, 384, 256, 256))
        kernel, stride, padding = (3, 1, 1) if small else (11, 4, 2)
        window = 2 if small else 3
        self.features = nn.Sequential(
            conv(in_channels, a, kernel, stride, padding),
            nn.ReLU(),
            nn.MaxPool2d(window, stride=2),
            conv(a, b, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(window, stride=2),
            conv(b, c, 3, padding=1),
            nn.ReLU(),
            conv(c, d, 3, padding=1),
            nn.ReLU(),
            conv(d, e, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(window, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(pool)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            linear(e * pool * pool, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            linear(hidden, hidden),
            nn.ReLU(),
            linear(hidden, num_classes),
        )


#: Convolutions per stage by depth; the stages have 64, 128, 256, 512, 512 channels.
VGG_DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(_PooledFeatures):
    """VGG without BatchNorm; `homogeneous=True` is X-VGG, F(αx) = αF(x), without biases or, with
    `biases="carried"`, with carried ones.

    `width` scales the number of channels, `hidden` is the width of the classifier, `pool` the side of the map
    that it sees; `small=True`, for inputs of about 28 to 64 pixels, leaves out the last max-pooling.

    >>> model = VGG(11, num_classes=5, homogeneous=True, width=0.125, hidden=16, pool=1).eval()
    >>> x = torch.rand(2, 3, 32, 32)
    >>> torch.allclose(model(3 * x), 3 * model(x), rtol=1e-4, atol=1e-6)
    True
    """

    def __init__(
        self,
        depth: int = 16,
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        homogeneous: bool = False,
        biases: str = "none",
        width: float = 1.0,
        hidden: int = 4096,
        pool: int = 7,
        small: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        conv, linear = affine_layers(homogeneous=homogeneous, biases=biases)
        layers: list[nn.Module] = []
        channels = in_channels
        for size, repeats in zip((64, 128, 256, 512, 512), VGG_DEPTHS[depth], strict=True):
            for _ in range(repeats):
                wider = max(1, round(width * size))
                layers += [conv(channels, wider, 3, padding=1), nn.ReLU()]
                channels = wider
            layers.append(nn.MaxPool2d(2, stride=2))
        self.features = nn.Sequential(*(layers[:-1] if small else layers))
        self.avgpool = nn.AdaptiveAvgPool2d(pool)
        self.classifier = nn.Sequential(
            linear(channels * pool * pool, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            linear(hidden, num_classes),
        )
        _initialise(self)


class Fire(nn.Module):
    """squeeze 1×1, then expand 1×1 and 3×3 side by side: y = [ReLU(e₁s), ReLU(e₃s)], s = ReLU(squeeze(x)).

    >>> Fire(8, 2, 4)(torch.rand(1, 8, 5, 5)).shape
    torch.Size([1, 8, 5, 5])
    """

    def __init__(self, in_channels: int, squeeze: int, expand: int, conv: Callable[..., nn.Module] = nn.Conv2d) -> None:
        super().__init__()
        self.squeeze = conv(in_channels, squeeze, 1)
        self.expand1x1 = conv(squeeze, expand, 1)
        self.expand3x3 = conv(squeeze, expand, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        squeezed = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.expand1x1(squeezed)), F.relu(self.expand3x3(squeezed))], 1)


#: (squeeze, expand) of the eight fire modules, the same in both versions.
FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
#: Number of fire modules after which a pooling follows, by version.
POOLS = {"1_0": (3, 7), "1_1": (2, 4)}


class SqueezeNet(nn.Module):
    """SqueezeNet: no padding in the stem, pools 3/2 with ceil, ReLU on the class maps and then their mean.

    `homogeneous=True` is X-SqueezeNet, F(αx) = αF(x), without biases or, with `biases="carried"`, with carried ones.

    >>> model = SqueezeNet("1_1", num_classes=5, homogeneous=True).eval()
    >>> x = torch.rand(2, 3, 63, 63)
    >>> torch.allclose(model(3 * x), 3 * model(x), rtol=1e-4, atol=1e-6)
    True
    """

    def __init__(
        self,
        version: str = "1_1",
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        homogeneous: bool = False,
        biases: str = "none",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        conv, _ = affine_layers(homogeneous=homogeneous, biases=biases)
        channels, kernel = (96, 7) if version == "1_0" else (64, 3)
        layers: list[nn.Module] = [
            conv(in_channels, channels, kernel, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
        ]
        for i, (squeeze, expand) in enumerate(FIRES, start=1):
            layers.append(Fire(channels, squeeze, expand, conv))
            channels = 2 * expand
            if i in POOLS[version]:
                layers.append(nn.MaxPool2d(3, stride=2, ceil_mode=True))
        self.features = nn.Sequential(*layers)
        last = conv(channels, num_classes, 1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last, nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                if module is last:
                    nn.init.normal_(module.weight, 0, 0.01)
                else:
                    nn.init.kaiming_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.flatten(self.classifier(self.features(x)), 1)

    def from_caffe(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state dict with Caffe's layer names (conv1, fire2_squeeze1x1, …, conv10) under this network's keys.

        >>> list(SqueezeNet("1_1").from_caffe({"fire2_squeeze1x1_w": torch.zeros(16, 64, 1, 1)}))
        ['features.3.squeeze.weight']
        """
        layers = {"conv1": "features.0", "conv10": "classifier.1"}
        fires = [i for i, module in enumerate(self.features) if isinstance(module, Fire)]
        for number, i in enumerate(fires, start=2):
            layers[f"fire{number}_squeeze1x1"] = f"features.{i}.squeeze"
            layers[f"fire{number}_expand1x1"] = f"features.{i}.expand1x1"
            layers[f"fire{number}_expand3x3"] = f"features.{i}.expand3x3"
        own = {f"{caffe}_w": f"{layer}.weight" for caffe, layer in layers.items()}
        own |= {f"{caffe}_b": f"{layer}.bias" for caffe, layer in layers.items()}
        return {own.get(key, key): value for key, value in state.items()}


#: Expansion t, output channels c, repeats n, first stride s of each stage of MobileNetV2.
MOBILE_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def conv_bn_relu6(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU6."""
    conv = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU6())


class InvertedResidual(nn.Module):
    """Expand 1×1, filter each channel 3×3, project 1×1; a shortcut where the shape allows.

    >>> InvertedResidual(8, 8, expansion=6, stride=1)(torch.rand(2, 8, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    """

    def __init__(self, before: int, after: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        wide = before * expansion
        layers = [conv_bn_relu6(before, wide, 1)] if expansion != 1 else []
        self.conv = nn.Sequential(
            *layers,
            conv_bn_relu6(wide, wide, 3, stride, groups=wide),
            nn.Conv2d(wide, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.shortcut else out


class MobileNetV2(nn.Module):
    """MobileNetV2 at width 1, with BatchNorm and ReLU6.

    >>> model = MobileNetV2(num_classes=7).eval()
    >>> model(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 7])
    """

    def __init__(self, num_classes: int = 1000, in_channels: int = 3, *, dropout: float = 0.2) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn_relu6(in_channels, 32, 3, 2)]
        before = 32
        for expansion, after, repeats, first_stride in MOBILE_STAGES:
            for i in range(repeats):
                stride = first_stride if i == 0 else 1
                layers.append(InvertedResidual(before, after, expansion=expansion, stride=stride))
                before = after
        layers.append(conv_bn_relu6(before, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, num_classes))
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


def _initialise(model: nn.Module) -> None:
    """He's normal weights in convolutions, small ones in linear layers, no biases: as torchvision does it."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


class ScaleNorm2d(nn.Module):
    """BatchNorm without mean and shift: y = γ·x / (σ + ε), with the running σ in evaluation mode.

    In evaluation mode it is linear, so it keeps the degree; in training mode it divides by the batch's own σ.

    >>> norm = ScaleNorm2d(4).eval()
    >>> x = torch.randn(2, 4, 3, 3)
    >>> torch.allclose(norm(2 * x), 2 * norm(x))
    True
    """

    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.eps, self.momentum = eps, momentum
        self.register_load_state_dict_pre_hook(_drop_zero_shifts)  # type: ignore[no-untyped-call]  # torch has no types here

    def forward(self, x: Tensor) -> Tensor:
        variance = self.running_var
        if self.training:
            variance = x.var(dim=(0, 2, 3), correction=0)
            self.running_var.lerp_(variance.detach(), self.momentum)
        return x * (self.weight / (variance.sqrt() + self.eps))[:, None, None]


def _drop_zero_shifts(_module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Accept BatchNorm's keys where mean and shift are zero; other values stay and are reported."""
    state.pop(f"{prefix}num_batches_tracked", None)
    for name in ("bias", "running_mean"):
        value = state.get(f"{prefix}{name}")
        if value is not None and not torch.count_nonzero(value):
            del state[f"{prefix}{name}"]


class DnCNN(nn.Module):
    """A denoiser that predicts the noise: f(x) = x − net(x); `homogeneous=True` gives f(αx) = αf(x).

    >>> model = DnCNN(in_channels=1, homogeneous=True, depth=4, width=8).eval()
    >>> x = torch.rand(1, 1, 12, 12)
    >>> torch.allclose(model(0.5 * x), 0.5 * model(x), atol=1e-6)
    True
    """

    def __init__(self, in_channels: int = 1, *, homogeneous: bool = False, depth: int = 20, width: int = 64) -> None:
        super().__init__()
        bias = not homogeneous
        norm = ScaleNorm2d if homogeneous else nn.BatchNorm2d
        self.first_layer = nn.Conv2d(in_channels, width, 3, padding=1, bias=bias)
        # BatchNorm subtracts what a bias here would add, so the hidden convolutions have none in either form.
        hidden = [nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(depth - 2)]
        self.hidden_layer_list = nn.ModuleList(hidden)
        self.bn_layer_list = nn.ModuleList(norm(width) for _ in hidden)
        self.last_layer = nn.Conv2d(width, in_channels, 3, padding=1, bias=bias)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.first_layer(x))
        for convolve, norm in zip(self.hidden_layer_list, self.bn_layer_list, strict=True):
            out = F.relu(norm(convolve(out)))
        noise: Tensor = self.last_layer(out)
        return x - noise
