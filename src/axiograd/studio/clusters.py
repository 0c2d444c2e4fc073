"""Images in which the attribution lies heavily on the same place, the most suspicious first.

Every image has a window that holds the most of its attribution for its size, and one that holds the most for its place
(`windows`). Images whose windows are at the same place are a cluster. How much hangs on it is measured: the window is
replaced by the mean image, and, as a control, so is another window of the same size that holds little of the
attribution. With p the predicted probabilities,

    leverage = mean of ½·Σ|p(without) − p| − mean of ½·Σ|p(control) − p|,

which is the share of predictions that change where the network is sure of them.

Suspicious is a small place that decides much: clusters are ranked by leverage · log2(concentration), with
concentration = share of the attribution in the window / the share that the window is of the image, or the mean share
of other images there, whichever is less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axiograd.datasets.pictures import Pictures
from axiograd.studio.survey import GRID, Between, Survey
from axiograd.studio.windows import Places, groups

#: Images of a cluster by which its leverage is measured.
MEASURED = 48


@dataclass(frozen=True)
class Cluster:
    """Images that lean on one place; `box` is left, top, right, bottom as shares of the image."""

    members: tuple[int, ...]
    box: tuple[float, float, float, float]
    share: float
    leverage: float
    accuracy: float
    accuracy_without: float
    #: Share of the predictions that change without it.
    changed: float
    score: float
    classes: dict[str, int]
    sentence: str
    #: The image in which it is clearest.
    example: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, with the members counted instead of listed."""
        return asdict(self) | {"members": len(self.members)}


def find_clusters(
    model: nn.Module, pictures: Pictures, survey: Survey, between: Between, *, seed: int = 0
) -> list[Cluster]:
    """The clusters of a survey, the most suspicious first."""
    mean = _mean_image(pictures, survey.rows)
    together = groups(survey.maps)
    found: list[Cluster] = []
    for number, (places, members) in enumerate(together):
        between(number, len(together))
        found.append(_measured(model, pictures, survey, places, members, mean, seed))
    return sorted(found, key=lambda one: -one.score)


def in_turns(clusters: Sequence[tuple[float, Sequence[int]]]) -> list[int]:
    """Images of clusters (score, images), one of each cluster in turn; those that hardly matter have no turn.

    >>> in_turns([(5.0, [1, 2, 3]), (4.0, [7]), (0.1, [9])])
    [1, 7, 2, 3]
    """
    most = max((score for score, _ in clusters), default=0.0)
    heavy = [rows for score, rows in clusters if score > most / 10]
    longest = max(map(len, heavy), default=0)
    return list(dict.fromkeys(row for at in range(longest) for rows in heavy for row in rows[at : at + 1]))


def _mean_image(pictures: Pictures, rows: NDArray[np.int64]) -> Tensor:
    chosen = rows[np.linspace(0, len(rows) - 1, min(len(rows), 200)).round().astype(int)]
    return pictures.batch(chosen.tolist()).mean(0)


def _measured(
    model: nn.Module,
    pictures: Pictures,
    survey: Survey,
    places: Places,
    members: NDArray[np.int64],
    mean: Tensor,
    seed: int,
) -> Cluster:
    random, windows, shares = np.random.default_rng(seed), places.windows, places.shares
    chosen = members if len(members) <= MEASURED else np.sort(random.choice(members, MEASURED, replace=False))
    rows = survey.rows[chosen].tolist()
    inputs, targets = pictures.batch(rows), pictures.targets[rows]
    without, control = inputs.clone(), inputs.clone()
    for place, member in enumerate(chosen):
        top, left, side = windows[member].tolist()
        _replace(without[place], mean, top, left, side)
        y, x = _elsewhere(survey.maps[member], top, left, side, random)
        _replace(control[place], mean, y, x, side)
    with torch.no_grad():
        before, after, beside = (model(x).double().softmax(1) for x in (inputs, without, control))
    leverage = float(((after - before).abs() - (beside - before).abs()).sum(1).mean() / 2)
    share, usual = float(shares[members].mean()), float(places.usual[members].mean())
    top, left, side = (float(np.median(windows[members, column])) for column in range(3))
    box = (left / GRID, top / GRID, (left + side) / GRID, (top + side) / GRID)
    score = max(leverage, 0.0) * max(math.log2(max(places.concentration(members), 1e-9)), 0.0)
    labels = pictures.targets[survey.rows[members]].numpy()
    classes = {
        pictures.classes[int(label)]: int(count)
        for count, label in sorted(zip(*reversed(np.unique(labels, return_counts=True)), strict=True), reverse=True)
    }
    accuracy, accuracy_without = (float((one.argmax(1) == targets).float().mean()) for one in (before, after))
    return Cluster(
        tuple(survey.rows[members].tolist()),
        box,
        share,
        leverage,
        accuracy,
        accuracy_without,
        float((after.argmax(1) != before.argmax(1)).float().mean()),
        score,
        classes,
        sentence(len(members), classes, share, box, usual if usual < (side / GRID) ** 2 else None),
        int(survey.rows[members[shares[members].argmax()]]),
    )


def _replace(image: Tensor, mean: Tensor, top: int, left: int, side: int) -> None:
    """The window's pixels become those of the mean image; a cell that shares a pixel has it."""
    height, width = image.shape[-2:]
    down = slice(top * height // GRID, -(-(top + side) * height // GRID))
    across = slice(left * width // GRID, -(-(left + side) * width // GRID))
    image[:, down, across] = mean[:, down, across]


def _elsewhere(cell: NDArray[np.float32], top: int, left: int, side: int, random: np.random.Generator) -> Any:
    """The lightest of a few windows of the same size that do not touch this one."""
    places = [
        (y, x)
        for y in range(GRID - side + 1)
        for x in range(GRID - side + 1)
        if abs(y - top) >= side or abs(x - left) >= side
    ]
    if not places:
        return top, left
    drawn = [places[i] for i in random.integers(0, len(places), 4)]
    return min(drawn, key=lambda at: cell[at[0] : at[0] + side, at[1] : at[1] + side].sum())


def sentence(
    count: int, classes: dict[str, int], share: float, box: Sequence[float], usual: float | None = None
) -> str:
    """A cluster in words, with what images have there on average where that makes it suspicious.

    >>> sentence(412, {"husky": 400, "wolf": 12}, 0.31, (0.0, 0.75, 0.25, 1.0))
    'In 412 images, nearly all of class “husky”, 31 % of the attribution lies in the lower left corner.'
    >>> sentence(9, {"husky": 9}, 0.04, (0.0, 0.75, 0.25, 1.0), usual=0.002)
    'In 9 images of class “husky” 4 % of the attribution lies in the lower left corner; images have 0.2 % there.'
    """
    first, most = next(iter(classes.items()))
    if len(classes) == 1:
        whose = f"{count} images of class “{first}”"
    elif most > 0.9 * count:
        whose = f"{count} images, nearly all of class “{first}”,"
    elif most > 0.5 * count:
        whose = f"{count} images, most of class “{first}”,"
    else:
        whose = f"{count} images of {len(classes)} classes"
    beside = "" if usual is None else f"; images have {100 * usual:.1g}% there"
    return f"In {whose} {share:.0%} of the attribution lies {_where(box)}{beside}.".replace("%", " %")


def _where(box: Sequence[float]) -> str:
    """A place in words; what is within a sixteenth of an edge is at the edge."""
    edge = 1 / GRID + 1e-9
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    across = "left" if box[0] <= edge else "right" if box[2] >= 1 - edge else ""
    down = "upper" if box[1] <= edge else "lower" if box[3] >= 1 - edge else ""
    if across and down:
        return f"in the {down} {across} corner"
    if across:
        return f"at the {across} edge"
    if down:
        return f"at the {down} edge"
    vertical = "above" if y < 0.4 else "below" if y > 0.6 else ""  # noqa: PLR2004
    horizontal = "left of" if x < 0.4 else "right of" if x > 0.6 else ""  # noqa: PLR2004
    return (
        f"{' and '.join(part for part in (vertical, horizontal) if part)} the middle"
        if vertical or horizontal
        else "in the middle"
    )
