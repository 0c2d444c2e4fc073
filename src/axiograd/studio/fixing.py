"""Training with what was painted: a plain loop over `AttributionLoss`, repeated from its plan to the same numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from axiograd.datasets.pictures import MarkedImages, Pictures
from axiograd.errors import InputError
from axiograd.priors import Energy, Prior, RightReasons
from axiograd.studio.marks import Marks
from axiograd.training.loss import AttributionLoss

PriorName = Literal["right-reasons", "energy", "both"]
#: What each prior is told about a sample.
ARGUMENTS: dict[PriorName, tuple[str, ...]] = {
    "right-reasons": ("mask",),
    "energy": ("inside",),
    "both": ("mask", "inside"),
}
#: Images of a pass: what a round is counted in, and what a stop in the middle of it loses.
PASS = 2000
#: More of an image than this, and there is nothing left to look at; small objects leave little, and some.
ALL = 0.995
#: What the prior weighs against the task at the start of a round, where the slider stands in the middle.
BALANCE = 10.0


@dataclass(frozen=True)
class Plan:
    """What a round is trained with; the numbers follow from it, the marks and the network that it starts from."""

    prior: PriorName
    weight: float
    energy_weight: float = 0.0
    lr: float = 2e-3
    batch: int = 50
    seed: int = 0

    def build_prior(self) -> Prior:
        """With λ on the outside; in a combination the second one has a weight of its own."""
        if self.prior == "both":
            return RightReasons() + self.energy_weight / self.weight * Energy()
        return RightReasons() if self.prior == "right-reasons" else Energy()


@dataclass(frozen=True)
class Step:
    """One step of a training; `passes` are complete."""

    step: int
    passes: int
    ends_pass: bool
    task: float
    prior: float
    accuracy: float


def marked_images(
    pictures: Pictures, rows: Sequence[int], marks: Marks, prior: PriorName, *, size: int = PASS, seed: int = 0
) -> MarkedImages:
    """The training images with their masks, or why there is nothing to train with."""
    chosen = set(rows)
    marked = [row for row in marks.images() if row in chosen]
    masks = [marks.masks(row) for row in marked]
    wrong, right = ([both[kind] for both in masks if both[kind] is not None] for kind in (0, 1))
    if "mask" in ARGUMENTS[prior] and not wrong:
        raise InputError('nothing is marked as "not here" in the images that train: paint first, or choose Energy.')
    if "inside" in ARGUMENTS[prior] and not right:
        raise InputError('nothing is marked as "here", which Energy needs: paint with that brush, or choose another.')
    if "mask" in ARGUMENTS[prior] and any(float(np.mean(mask)) > ALL for mask in wrong if mask is not None):
        raise InputError('an image is marked as "not here" from edge to edge: leave the network something to look at.')
    return MarkedImages(pictures, rows, marks.masks, marked, arguments=ARGUMENTS[prior], size=size, seed=seed)


def choose_plan(
    model: nn.Module, data: MarkedImages, prior: PriorName, strength: float = 1.0, *, seed: int = 0
) -> Plan:
    """The plan whose prior weighs `strength` times as much as the task does for a network that knows nothing, log C.

    RightReasons grows with the square of the outputs, so that no fixed λ suits two networks: it is measured on some of
    the marked images. Energy is a share, and needs no measure.
    """
    scale = BALANCE * strength * math.log(max(2, len(data.pictures.classes)))
    if prior == "energy":
        return Plan(prior, scale, seed=seed)
    marked = set(data.with_marks)
    places = [place for place, row in enumerate(data.drawn) if row in marked and data.marks(row)[0] is not None][:64]
    inputs, targets, given = data.collated(places)
    generator = torch.Generator().manual_seed(seed)
    loss = AttributionLoss(F.cross_entropy, RightReasons(), outputs="random", generator=generator).eval()
    measured = float(loss(model.eval(), inputs, targets, mask=given["mask"]).prior)
    weight = float(f"{scale / max(measured, 1e-6):.6g}")
    return Plan(prior, weight, energy_weight=scale if prior == "both" else 0.0, seed=seed)


def fix(model: nn.Module, data: MarkedImages, plan: Plan, passes: int = sys.maxsize) -> Iterator[Step]:
    """Train step by step, for so many passes or as long as the steps are asked for.

    Adam at a constant rate, so that the first passes do not depend on how many there will be. The prior is on a random
    combination of outputs: the residual of a network that is right by a shortcut is nothing, and so would be the prior
    on it.
    """
    loss = AttributionLoss(F.cross_entropy, plan.build_prior(), plan.weight, outputs="random")
    optimizer = torch.optim.Adam(model.parameters(), plan.lr)
    step = 0
    for number in range(passes):
        data.set_epoch(number)
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(plan.seed + number))
        batches = order.split(plan.batch)
        for place, chosen in enumerate(batches, start=1):
            inputs, target, arguments = data.collated(chosen.tolist())
            # Random outputs, and dropout, are drawn from the step's own seed.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(plan.seed + step)
                terms = loss(model.train(), inputs, target, **arguments)
            optimizer.zero_grad()
            terms.total.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            right = float((terms.outputs.detach().argmax(1) == target).float().mean())
            ends = place == len(batches)
            yield Step(step, number + ends, ends, float(terms.task.detach()), float(terms.prior.detach()), right)
