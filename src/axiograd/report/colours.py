"""One diverging colour map for figures, pages and notebooks: blue below zero, paper at zero, orange above.

Blue and orange stay apart for all common kinds of colour blindness, and both ends are equally dark in print.
"""

from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axiograd._extras import optional

#: Evenly spaced from the most negative to the most positive value; the one in the middle is zero.
ANCHORS: tuple[str, ...] = (
    "#08306b",
    "#135fa7",
    "#4a97cd",
    "#a9d0e8",
    "#f8f7f4",
    "#fbc48f",
    "#ee8133",
    "#c04a08",
    "#6e2604",
)

#: An overlay has the colours of ±this, as strong as the value is large: the dark ends would vanish on a dark image.
TINT = 0.5
#: Colours stop getting stronger above this percentile of |attribution|, so that one outlier does not fade all others.
CLIP = 99.5

#: Bars for and against.
POSITIVE, NEGATIVE = "#d9691a", "#2a72b5"


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def colour(values: NDArray[Any]) -> NDArray[np.uint8]:
    """RGB of values in [−1, 1], what lies outside is clipped.

    >>> colour(np.array([-1.0, 0.0, 1.0])).tolist()
    [[8, 48, 107], [248, 247, 244], [110, 38, 4]]
    """
    anchors = np.array([_rgb(a) for a in ANCHORS], dtype=float)
    position = np.clip(values, -1, 1)
    channels = [np.interp(position, np.linspace(-1, 1, len(anchors)), anchors[:, c]) for c in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def overlay(values: NDArray[Any], image: NDArray[Any]) -> NDArray[np.float64]:
    """The grey image with each pixel tinted as strongly as its value, in [−1, 1], is large.

    >>> overlay(np.zeros((1, 1)), np.full((1, 1, 3), 0.5)).tolist()
    [[[0.5, 0.5, 0.5]]]
    """
    opacity = np.minimum(np.abs(values), 1)[..., None]
    tint = colour(np.sign(values) * TINT) / 255
    return np.asarray((1 - opacity) * image.mean(-1, keepdims=True) + opacity * tint, dtype=np.float64)


def matplotlib_map(*, positive_only: bool = False) -> Any:
    """The map for matplotlib; its positive half where negative values are not shown."""
    colours = optional("matplotlib.colors", "plots", "drawing figures").LinearSegmentedColormap
    anchors = ANCHORS[len(ANCHORS) // 2 :] if positive_only else ANCHORS
    return colours.from_list("axiograd-positive" if positive_only else "axiograd", anchors, N=512)


def asset(name: str) -> str:
    """A file of the pages."""
    return (resources.files("axiograd.report") / "assets" / name).read_text(encoding="utf-8")


def shared_assets() -> dict[str, str]:
    """What every page includes, by file name: `heat.js`, a plain script that defines `Heat`, and `palette.css`.

    >>> sorted(shared_assets())
    ['heat.js', 'palette.css']
    """
    heat = asset("heat.js")
    for name, value in (("$ANCHORS", " ".join(ANCHORS)), ("$TINT", str(TINT)), ("$CLIP", str(CLIP))):
        heat = heat.replace(name, value)
    return {"heat.js": heat, "palette.css": asset("palette.css")}
