"""ResNet-18 and ResNet-50 with BatchNorm, as pretrained networks to convert; state-dict keys are torchvision's."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """y = ReLU(x + bn₂(conv₂(ReLU(bn₁(conv₁(x)))))), with a projected shortcut where the shape changes.

    >>> BasicBlock(4, 8, stride=2)(torch.rand(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample: nn.Module | None = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """ResNet-18; `kernel` and `stride` belong to the first convolution, `pool=False` leaves out the pooling.

    >>> model = ResNet18(num_classes=7, width=8)
    >>> model(torch.rand(2, 3, 64, 64)).shape
    torch.Size([2, 7])
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        width: int = 64,
        kernel: int = 7,
        stride: int = 2,
        pool: bool = True,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if pool else nn.Identity()
        self.layer1 = nn.Sequential(BasicBlock(width, width), BasicBlock(width, width))
        self.layer2 = nn.Sequential(BasicBlock(width, 2 * width, 2), BasicBlock(2 * width, 2 * width))
        self.layer3 = nn.Sequential(BasicBlock(2 * width, 4 * width, 2), BasicBlock(4 * width, 4 * width))
        self.layer4 = nn.Sequential(BasicBlock(4 * width, 8 * width, 2), BasicBlock(8 * width, 8 * width))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        out = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        out = self.layer4(self.layer3(self.layer2(self.layer1(out))))
        logits: Tensor = self.fc(torch.flatten(self.avgpool(out), 1))
        return logits


class Bottleneck(nn.Module):
    """y = ReLU(x + 1×1(ReLU(3×3(ReLU(1×1(x)))))), each with its norm; `first` puts the stride into the first 1×1.

    >>> Bottleneck(4, 2, stride=2)(torch.rand(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(
        self, before: int, width: int, stride: int = 1, *, first: bool = False, bias: bool = False, eps: float = 1e-5
    ) -> None:
        super().__init__()
        after = 4 * width
        self.conv1 = nn.Conv2d(before, width, 1, stride if first else 1, bias=bias)
        self.bn1 = nn.BatchNorm2d(width, eps)
        self.conv2 = nn.Conv2d(width, width, 3, 1 if first else stride, padding=1, bias=bias)
        self.bn2 = nn.BatchNorm2d(width, eps)
        self.conv3 = nn.Conv2d(width, after, 1, bias=bias)
        self.bn3 = nn.BatchNorm2d(after, eps)
        self.downsample: nn.Module | None = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=bias), nn.BatchNorm2d(after, eps))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        out = self.bn3(self.conv3(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    """ResNet-50; version 1, with the stride in a block's first convolution, or torchvision's 1.5 (`first=False`).

    >>> ResNet50(num_classes=7, width=4)(torch.rand(2, 3, 64, 64)).shape
    torch.Size([2, 7])
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        width: int = 64,
        first: bool = False,
        bias: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 7, 2, padding=3, bias=bias)
        self.bn1 = nn.BatchNorm2d(width, eps)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        before = width
        for number, count in enumerate((3, 4, 6, 3)):
            narrow, blocks = width * 2**number, []
            for i in range(count):
                stride = 2 if i == 0 and number else 1
                blocks.append(Bottleneck(before, narrow, stride, first=first, bias=bias, eps=eps))
                before = 4 * narrow
            self.add_module(f"layer{number + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(before, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        out = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for number in range(1, 5):
            out = self.get_submodule(f"layer{number}")(out)
        logits: Tensor = self.fc(torch.flatten(self.avgpool(out), 1))
        return logits
