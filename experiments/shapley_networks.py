"""Tables, and many small networks trained on each at once, with and without `priors.Shapley`.

Networks of inputs-64-64-1, regular or without biases, learn the log-odds of a class or a number, counted from that of
the training rows: their score F is 0 at the mean row, if they have no biases.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer, load_diabetes
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from axiograd.datasets import Schema, nhanes
from axiograd.models import MLP
from axiograd.priors.shapley import draw_subset, subset_gap
from experiments import lab

SEEDS = (0, 1, 2)
EVERY, BATCH, LEARNING_RATE = 25, 128, 2e-3
#: The label and the columns that are left out, in tables which the package ISLP ships.
ISLP = {
    "Bikeshare": ("bikers", ("casual", "registered", "day")),
    "OJ": ("Purchase", ()),
    "Caravan": ("Purchase", ()),
    "College": ("Grad.Rate", ()),
    "Wage": ("wage", ("logwage",)),
}
TABLES = ("NHANES I", "Diabetes", "Breast cancer", *ISLP)


@dataclass(frozen=True)
class Table:
    """Rows as they are and as a network takes them; a target is 0 or 1, or a number of mean 0 and deviation 1."""

    frame: pd.DataFrame
    schema: Schema
    inputs: Tensor
    targets: Tensor

    def split(self, seed: int) -> Sequence[Tensor]:
        """Rows to train, validate and test on."""
        n = len(self.inputs)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        return order.split([n - 2 * (n // 5), n // 5, n // 5])

    def offset(self, seed: int) -> Tensor:
        """What the score is counted from."""
        mean = self.targets[self.split(seed)[0]].mean()
        return mean.logit() if self.schema.classes else mean


@cache
def load(name: str) -> Table:
    """A table by its name; columns are standardised by all of its rows."""
    label, drop = ISLP.get(name, ("target", ()))
    if name == "NHANES I":
        data = nhanes(source="reconstructed")
        frame = pd.DataFrame(data.inputs.numpy(), columns=list(data.names)).assign(target=data.targets.int().numpy())
    elif name in ISLP:
        found = find_spec("ISLP")
        if found is None:
            raise ModuleNotFoundError("the table is in the package ISLP: pip install --no-deps ISLP.")
        frame = pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / f"{name}.csv")
    else:
        frame = {"Breast cancer": load_breast_cancer, "Diabetes": load_diabetes}[name](as_frame=True).frame
    categories = [column for column in ("hr", "weekday", "season", "StoreID", "STORE") if column in frame]
    schema = Schema.fit(frame, label=label, drop=drop, missing="mean", categories=categories)
    targets = schema.targets(frame).flatten().float()
    if not schema.classes:
        targets = (targets - targets.mean()) / targets.std()
    return Table(frame, schema, schema.encode(frame), targets)


@lab.remember
def train(name: str, *, homogeneous: bool, weights: Sequence[float], steps: int) -> list[nn.Module]:
    """For each λ and seed a network, at the step with the lowest validation loss."""
    table, seeds = load(name), SEEDS * len(weights)
    networks = [network(table.inputs.shape[1], seed, homogeneous=homogeneous) for seed in seeds]
    lambdas = torch.tensor(weights).repeat_interleave(len(SEEDS))
    offsets = torch.stack([table.offset(seed) for seed in seeds])
    training, held, _ = (torch.stack(rows) for rows in zip(*(table.split(seed) for seed in seeds), strict=True))
    parameters = {key: value.detach() for key, value in stack_module_state(networks)[0].items()}
    task, total = objectives(networks[0], F.binary_cross_entropy_with_logits if table.schema.classes else F.mse_loss)
    gradients, validate = vmap(grad(total if homogeneous else task)), vmap(task)
    # Adam works element by element, so on stacked parameters it is Adam on each network.
    optimizer = torch.optim.Adam(parameters.values(), lr=LEARNING_RATE)
    best, lowest = {key: value.clone() for key, value in parameters.items()}, torch.full((len(seeds),), torch.inf)
    torch.manual_seed(0)
    for step in range(1, steps + 1):
        rows = training.gather(1, torch.randint(training.shape[1], (len(SEEDS), BATCH)).repeat(len(weights), 1))
        x, y = table.inputs[rows], table.targets[rows]
        more = (lambdas, draw_subset(x.flatten(0, 1)).view_as(x)) if homogeneous else ()
        for key, found in gradients(parameters, offsets, x, y, *more).items():
            parameters[key].grad = found
        optimizer.step()
        if step % EVERY == 0:
            loss = validate(parameters, offsets, table.inputs[held], table.targets[held])
            better, lowest = loss < lowest, loss.minimum(lowest)
            for key, value in parameters.items():
                best[key][better] = value[better]
    for i, each in enumerate(networks):
        each.load_state_dict({key: value[i] for key, value in best.items()})
    return [each.double().eval() for each in networks]


def network(inputs: int, seed: int, *, homogeneous: bool) -> MLP:
    """A new network, the same for the same seed."""
    torch.manual_seed(seed)
    return MLP(1, inputs, homogeneous=homogeneous, hidden=(64, 64))


def objectives(like: nn.Module, loss: Callable[..., Tensor]) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The task's loss, and with λ times the prior, of a network with these parameters."""

    def task(parameters: dict[str, Tensor], offset: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(like, parameters, (x,))[:, 0] + offset, y)

    def total(
        parameters: dict[str, Tensor], offset: Tensor, x: Tensor, y: Tensor, weight: Tensor, subset: Tensor
    ) -> Tensor:
        def score(rows: Tensor) -> Tensor:
            return functional_call(like, parameters, (rows,))[:, 0]

        attributions = x * grad(lambda rows: score(rows).sum())(x)  # X-Gradient
        return task(parameters, offset, x, y) + weight * subset_gap(attributions, x, score, subset).square().mean()

    return task, total
