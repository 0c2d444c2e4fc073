"""Images in which the attribution lies heavily on the same place, the most suspicious first.

Every image has a window that holds much of its attribution for the window's size, and one that holds much for its
place: a shortcut that many images have is where their maps are heaviest, and one that few have is where the maps of
other images hold next to nothing. Images whose windows are at the same place are a cluster. How much hangs on it is
measured: the window is replaced by the mean image, and, as a control, so is another window of the same size that holds
little of the attribution. With p the predicted probabilities,

    leverage = mean of ½·Σ|p(without) − p| − mean of ½·Σ|p(control) − p|,

which is the share of predictions that change where the network is sure of them.

Suspicious is a small place that decides much: clusters are ranked by leverage · log2(concentration), with
concentration = share of the attribution in the window / the share that the window is of the image, or the mean share
of other images there, whichever is less.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axiograd.datasets.pictures import Pictures
from axiograd.studio.survey import GRID, Progress, Survey, quietly

#: Sides of the windows that mass is looked for in, in cells: an eighth, and a quarter of a side.
WINDOWS = (2, 4)
#: Fewer images are an accident.
SMALLEST = 5
#: Groups of each kind that are kept.
MOST = 24
#: Images of a cluster by which its leverage is measured.
MEASURED = 48


@dataclass(frozen=True)
class Places:
    """One window per image: [n, 3] as top, left and side in cells; its share of the mass, and the mean one there."""

    windows: NDArray[np.int64]
    shares: NDArray[np.float64]
    usual: NDArray[np.float64]

    def concentration(self, members: NDArray[np.int64]) -> float:
        """Their share of the mass over what it would be: evenly spread, or as in other images, if that is less.

        At most sixteen times the even one, so that places where nobody has anything do not decide.
        """
        even = float(np.median(self.windows[members, 2]) / GRID) ** 2
        usual = max(float(self.usual[members].mean()), even / 16)
        return float(self.shares[members].mean()) / min(even, usual)


def heaviest(maps: NDArray[np.float32]) -> Places:
    """The window that is heaviest for its size.

    Sizes are compared by share / side, between share (always the larger one) and density (always the smaller one).
    """
    return _best(maps, lambda held, side: held / side)


def unusual(maps: NDArray[np.float32]) -> Places:
    """The window that holds more than other images have there, in standard deviations of what they have.

    A quarter of an even share is added to the deviation, and only windows with more than an even share count: places
    where nobody has anything do not decide.
    """

    def value(held: NDArray[np.float64], side: int) -> NDArray[np.float64]:
        even = (side / GRID) ** 2
        return np.where(held > even, (held - held.mean(0)) / (held.std(0) + even / 4), -np.inf)

    return _best(maps, value)


def _best(maps: NDArray[np.float32], value: Callable[[NDArray[np.float64], int], NDArray[np.float64]]) -> Places:
    n = np.arange(len(maps))
    windows = np.zeros((len(maps), 3), dtype=np.int64)
    best, shares, usual = np.full(len(maps), -np.inf), np.zeros(len(maps)), np.zeros(len(maps))
    for side in WINDOWS:
        sums = torch.nn.functional.avg_pool2d(torch.from_numpy(maps).double()[:, None], side, stride=1) * side**2
        held = sums.flatten(1).numpy()
        values = value(held, side)
        place = values.argmax(1)
        better = values[n, place] > best
        across = GRID - side + 1
        found = np.stack([place // across, place % across, np.full(len(maps), side)], 1)
        windows[better], best[better] = found[better], values[n, place][better]
        shares[better], usual[better] = held[n, place][better], held.mean(0)[place][better]
    return Places(windows, shares, usual)


def groups(maps: NDArray[np.float32]) -> list[tuple[Places, NDArray[np.int64]]]:
    """Images that share a window: the largest groups by the heaviest ones, the most concentrated by unusual ones.

    Where both say the same of most of their images, the first stands for both.
    """
    heavy, rare = heaviest(maps), unusual(maps)
    found = [(heavy, members) for members in _near(heavy)[:MOST]]
    others = sorted(_near(rare), key=rare.concentration, reverse=True)
    found += [(rare, one) for one in others[:MOST] if not any(_same(rare, one, heavy, many) for _, many in found)]
    return found


def _near(places: Places) -> list[NDArray[np.int64]]:
    """Images whose windows have one size and are at most a cell apart from the most common one, largest first."""
    windows, left = places.windows, places.shares > 0
    found: list[NDArray[np.int64]] = []
    while left.any():
        candidates, counts = np.unique(windows[left], axis=0, return_counts=True)
        centre = candidates[counts.argmax()]
        near = (np.abs(windows[:, :2] - centre[:2]).max(1) <= 1) & (windows[:, 2] == centre[2])
        members = np.flatnonzero(left & near)
        left &= ~near
        if len(members) >= SMALLEST:
            found.append(members)
    return sorted(found, key=len, reverse=True)


def _same(rare: Places, one: NDArray[np.int64], heavy: Places, many: NDArray[np.int64]) -> bool:
    """Are most of one group's images in the other, with windows of a size that are at most a cell apart?"""
    both = np.intersect1d(one, many)
    apart = np.abs(rare.windows[both] - heavy.windows[both]).max(1)
    return 2 * int((apart <= 1).sum()) > len(one)


@dataclass(frozen=True)
class Cluster:
    """Images that rely on one place; `box` is left, top, right, bottom as shares of the image."""

    members: tuple[int, ...]
    box: tuple[float, float, float, float]
    #: Share of the predictions that change without it.
    changed: float
    score: float
    sentence: str
    #: The image in which it is clearest.
    example: int


def find_clusters(
    model: nn.Module, pictures: Pictures, survey: Survey, on_progress: Progress = quietly, *, seed: int = 0
) -> list[Cluster]:
    """The clusters of a survey, the most suspicious first."""
    few = survey.rows[np.linspace(0, len(survey.rows) - 1, min(len(survey.rows), 200)).round().astype(int)]
    mean = pictures.batch(few.tolist()).mean(0)
    together = groups(survey.maps)
    found: list[Cluster] = []
    for number, (places, members) in enumerate(together):
        on_progress(number, len(together))
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
    inputs = pictures.batch(survey.rows[chosen].tolist())
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
    classes = Counter(pictures.classes[int(label)] for label in pictures.targets[survey.rows[members]])
    return Cluster(
        members=tuple(survey.rows[members].tolist()),
        box=box,
        changed=float((after.argmax(1) != before.argmax(1)).float().mean()),
        score=max(leverage, 0.0) * max(math.log2(max(places.concentration(members), 1e-9)), 0.0),
        sentence=sentence(dict(classes.most_common()), share, box, usual if usual < (side / GRID) ** 2 else None),
        example=int(survey.rows[members[shares[members].argmax()]]),
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
    drawn = [places[i] for i in random.integers(0, len(places), 4)]
    return min(drawn, key=lambda at: cell[at[0] : at[0] + side, at[1] : at[1] + side].sum())


def sentence(classes: dict[str, int], share: float, box: Sequence[float], usual: float | None = None) -> str:
    """A cluster in words, with what images have there on average where that makes it suspicious.

    >>> sentence({"husky": 400, "wolf": 12}, 0.31, (0.0, 0.75, 0.25, 1.0))
    '412 images, nearly all of class “husky”, have 31 % of their attribution in the lower left corner.'
    >>> sentence({"husky": 9}, 0.04, (0.0, 0.75, 0.25, 1.0), usual=0.002)
    '9 images of class “husky” have 4 % of their attribution in the lower left corner; all images have 0.2 % there.'
    """
    count, (first, most) = sum(classes.values()), next(iter(classes.items()))
    if len(classes) == 1:
        whose = f"{count} images of class “{first}”"
    elif most > 0.9 * count:
        whose = f"{count} images, nearly all of class “{first}”,"
    elif most > 0.5 * count:
        whose = f"{count} images, most of class “{first}”,"
    else:
        whose = f"{count} images of {len(classes)} classes"
    beside = "" if usual is None else f"; all images have {100 * usual:.1f} % there"
    return f"{whose} have {100 * share:.0f} % of their attribution {_where(box)}{beside}."


def _where(box: Sequence[float]) -> str:
    """A place in words; what is within a sixteenth of an edge is at the edge."""
    edge = 1 / GRID + 1e-9
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    across = "left" if box[0] <= edge else "right" if box[2] >= 1 - edge else ""
    down = "upper" if box[1] <= edge else "lower" if box[3] >= 1 - edge else ""
    if across and down:
        return f"in the {down} {across} corner"
    if across or down:
        return f"at the {across or down} edge"
    vertical = "above" if y < 0.4 else "below" if y > 0.6 else ""  # noqa: PLR2004
    horizontal = "left of" if x < 0.4 else "right of" if x > 0.6 else ""  # noqa: PLR2004
    near = " and ".join(part for part in (vertical, horizontal) if part)
    return f"{near} the middle" if near else "in the middle"
