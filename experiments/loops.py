"""What small trainings share: a loop over data that fit in memory, accuracy, and tables over seeds."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from axiograd.datasets import TensorData

#: The loss of a batch, from the tensors of `TensorData.batches`.
BatchLoss = Callable[..., Tensor]


def train(
    data: TensorData,
    loss: BatchLoss,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    batch: int,
    seed: int,
    augment: Callable[..., tuple[Tensor, ...]] | None = None,
    clip: float | None = None,
) -> float:
    """Train with a one-cycle schedule; returns the processor seconds of the fastest epoch (the first also certifies).

    The learning rates of the optimizer are the largest of the cycle; `clip` is the largest norm of a gradient.

    >>> data = TensorData(torch.eye(4), torch.tensor([0, 1, 0, 1]), "four")
    >>> model = nn.Linear(4, 2, bias=False)
    >>> step = lambda x, y: nn.functional.cross_entropy(model(x), y)
    >>> before = step(data.inputs, data.targets)
    >>> _ = train(data, step, torch.optim.Adam(model.parameters(), 0.1), epochs=5, batch=2, seed=0)
    >>> bool(step(data.inputs, data.targets) < before)
    True
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    steps = epochs * -(-len(data) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=steps)
    fastest = float("inf")
    for epoch in range(epochs):
        start = time.process_time()
        for tensors in data.batches(batch, seed=seed * 1000 + epoch):
            value = loss(*(tensors if augment is None else augment(*tensors)))
            optimizer.zero_grad()
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(parameters, clip)
            optimizer.step()
            schedule.step()
        fastest = min(fastest, time.process_time() - start)
    return fastest


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorData, batch: int = 1000) -> float:
    """Per cent correct in eval mode.

    >>> data = TensorData(torch.eye(2), torch.tensor([0, 0]), "two")
    >>> accuracy(nn.Identity(), data)
    50.0
    """
    training = model.training
    model.eval()
    correct = [model(x).argmax(1) == y for x, y, *_ in data.batches(batch)]
    model.train(training)
    return 100 * float(torch.cat(correct).float().mean())


def over_seeds(runs: Iterable[Mapping[str, Any]], by: list[str]) -> pd.DataFrame:
    """Mean of every number over the runs that agree in `by`, its standard deviation in a column "… ±", and their count.

    >>> over_seeds([{"λ": 1, "top-1": 50.0}, {"λ": 1, "top-1": 54.0}], by=["λ"])
       λ  top-1   top-1 ±  seeds
    0  1   52.0  2.828427      2
    """
    groups = pd.DataFrame(list(runs)).groupby(by, sort=False, dropna=False)
    mean, deviation = groups.mean(), groups.std()
    columns = {name: part[column] for column in mean for name, part in ((column, mean), (f"{column} ±", deviation))}
    return pd.DataFrame({**columns, "seeds": groups.size()}).reset_index()


def compared(
    runs: pd.DataFrame, rows: Mapping[str, Sequence[Any]], columns: Mapping[str, str], by: Sequence[str] = ()
) -> pd.DataFrame:
    """A table of trainings with priors: a line for each of `by`, row and λ, with its time in trainings without a prior.

    Runs have a "row", whose training and network are the first entries of `rows`, its λ ("weight"), processor
    "seconds" per epoch, and the columns that are shown. The row of no prior is "none", or "none-x" of an X-DNN.
    """
    seconds = runs.groupby([*by, "row"])["seconds"].median()
    lines = []
    for run in runs.to_dict("records"):
        training, network, *_ = rows[run["row"]]
        place = tuple(run[key] for key in by)
        plain = seconds.loc[(*place, "none" if network == "regular" else "none-x")]
        lines.append(
            {
                **{key: run[key] for key in by},
                "training": training,
                "network": network,
                "λ": f"{run['weight']:g}" if run["weight"] else "",
                **{shown: run[column] for column, shown in columns.items()},
                "time": seconds.loc[(*place, run["row"])] / plain,
            }
        )
    return over_seeds(lines, by=[*by, "training", "network", "λ"]).drop(columns="time ±")
