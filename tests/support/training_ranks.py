"""A run in float64 that does not depend on how many processes share its batches; run as a script it has two."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from axiograd.priors import Gini, RightReasons
from axiograd.training import AttributionLoss, Recipe, fit


def train(out, fabric=None, epochs=2, **where):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(27, 4, dtype=torch.float64, generator=generator)
    y = torch.randint(0, 3, (27,), generator=generator)
    data = [(x[i], y[i], {"mask": (x[i] > 0).double()}) for i in range(26)]
    loss = AttributionLoss(F.cross_entropy, Gini() + 0.5 * RightReasons(), 0.7, degree=1)
    recipe = Recipe(lr=0.2, epochs=epochs, batch_size=8, schedule="cosine")
    return fit(
        model,
        data,
        loss=loss,
        validation=(x, y),
        recipe=recipe,
        out=out,
        seed=5,
        checkpoint_steps=5,
        progress=False,
        fabric=fabric,
        **where,
    )


if __name__ == "__main__":
    from axiograd.training.fit import launch

    both = launch("cpu", devices=2, strategy="ddp")
    for folder in sys.argv[1:]:
        result = train(Path(folder), both)
        if both.is_global_zero:
            print(folder, result.resumed_step, result.steps)
