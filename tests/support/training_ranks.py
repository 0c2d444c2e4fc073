"""A run in float64 that does not depend on how many processes share its batches."""

import os

import torch
from torch import nn
from torch.nn import functional as F

from axiograd.priors import Gini, RightReasons
from axiograd.training import AttributionLoss, Recipe, fit
from axiograd.training.fit import launch


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


def train_as_torchrun_does(rank, port, folders):
    """One of two processes, with the environment that torchrun gives them."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    os.environ.update({name: str(value) for name, value in {**ranks, **meeting}.items()})
    torch.set_num_threads(1)
    both = launch("cpu", strategy="ddp")
    for folder in folders:
        result = train(folder, both)
        (folder / f"rank-{rank}.txt").write_text(f"{both.world_size} {result.resumed_step} {result.steps}")
    torch.distributed.destroy_process_group()
