"""Images in which a corner gives the class away, and a tiny network that has learnt the corner."""

import torch
import torch.nn.functional as F
from torch import nn

from axiograd.datasets import TensorData
from axiograd.studio.network import Origin

SIDE, CORNER = 16, 2


def squares(n: int = 120, seed: int = 0, *, informative: bool = True) -> TensorData:
    """Two classes, upright and level bars, faint; the corner is dark or bright by the class, or by chance."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(n) % 2
    x = 0.3 * torch.rand(n, 1, SIDE, SIDE, generator=generator)
    for row in range(n):
        at = int(torch.randint(6, 10, (), generator=generator))
        if targets[row]:
            x[row, :, at, 5:14] += 0.2
        else:
            x[row, :, 5:14, at] += 0.2
    shade = targets if informative else torch.randint(0, 2, (n,), generator=generator)
    x[:, :, :CORNER, :CORNER] = torch.where(shade.bool(), 0.95, 0.35)[:, None, None, None]
    return TensorData(x, targets, "squares", ("upright", "level"))


class Net(nn.Sequential):
    """Without biases it is an X-DNN as it is."""

    def __init__(self, *, bias: bool = False) -> None:
        super().__init__(
            nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=bias),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * 64, 2, bias=bias),
        )


def learnt() -> Net:
    """It has learnt the corner."""
    torch.manual_seed(0)
    model, data = Net(), squares()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(15):
        optimizer.zero_grad()
        F.cross_entropy(model(data.inputs), data.targets).backward()
        optimizer.step()
    return model.eval()


def origin() -> Origin:
    return Origin(learnt, Net, "from support.studio_model import Net", "Net()", "a tiny network")


def hopeless() -> nn.Module:
    """Gives three dimensions where classes should be."""
    return nn.Conv2d(1, 2, 3)
