"""AlexNet and X-AlexNet from one definition; state-dict keys are torchvision's."""

import torch
from torch import Tensor, nn


class AlexNet(nn.Module):
    """AlexNet in its one-tower form; `homogeneous=True` leaves every bias out: X-AlexNet, F(αx) = αF(x).

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
        width: float = 1.0,
        hidden: int = 4096,
        pool: int = 6,
        small: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        bias = not homogeneous
        a, b, c, d, e = (max(1, round(width * n)) for n in (64, 192, 384, 256, 256))
        kernel, stride, padding = (3, 1, 1) if small else (11, 4, 2)
        window = 2 if small else 3
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, a, kernel, stride, padding, bias=bias),
            nn.ReLU(),
            nn.MaxPool2d(window, stride=2),
            nn.Conv2d(a, b, 5, padding=2, bias=bias),
            nn.ReLU(),
            nn.MaxPool2d(window, stride=2),
            nn.Conv2d(b, c, 3, padding=1, bias=bias),
            nn.ReLU(),
            nn.Conv2d(c, d, 3, padding=1, bias=bias),
            nn.ReLU(),
            nn.Conv2d(d, e, 3, padding=1, bias=bias),
            nn.ReLU(),
            nn.MaxPool2d(window, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(pool)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(e * pool * pool, hidden, bias=bias),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden, bias=bias),
            nn.ReLU(),
            nn.Linear(hidden, num_classes, bias=bias),
        )

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
        return logits
