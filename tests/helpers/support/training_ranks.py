"""A run in float64 that does not depend on how many processes share its batches."""

import os

import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.nn import functional as F

from axiograd.errors import AxiogradError
from axiograd.priors import Gini, RightReasons
from axiograd.training import AttributionLoss, Recipe, fit


def train(out, epochs=2, **where):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    generator = torch.Generator().manual_seed(2)
    # 28 samples in batches of 8: the last has four.
    x = torch.randn(28, 4, dtype=torch.float64, generator=generator)
    y = torch.randint(0, 3, (28,), generator=generator)
    data = [(x[i], y[i], {"mask": (x[i] > 0).double()}) for i in range(28)]
    # 27 to validate with, which do not divide among two.
    recipe = Recipe(lr=0.2, epochs=epochs, batch_size=8, schedule="constant")
    loss = AttributionLoss(F.cross_entropy, Gini() + 0.5 * RightReasons(), 0.7, degree=1)
    return fit(
        model,
        data,
        loss,
        validation=(x[:27], y[:27]),
        recipe=recipe,
        out=out,
        seed=5,
        progress=False,
        accelerator="cpu",
        **where,
    )


def as_torchrun_does(rank, port):
    """One of two processes, with the environment that torchrun gives them."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    os.environ.update({name: str(value) for name, value in {**ranks, **meeting}.items()})
    torch.set_num_threads(1)


def train_as_torchrun_does(rank, port, folder):
    as_torchrun_does(rank, port)
    train(folder / "two", strategy="ddp")
    train(folder / "resumed", epochs=1, strategy="ddp")
    result = train(folder / "resumed", strategy="ddp")
    said = [f"{result.resumed_step} {result.steps}"]
    try:
        train(None, strategy=DDPStrategy(static_graph=True))
    except AxiogradError as error:
        said.append(str(error))
    (folder / f"rank-{rank}.txt").write_text("\n".join(said))
    torch.distributed.destroy_process_group()
