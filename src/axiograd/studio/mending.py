"""A round of training with what was painted: stopped at any moment, repeated from a file to the same numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from axiograd.datasets.pictures import MarkedImages, Pictures
from axiograd.errors import ConfigurationError, InputError
from axiograd.priors import Energy, Prior, RightReasons
from axiograd.studio.marks import Marks, covered
from axiograd.training import AttributionLoss
from axiograd.training.data import loader, seed_epoch

PriorName = Literal["right-reasons", "energy", "both"]
PRIORS = ("right-reasons", "energy", "both")
#: Images of a pass: what a round is counted in, and what a stop in the middle of it loses.
PASS = 2000
#: More of an image than this, and there is nothing left to look at; small objects leave little, and some.
ALL = 0.995
#: What the prior weighs against the task at the start of a round, where the slider stands in the middle.
BALANCE = 10.0
#: The largest norm of a gradient.
CLIP = 1.0


@dataclass(frozen=True)
class MendingPlan:
    """What a round is trained with; the numbers follow from it, the marks and the network that it starts from."""

    prior: PriorName
    weight: float
    energy_weight: float = 0.0
    lr: float = 2e-3
    batch: int = 50
    size: int = PASS
    seed: int = 0
    epochs: int = 1

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the prior is told about a sample."""
        return {"right-reasons": ("mask",), "energy": ("inside",), "both": ("mask", "inside")}[self.prior]

    def build_prior(self) -> Prior:
        """With λ on the outside; in a combination the second one has a weight of its own."""
        if self.prior == "both":
            return RightReasons() + self.energy_weight / self.weight * Energy()
        return RightReasons() if self.prior == "right-reasons" else Energy()


@dataclass(frozen=True)
class Step:
    """How a training goes."""

    step: int
    epoch: int
    seconds: float
    task: float
    prior: float
    accuracy: float


def data_set(pictures: Pictures, rows: tuple[int, ...], marks: Marks, plan: MendingPlan) -> MarkedImages:
    """The training images with their masks, or why there is nothing to train with."""
    chosen = set(rows)
    marked = [row for row in marks.images() if row in chosen]
    wrong = [row for row in marked if marks.masks(row)[0] is not None]
    right = [row for row in marked if marks.masks(row)[1] is not None]
    if "mask" in plan.arguments and not wrong:
        raise InputError('nothing is marked as "not here" in the images that train: paint first, or choose Energy.')
    if "inside" in plan.arguments and not right:
        raise InputError(
            'nothing is marked as "here", which Energy needs: paint with that brush, or choose Right reasons.'
        )
    if wrong and covered(marks, wrong[:50]) > ALL and plan.prior != "energy":
        raise InputError('an image is marked as "not here" from edge to edge: leave the network something to look at.')
    return MarkedImages(pictures, rows, marks.masks, marked, arguments=plan.arguments, size=plan.size, seed=plan.seed)


def sensible(
    model: nn.Module, data: MarkedImages, prior: PriorName, strength: float, seed: int = 0, n: int = 64
) -> MendingPlan:
    """The plan whose prior weighs `strength` times as much as the task does for a network that knows nothing, log C.

    RightReasons grows with the square of the outputs, so that no fixed λ suits two networks: it is measured on some of
    the marked images. Energy is a share, and needs no measure.
    """
    if not 0 < strength < 1e6:  # noqa: PLR2004
        raise ConfigurationError(f"a strength of {strength}; it must be positive.")
    scale = BALANCE * strength * float(torch.log(torch.tensor(float(max(2, len(data.pictures.classes))))))
    if prior == "energy":
        return MendingPlan(prior, scale, seed=seed, size=data.size)
    chosen = set(data.with_marks)
    rows = [place for place, row in enumerate(data.drawn) if row in chosen and data.marks(row)[0] is not None][:n]
    generator = torch.Generator().manual_seed(seed)
    loss = AttributionLoss(F.cross_entropy, RightReasons(), 1.0, outputs="random", generator=generator)
    inputs, targets, given = data.collated(rows)
    was = model.training
    terms = loss.eval()(model.eval(), inputs, targets, mask=given["mask"])
    model.train(was)
    # Of all images those with a mask are a part, and the prior is a mean over all.
    measured = max(float(terms.prior.detach()), 1e-6)
    weight = float(f"{scale / measured:.6g}")
    return MendingPlan(prior, weight, energy_weight=scale if prior == "both" else 0.0, seed=seed, size=data.size)


def mend(
    model: nn.Module,
    data: MarkedImages,
    plan: MendingPlan,
    tell: Callable[[Step], bool],
    *,
    seconds: float = 60.0,
    epochs: int = 10_000,
) -> int:
    """Train whole passes until the time is over, `tell` says no, or there were so many; how many there were.

    Adam at a constant rate, so that the first passes do not depend on how many there will be. A stop in the middle of
    a pass goes back to its beginning, so that the numbers can be repeated.
    """
    loss, batches = build_loss(plan), loader(data, plan.batch, shuffle=True, seed=plan.seed)
    optimizer = torch.optim.Adam(model.parameters(), plan.lr)
    started, step = time.monotonic(), 0
    model.train()
    try:
        for epoch in range(epochs):
            if epoch and time.monotonic() - started >= seconds:
                return epoch
            before = {name: value.detach().clone() for name, value in model.state_dict().items()}
            seed_epoch(plan.seed, epoch)
            data.set_epoch(epoch)
            batches.sampler.set_epoch(epoch)  # type: ignore[attr-defined]  # a DistributedSampler's
            for inputs, target, arguments, _ in batches:
                terms = loss(model, inputs, target, **arguments)
                optimizer.zero_grad()
                terms.total.backward()
                nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
                step += 1
                hits = float((terms.outputs.detach().argmax(1) == target).float().mean())
                values = float(terms.task.detach()), float(terms.prior.detach())
                if not tell(Step(step, epoch, time.monotonic() - started, *values, hits)):
                    model.load_state_dict(before)
                    return epoch
        return epochs
    finally:
        model.zero_grad()
        model.eval()


def build_loss(plan: MendingPlan) -> AttributionLoss:
    """Cross-entropy and the prior on a random combination of outputs: the residual of a network that is right by a
    shortcut is nothing, and so would be the prior on it."""
    return AttributionLoss(F.cross_entropy, plan.build_prior(), plan.weight, outputs="random")
