"""SqueezeNet 1.0 and 1.1, regular and X from one definition; state-dict keys are torchvision's."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: (squeeze, expand) of the eight fire modules, the same in both versions.
FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
#: Number of fire modules after which a pooling follows, by version.
POOLS = {"1_0": (3, 7), "1_1": (2, 4)}


class Fire(nn.Module):
    """squeeze 1×1, then expand 1×1 and 3×3 side by side: y = [ReLU(e₁s), ReLU(e₃s)], s = ReLU(squeeze(x)).

    >>> Fire(8, 2, 4)(torch.rand(1, 8, 5, 5)).shape
    torch.Size([1, 8, 5, 5])
    """

    def __init__(self, in_channels: int, squeeze: int, expand: int, *, homogeneous: bool = False) -> None:
        super().__init__()
        bias = not homogeneous
        self.squeeze = nn.Conv2d(in_channels, squeeze, 1, bias=bias)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1, bias=bias)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        squeezed = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.expand1x1(squeezed)), F.relu(self.expand3x3(squeezed))], 1)


class SqueezeNet(nn.Module):
    """SqueezeNet: no padding in the stem, pools 3/2 with ceil, ReLU on the class maps and then their mean.

    `homogeneous=True` leaves every bias out: X-SqueezeNet, F(αx) = αF(x).

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
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        bias = not homogeneous
        channels, kernel = (96, 7) if version == "1_0" else (64, 3)
        layers: list[nn.Module] = [
            nn.Conv2d(in_channels, channels, kernel, stride=2, bias=bias),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
        ]
        for i, (squeeze, expand) in enumerate(FIRES, start=1):
            layers.append(Fire(channels, squeeze, expand, homogeneous=homogeneous))
            channels = 2 * expand
            if i in POOLS[version]:
                layers.append(nn.MaxPool2d(3, stride=2, ceil_mode=True))
        self.features = nn.Sequential(*layers)
        last = nn.Conv2d(channels, num_classes, 1, bias=bias)
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

    def caffe_names(self) -> dict[str, str]:
        """The Caffe layer of each convolution: conv1, fire2_squeeze1x1, fire2_expand1x1 …, conv10.

        >>> SqueezeNet("1_1").caffe_names()["features.3.squeeze"]
        'fire2_squeeze1x1'
        """
        names = {"features.0": "conv1", "classifier.1": "conv10"}
        fires = [i for i, module in enumerate(self.features) if isinstance(module, Fire)]
        for number, i in enumerate(fires, start=2):
            names[f"features.{i}.squeeze"] = f"fire{number}_squeeze1x1"
            names[f"features.{i}.expand1x1"] = f"fire{number}_expand1x1"
            names[f"features.{i}.expand3x3"] = f"fire{number}_expand3x3"
        return names
