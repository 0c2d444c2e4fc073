"""Fixup-ResNets for ImageNet and CIFAR, regular and X from one definition; keys are the published ones."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BOTTLENECK = 3

#: Blocks per stage and convolutions per block, by depth.
IMAGENET_DEPTHS = {
    18: ((2, 2, 2, 2), 2),
    34: ((3, 4, 6, 3), 2),
    50: ((3, 4, 6, 3), BOTTLENECK),
    101: ((3, 4, 23, 3), BOTTLENECK),
    152: ((3, 8, 36, 3), BOTTLENECK),
}
CIFAR_DEPTHS = {depth: (((depth - 2) // 6,) * 3, 2) for depth in (20, 32, 44, 56, 110)}


def shift(x: Tensor, bias: Tensor | None) -> Tensor:
    """x + bias, or x where an X-DNN has no bias."""
    return x if bias is None else x + bias


class PadShortcut(nn.AvgPool2d):
    """The shortcut of the CIFAR networks: every second pixel, and zeros for the channels that the block adds.

    >>> PadShortcut(2)(torch.ones(1, 3, 4, 4)).shape
    torch.Size([1, 6, 2, 2])
    """

    def __init__(self, stride: int) -> None:
        super().__init__(1, stride)

    def forward(self, x: Tensor) -> Tensor:
        pooled = super().forward(x)
        return F.pad(pooled, (0, 0, 0, 0, 0, pooled.shape[1]))


class FixupBlock(nn.Module):
    """A residual block of m = 2 or 3 layers: y = ReLU(x + scale·convₘ(… ReLU(conv₁(x + b₁ₐ) + b₁ᵦ) …) + bₘᵦ).

    With `homogeneous=True` scale and the scalar shifts b are absent: y = ReLU(x + convₘ(… ReLU(conv₁(x)) …)).

    >>> block = FixupBlock(4, 4, convolutions=2, homogeneous=True)
    >>> [name for name, _ in block.named_parameters()]
    ['conv1.weight', 'conv2.weight']
    """

    scale: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        convolutions: int,
        stride: int = 1,
        shortcut: nn.Module | None = None,
        homogeneous: bool = False,
    ) -> None:
        super().__init__()
        deep = convolutions == BOTTLENECK
        kernels, strides = ((1, 3, 1), (1, stride, 1)) if deep else ((3, 3), (stride, 1))
        sizes = (in_channels, channels, channels, 4 * channels) if deep else (in_channels, channels, channels)
        for i, (kernel, step, (before, after)) in enumerate(
            zip(kernels, strides, pairwise(sizes), strict=True), start=1
        ):
            self.register_parameter(f"bias{i}a", None if homogeneous else nn.Parameter(torch.zeros(1)))
            self.add_module(f"conv{i}", nn.Conv2d(before, after, kernel, step, padding=kernel // 2, bias=False))
            self.register_parameter(f"bias{i}b", None if homogeneous else nn.Parameter(torch.zeros(1)))
        self.register_parameter("scale", None if homogeneous else nn.Parameter(torch.ones(1)))
        self.convolutions = convolutions
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for i in range(1, self.convolutions + 1):
            before, convolve, after = (getattr(self, name.format(i)) for name in ("bias{}a", "conv{}", "bias{}b"))
            out = convolve(shift(out, before))
            if i < self.convolutions:
                out = F.relu(shift(out, after))
            else:
                out = shift(out if self.scale is None else out * self.scale, after)
        # The published code shifts the shortcut only where it is not the identity.
        shortcut = x if self.downsample is None else self.downsample(shift(x, getattr(self, "bias1a", None)))
        return F.relu(out + shortcut)


class FixupResNet(nn.Module):
    """A residual network without normalisation; `homogeneous=True`: X-Fixup-ResNet, F(αx) = αF(x).

    `small=True` is the CIFAR form: a 3×3 stem of stride 1, 16 to 64 channels, shortcuts without weights.
    `width` scales the number of channels.

    >>> model = FixupResNet.of_depth(20, num_classes=10, homogeneous=True)
    >>> sum(p.numel() for p in model.parameters())
    268336
    """

    bias1: nn.Parameter | None
    bias2: nn.Parameter | None

    def __init__(
        self,
        blocks: Sequence[int],
        convolutions: int,
        num_classes: int,
        in_channels: int = 3,
        *,
        homogeneous: bool = False,
        small: bool = False,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        channels = max(1, round(width * (16 if small else 64)))
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(in_channels, channels, kernel, stride, padding=kernel // 2, bias=False)
        self.register_parameter("bias1", None if homogeneous else nn.Parameter(torch.zeros(1)))
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        expansion = 4 if convolutions == BOTTLENECK else 1
        before = channels
        for i, repeats in enumerate(blocks):
            inner = channels * 2**i
            stage = nn.Sequential()
            for j in range(repeats):
                stride = 2 if i > 0 and j == 0 else 1
                shortcut: nn.Module | None = None
                if stride != 1 or before != inner * expansion:
                    projection = nn.Conv2d(before, inner * expansion, 1, stride, bias=False)
                    shortcut = PadShortcut(stride) if small else projection
                stage.append(
                    FixupBlock(
                        before,
                        inner,
                        convolutions=convolutions,
                        stride=stride,
                        shortcut=shortcut,
                        homogeneous=homogeneous,
                    )
                )
                before = inner * expansion
            self.add_module(f"layer{i + 1}", stage)
        self.stages = len(blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.register_parameter("bias2", None if homogeneous else nn.Parameter(torch.zeros(1)))
        self.fc = nn.Linear(before, num_classes, bias=not homogeneous)
        fixup_(self)

    @classmethod
    def of_depth(
        cls,
        depth: int,
        num_classes: int | None = None,
        in_channels: int = 3,
        *,
        homogeneous: bool = False,
        small: bool | None = None,
        width: float = 1.0,
    ) -> "FixupResNet":
        """The published network of that depth: 18, 34, 50, 101, 152 (ImageNet); 20, 32, 44, 56, 110 (CIFAR).

        >>> FixupResNet.of_depth(18).fc.out_features
        1000
        """
        cifar = depth in CIFAR_DEPTHS
        blocks, convolutions = CIFAR_DEPTHS[depth] if cifar else IMAGENET_DEPTHS[depth]
        classes = num_classes if num_classes is not None else (10 if cifar else 1000)
        is_small = cifar if small is None else small
        return cls(blocks, convolutions, classes, in_channels, homogeneous=homogeneous, small=is_small, width=width)

    def forward(self, x: Tensor) -> Tensor:
        out = self.maxpool(F.relu(shift(self.conv1(x), self.bias1)))
        for i in range(1, self.stages + 1):
            out = getattr(self, f"layer{i}")(out)
        logits: Tensor = self.fc(shift(torch.flatten(self.avgpool(out), 1), self.bias2))
        return logits


@torch.no_grad()
def fixup_(model: FixupResNet) -> None:
    """Fixup: std √(2/fan_out)·L^(−1/(2m−2)) in L branches of m layers, whose last layer is 0; fc is 0.

    >>> model = FixupResNet.of_depth(20)
    >>> model.layer1[0].conv2.weight.count_nonzero()
    tensor(0)
    """
    branches = [module for module in model.modules() if isinstance(module, FixupBlock)]
    for block in branches:
        m = block.convolutions
        for i in range(1, m):
            he_normal_(getattr(block, f"conv{i}"), gain=len(branches) ** (-1 / (2 * m - 2)))
        nn.init.zeros_(getattr(block, f"conv{m}").weight)
        if isinstance(block.downsample, nn.Conv2d):
            he_normal_(block.downsample, gain=1.0)
    nn.init.zeros_(model.fc.weight)
    if model.fc.bias is not None:
        nn.init.zeros_(model.fc.bias)


def he_normal_(conv: nn.Conv2d, gain: float) -> None:
    """Normal weights of std gain·√(2 / (out_channels · kernel area))."""
    area = math.prod(conv.kernel_size)
    nn.init.normal_(conv.weight, 0, gain * math.sqrt(2 / (conv.out_channels * area)))
