"""Residual networks: Fixup-ResNets, regular and X from one definition, and ResNets with BatchNorm, to be converted.

State-dict keys are the published ones and torchvision's.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.layers import affine_layers, carry

BOTTLENECK = 3
EXPANSION = 4

#: Blocks per stage and convolutions per block, by depth.
IMAGENET_DEPTHS = {
    18: ((2, 2, 2, 2), 2),
    34: ((3, 4, 6, 3), 2),
    50: ((3, 4, 6, 3), BOTTLENECK),
    101: ((3, 4, 23, 3), BOTTLENECK),
    152: ((3, 8, 36, 3), BOTTLENECK),
}
CIFAR_DEPTHS = {depth: (((depth - 2) // 6,) * 3, 2) for depth in (20, 32, 44, 56, 110)}


def block_convolutions(
    before: int, width: int, count: int, stride: int, *, first: bool = False, bias: bool = False
) -> list[nn.Conv2d]:
    """Two convolutions of 3×3, or, as a bottleneck, 1×1, 3×3 and 1×1 with four times as many channels in the end.

    The stride is that of the first 3×3, or, with `first`, that of the first convolution.
    """
    kernels, sizes = [3, 3], [before, width, width]
    if count == BOTTLENECK:
        kernels, sizes = [1, 3, 1], [before, width, width, EXPANSION * width]
    strided = 0 if first else kernels.index(3)
    return [
        nn.Conv2d(sizes[i], sizes[i + 1], kernel, stride if i == strided else 1, padding=kernel // 2, bias=bias)
        for i, kernel in enumerate(kernels)
    ]


def add_stages(
    model: nn.Module, channels: int, blocks: Sequence[int], count: int, block: Callable[..., nn.Module]
) -> int:
    """Add layer1, layer2, …, each of twice as many channels and half the resolution; how many channels come out."""
    before = channels
    for i, repeats in enumerate(blocks):
        stage = nn.Sequential()
        for j in range(repeats):
            stage.append(block(before, channels * 2**i, count, 2 if i and not j else 1))
            before = channels * 2**i * (EXPANSION if count == BOTTLENECK else 1)
        model.add_module(f"layer{i + 1}", stage)
    return before


def run_stages(model: nn.Module, x: Tensor) -> Tensor:
    """The output of the last of `layer1`, `layer2`, …"""
    for name, stage in model.named_children():
        if name.startswith("layer"):
            x = stage(x)
    return x


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

    With `homogeneous=True` scale and the scalar shifts b are absent: y = ReLU(x + convₘ(… ReLU(conv₁(x)) …)); with
    `biases="carried"` too, they are there, and a shift of x is b·mean |x|.

    >>> block = FixupBlock(4, 4, 2, homogeneous=True)
    >>> [name for name, _ in block.named_parameters()]
    ['conv1.weight', 'conv2.weight']
    """

    scale: nn.Parameter | None

    def __init__(
        self,
        before: int,
        width: int,
        convolutions: int,
        stride: int = 1,
        *,
        homogeneous: bool = False,
        biases: str = "none",
        small: bool = False,
    ) -> None:
        super().__init__()
        self.shift = carry if biases == "carried" else shift
        strict = homogeneous and biases == "none"
        layers = block_convolutions(before, width, convolutions, stride)
        for i, convolve in enumerate(layers, start=1):
            self.register_parameter(f"bias{i}a", None if strict else nn.Parameter(torch.zeros(1)))
            self.add_module(f"conv{i}", convolve)
            self.register_parameter(f"bias{i}b", None if strict else nn.Parameter(torch.zeros(1)))
        self.register_parameter("scale", None if strict else nn.Parameter(torch.ones(1)))
        self.convolutions = convolutions
        after = layers[-1].out_channels
        self.downsample: nn.Module | None = None
        if stride != 1 or before != after:
            self.downsample = PadShortcut(stride) if small else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for i in range(1, self.convolutions + 1):
            before, convolve, after = (getattr(self, name.format(i)) for name in ("bias{}a", "conv{}", "bias{}b"))
            out = convolve(self.shift(out, before))
            if i < self.convolutions:
                out = F.relu(self.shift(out, after))
            else:
                out = self.shift(out if self.scale is None else out * self.scale, after)
        # The published code shifts the shortcut only where it is not the identity.
        shortcut = x if self.downsample is None else self.downsample(self.shift(x, getattr(self, "bias1a", None)))
        return F.relu(out + shortcut)


class FixupResNet(nn.Module):
    """A residual network without normalisation; `homogeneous=True`: X-Fixup-ResNet, F(αx) = αF(x).

    It has no shifts and scales then, as in the paper, or, with `biases="carried"`, shifts that the signal carries.

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
        biases: str = "none",
        small: bool = False,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        _, linear = affine_layers(homogeneous=homogeneous, biases=biases)
        self.shift = carry if biases == "carried" else shift
        strict = homogeneous and biases == "none"
        channels = max(1, round(width * (16 if small else 64)))
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(in_channels, channels, kernel, stride, padding=kernel // 2, bias=False)
        self.register_parameter("bias1", None if strict else nn.Parameter(torch.zeros(1)))
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        block = partial(FixupBlock, homogeneous=homogeneous, biases=biases, small=small)
        after = add_stages(self, channels, blocks, convolutions, block)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.register_parameter("bias2", None if strict else nn.Parameter(torch.zeros(1)))
        self.fc = linear(after, num_classes)
        fixup_(self)

    @classmethod
    def of_depth(
        cls,
        depth: int,
        num_classes: int | None = None,
        in_channels: int = 3,
        *,
        homogeneous: bool = False,
        biases: str = "none",
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
        return cls(
            blocks,
            convolutions,
            classes,
            in_channels,
            homogeneous=homogeneous,
            biases=biases,
            small=is_small,
            width=width,
        )

    def forward(self, x: Tensor) -> Tensor:
        out = run_stages(self, self.maxpool(F.relu(self.shift(self.conv1(x), self.bias1))))
        logits: Tensor = self.fc(self.shift(torch.flatten(self.avgpool(out), 1), self.bias2))
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
            he_normal_(getattr(block, f"conv{i}")).mul_(len(branches) ** (-1 / (2 * m - 2)))
        nn.init.zeros_(getattr(block, f"conv{m}").weight)
        if isinstance(block.downsample, nn.Conv2d):
            he_normal_(block.downsample)
    for parameter in model.fc.parameters():
        nn.init.zeros_(parameter)


def he_normal_(conv: nn.Conv2d) -> Tensor:
    """Normal weights of std √(2 / (out_channels · kernel area))."""
    return nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")


class Residual(nn.Module):
    """y = ReLU(x + bnₘ(convₘ(… ReLU(bn₁(conv₁(x)))))), with a projected shortcut where the shape changes.

    >>> Residual(4, 2, 3, stride=2)(torch.rand(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(
        self,
        before: int,
        width: int,
        convolutions: int,
        stride: int = 1,
        *,
        first: bool = False,
        bias: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.convolutions = convolutions
        layers = block_convolutions(before, width, convolutions, stride, first=first, bias=bias)
        for i, convolve in enumerate(layers, start=1):
            self.add_module(f"conv{i}", convolve)
            self.add_module(f"bn{i}", nn.BatchNorm2d(convolve.out_channels, eps))
        after = layers[-1].out_channels
        self.downsample: nn.Module | None = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=bias), nn.BatchNorm2d(after, eps))

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for i in range(1, self.convolutions + 1):
            out = F.relu(out) if i > 1 else out
            out = self.get_submodule(f"bn{i}")(self.get_submodule(f"conv{i}")(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """A ResNet with BatchNorm; `kernel` and `stride` belong to its first convolution, `pool=False` leaves the pool out.

    A bottleneck's stride is in its 3×3 (version 1.5, as torchvision has it), or, with `first`, in its first 1×1
    (version 1).

    >>> ResNet(18, num_classes=7, width=8)(torch.rand(2, 3, 64, 64)).shape
    torch.Size([2, 7])
    """

    def __init__(
        self,
        depth: int,
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        width: int = 64,
        kernel: int = 7,
        stride: int = 2,
        pool: bool = True,
        first: bool = False,
        bias: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        blocks, convolutions = IMAGENET_DEPTHS[depth]
        self.conv1 = nn.Conv2d(in_channels, width, kernel, stride, padding=kernel // 2, bias=bias)
        self.bn1 = nn.BatchNorm2d(width, eps)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if pool else nn.Identity()
        block = partial(Residual, first=first, bias=bias, eps=eps)
        after = add_stages(self, width, blocks, convolutions, block)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(after, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                he_normal_(module)

    def forward(self, x: Tensor) -> Tensor:
        out = run_stages(self, self.maxpool(F.relu(self.bn1(self.conv1(x)))))
        logits: Tensor = self.fc(torch.flatten(self.avgpool(out), 1))
        return logits


ResNet18 = partial(ResNet, 18)
ResNet50 = partial(ResNet, 50)
