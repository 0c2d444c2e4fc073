"""VGG-11, -13, -16, -19 and their X variants from one definition; state-dict keys are torchvision's."""

import torch
from torch import Tensor, nn

#: Convolutions per stage; the stages have 64, 128, 256, 512, 512 channels.
DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Module):
    """VGG without BatchNorm; `homogeneous=True` leaves every bias out: X-VGG, F(αx) = αF(x).

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
        width: float = 1.0,
        hidden: int = 4096,
        pool: int = 7,
        small: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        bias = not homogeneous
        layers: list[nn.Module] = []
        channels = in_channels
        for size, repeats in zip((64, 128, 256, 512, 512), DEPTHS[depth], strict=True):
            for _ in range(repeats):
                wider = max(1, round(width * size))
                layers += [nn.Conv2d(channels, wider, 3, padding=1, bias=bias), nn.ReLU()]
                channels = wider
            layers.append(nn.MaxPool2d(2, stride=2))
        self.features = nn.Sequential(*(layers[:-1] if small else layers))
        self.avgpool = nn.AdaptiveAvgPool2d(pool)
        self.classifier = nn.Sequential(
            nn.Linear(channels * pool * pool, hidden, bias=bias),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden, bias=bias),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes, bias=bias),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
        return logits
