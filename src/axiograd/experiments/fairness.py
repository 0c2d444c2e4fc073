"""A prior against a protected attribute: what a network gains and loses when sex must not count, on a health survey.

Who of the subjects of NHANES I was alive fifteen years later? Men die earlier, and a network sees sex as a column and
in others that go with it (haemoglobin, uric acid). Compared are no prior, a prior of three strengths on the column, a
prior on the column and its proxies, and networks that are not given these columns at all.

A subject is flagged whose predicted survival is among the lowest; as many are flagged as have died. With A the sexes,

    disparity = P(flagged | man) − P(flagged | woman),
    of those who died = P(flagged | man, died) − P(flagged | woman, died)      (equal opportunity asks for 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.attribution import InputXGradient, XGradient
from axiograd.datasets import TensorData
from axiograd.errors import DataMissingError
from axiograd.experiments.item import Cell, Item, Plan, Scale, Setting, Table, Work
from axiograd.experiments.nhanes.data import Scaling, load
from axiograd.experiments.nhanes.training import roc_auc
from axiograd.experiments.records import Records, mean_and_std
from axiograd.models import MLP
from axiograd.priors import RightReasons
from axiograd.training.loss import AttributionLoss

#: A column goes with the protected one from this correlation on, in the training rows.
PROXY = 0.2
LEARNING_RATE, BATCH, HIDDEN = 2e-3, 256, (64, 32)


@dataclass(frozen=True)
class FairnessSize:
    """Rows to train on, how often, and how many splits and networks."""

    train: int = 6000
    epochs: int = 8
    seeds: int = 10


SIZES = {"real": FairnessSize(), "quick": FairnessSize(train=1000, epochs=4, seeds=2)}
Columns = Literal["none", "sex", "sex and proxies"]


@dataclass(frozen=True)
class Treatment:
    """A row of the table: which columns must not count, and how that is brought about."""

    label: str
    columns: Columns = "none"
    #: λ of the prior; None takes the columns out.
    weight: float | None = 0.0
    homogeneous: bool = True


WAYS = {
    "regular": Treatment("no prior, regular network", homogeneous=False),
    "x": Treatment("no prior"),
    "sex-0.1": Treatment("prior on sex, λ = 0.1", "sex", 0.1),
    "sex-1": Treatment("prior on sex, λ = 1", "sex", 1.0),
    "sex-10": Treatment("prior on sex, λ = 10", "sex", 10.0),
    "without-sex": Treatment("without the column sex", "sex", None),
    "proxies-1": Treatment("prior on sex and proxies, λ = 1", "sex and proxies", 1.0),
    "proxies-10": Treatment("prior on sex and proxies, λ = 10", "sex and proxies", 10.0),
    "without-proxies": Treatment("without sex and proxies", "sex and proxies", None),
}


@cache
def table_of(scale: Scale) -> tuple[TensorData, int]:
    """The data, and the place of the protected column: sex, or a column that says yes or no in the procedural table."""
    data = load(scale)
    if scale == "quick":
        return data, len(data.names) - 1
    found = [place for place, name in enumerate(data.names) if name.lower().startswith("sex")]
    if not found:
        raise DataMissingError(f"{data.name} has no column for sex; its columns are {', '.join(data.names[:5])}, ….")
    return data, found[0]


def proxies(x: Tensor, protected: int, least: float = PROXY) -> Tensor:
    """Which columns go with the protected one, and that one itself; x on a scale of mean 0 and deviation 1.

    >>> sex = torch.tensor([1.0, -1.0, 1.0, -1.0])
    >>> proxies(torch.stack([sex, torch.tensor([1.0, -1.0, 1.0, 0.9]), torch.tensor([1.0, 1.0, -1.0, -1.0])], 1), 0)
    tensor([ True,  True, False])
    """
    return (x * x[:, protected : protected + 1]).mean(0).abs() > least


def fitted(way: Treatment, x: Tensor, targets: Tensor, wrong: Tensor, *, epochs: int, seed: int) -> nn.Module:
    """A small network, with Adam; the prior is the squared attribution of what must not count."""
    torch.manual_seed(seed)
    model = MLP(1, x.shape[1], homogeneous=way.homogeneous, hidden=HIDDEN)
    loss = AttributionLoss(task, RightReasons(), way.weight or 0.0, XGradient, outputs=None, degree=1.0)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(BATCH):
            optimizer.zero_grad()
            if way.weight:
                total = loss(model, x[rows], targets[rows], mask=wrong.expand(len(rows), -1)).total
            else:
                total = task(model(x[rows]), targets[rows])
            total.backward()
            optimizer.step()
    return model.eval()


def task(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy on the logit."""
    return F.binary_cross_entropy_with_logits(outputs.squeeze(1), targets)


def disparities(scores: Tensor, died: Tensor, man: Tensor) -> dict[str, float]:
    """Gaps between men and women in points, and between the true rates, for flags on the lowest scores.

    >>> died, man = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
    >>> disparities(torch.tensor([0.1, 0.2, 0.3, 0.4]), died, man)
    {'disparity': 100.0, 'opportunity': 100.0, 'truth': 0.0}
    """
    flagged = scores.argsort().argsort() < int(died.sum())

    def gap(what: Tensor, among: Tensor) -> float:
        return 100 * float(what[among & man].double().mean() - what[among & ~man].double().mean())

    everybody = torch.ones_like(man)
    return {"disparity": gap(flagged, everybody), "opportunity": gap(flagged, died), "truth": gap(died, everybody)}


def measured(scale: Scale, size: FairnessSize, name: str, seed: int) -> dict[str, Any]:
    """Train on some subjects, and judge on all others; shares in per cent."""
    way = WAYS[name]
    data, protected = table_of(scale)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    train, test = order[: size.train], order[size.train :]
    scaling = Scaling.fit(data.inputs[train])
    x, x_test = (scaling.apply(data.inputs[rows]).float() for rows in (train, test))
    targets, died = data.targets[train].float(), data.targets[test] == 0
    man = x_test[:, protected] < 0
    wrong = proxies(x, protected) if way.columns == "sex and proxies" else torch.zeros(x.shape[1], dtype=torch.bool)
    wrong[protected] = way.columns != "none"
    kept = ~wrong if way.weight is None else torch.ones_like(wrong)
    model = fitted(way, x[:, kept], targets, wrong[kept], epochs=size.epochs, seed=seed)
    with torch.no_grad():
        scores = model(x_test[:, kept]).squeeze(1)
    method = XGradient(model, degree=1.0) if way.homogeneous else InputXGradient(model)
    shares = torch.zeros(x.shape[1], dtype=torch.float64)
    mass = method.attribute(x_test[:, kept], target=0).abs().double()
    shares[kept] = (mass / mass.sum(1, keepdim=True).clamp(min=1e-30)).mean(0)
    return {
        "auc": float(roc_auc(scores[None], (~died).float()[None])[0]),
        **disparities(scores, died, man),
        "sex_share": 100 * float(shares[protected]),
        "wrong_columns": int(wrong.sum()),
    }


def plan(setting: Setting) -> Plan:
    """Every way on every split."""
    size = SIZES["quick" if setting.scale == "quick" else "real"]
    first = setting.seed * 1000

    work = [
        Work({"way": name, "seed": seed}, partial(measured, setting.scale, size, name, seed))
        for seed in range(first, first + size.seeds)
        for name in WAYS
    ]
    data, protected = table_of(setting.scale)
    settings = {"n_train": size.train, "epochs": size.epochs, "batch": BATCH, "lr": LEARNING_RATE}
    return Plan.of(data.name, {**settings, "protected": data.names[protected], "proxy_from": PROXY}, work)


def table(records: Records) -> Table:
    """A line for each way, and one for what is true."""
    rows: list[tuple[Cell, ...]] = []
    for name, way in WAYS.items():
        found = [piece.values for piece in records.find(way=name)]
        if found:
            columns = [
                mean_and_std([one[key] for one in found], 1) for key in ("disparity", "opportunity", "sex_share")
            ]
            rows.append((way.label, mean_and_std([one["auc"] for one in found], 3), *columns, len(found)))
    truth = [piece.values["truth"] for piece in records.find(way="x")]
    rows.append(("who died, in truth", None, mean_and_std(truth), None, None, len(truth)))
    header = ("", "ROC-AUC", "disparity", "of those who died", "attribution on sex", "seeds")
    return Table(header, tuple(rows), _NOTE)


_NOTE = (
    "X-DNNs, but for the first row; a new split and a new network for each seed; mean ± standard deviation. Of the "
    "subjects that were not trained on, as many are flagged as at risk as have died within 15 years. Disparity: share "
    "of men flagged less that of women, in points; of those who died: the same among them, where equal opportunity "
    "asks for 0. Attribution on sex: per cent of |attribution|, mean of the subjects. Proxies are columns whose "
    "correlation with sex is above 0.2 in the training rows. Reading: the prior on the column does what leaving the "
    "column out does, and not more, since others still tell the sex; what goes with it must be named too. Men did die "
    "more often, so a disparity of 0 is not what is true, and whether it is what is wanted is not for a prior to say."
)

ITEM = Item("fairness", "Broader impact: a prior against a protected attribute", plan, table, scales=("quick", "real"))
