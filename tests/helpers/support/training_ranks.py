"""A run in float64 that does not depend on how many processes share its batches."""

import os
import signal

import torch
from lightning.fabric.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from axiograd.errors import AxiogradError
from axiograd.priors import Gini, RightReasons
from axiograd.training import AttributionLoss, Recipe, fit
from axiograd.training.fit import launch


def train(out, fabric=None, *, parts=1, prior=True, **where):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(27, 4, dtype=torch.float64, generator=generator)
    y = torch.randint(0, 3, (27,), generator=generator)
    # 27 samples: the last batch of three does not divide among two.
    data = [(x[i], y[i], {"mask": (x[i] > 0).double()}) for i in range(27)]
    loss = AttributionLoss(F.cross_entropy, Gini() + 0.5 * RightReasons(), 0.7, degree=1)
    if not prior:
        data, loss = (x, y), F.cross_entropy
    recipe = Recipe(lr=0.2, epochs=2, batch_size=8, schedule="cosine", accumulate=parts)
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


def shard(model, mesh):
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh["data_parallel"])
    return model


def as_torchrun_does(rank, port):
    """One of two processes, with the environment that torchrun gives them."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    os.environ.update({name: str(value) for name, value in {**ranks, **meeting}.items()})
    torch.set_num_threads(1)


def train_as_torchrun_does(rank, port, folders, sharded, parts):
    as_torchrun_does(rank, port)
    strategy = ModelParallelStrategy(shard, data_parallel_size=2, tensor_parallel_size=1) if sharded else "ddp"
    both = launch("cpu", strategy=strategy)
    for folder in folders:
        result = train(folder, both, parts=parts, prior=not sharded)
        (folder / f"rank-{rank}.txt").write_text(f"{both.world_size} {result.resumed_step} {result.steps}")
    torch.distributed.destroy_process_group()


class Deadly(nn.Module):
    """Kills the second rank in the fourth step."""

    def __init__(self, rank):
        super().__init__()
        self._rank, self._calls = rank, 0

    def forward(self, x):
        self._calls += 1
        if self._rank and self._calls == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return x


def killed_rank(rank, port, folder):
    as_torchrun_does(rank, port)
    both = launch("cpu", strategy="ddp")
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(2))
    model = nn.Sequential(nn.Linear(4, 2), Deadly(rank))
    settings = {"recipe": Recipe(epochs=1, batch_size=8), "checkpoint_steps": 2, "progress": False, "fabric": both}
    try:
        fit(model, (x, (x[:, 0] > 0).long()), loss=F.cross_entropy, out=folder / "run", **settings)
    except AxiogradError as error:
        (folder / "said").write_text(f"{type(error).__name__}: {error}")
