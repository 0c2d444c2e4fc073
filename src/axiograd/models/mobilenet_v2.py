"""MobileNetV2 with BatchNorm and ReLU6, a network to convert; state-dict keys are torchvision's."""

import torch  # noqa: F401  (used by the worked examples)
from torch import Tensor, nn

#: Expansion t, output channels c, repeats n, first stride s of each stage.
STAGES = (
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
    """MobileNetV2 at width 1.

    >>> model = MobileNetV2(num_classes=7).eval()
    >>> model(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 7])
    """

    def __init__(self, num_classes: int = 1000, in_channels: int = 3, *, dropout: float = 0.2) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn_relu6(in_channels, 32, 3, 2)]
        before = 32
        for expansion, after, repeats, first_stride in STAGES:
            for i in range(repeats):
                stride = first_stride if i == 0 else 1
                layers.append(InvertedResidual(before, after, expansion=expansion, stride=stride))
                before = after
        layers.append(conv_bn_relu6(before, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits
