"""All gates, by the names of their functions in torch."""

from collections.abc import Callable
from typing import Any

from axiograd.training.held_gates import pieces, winners
from axiograd.training.held_gates.operators import HeldCall

GATES: dict[str, Callable[[HeldCall], Any]] = {
    "relu": pieces.relu,
    "leaky_relu": pieces.leaky_relu,
    "prelu": pieces.prelu,
    "clamp": pieces.clamp,
    "clip": pieces.clamp,
    "clamp_min": pieces.clamp_min,
    "clamp_max": pieces.clamp_max,
    "hardtanh": pieces.hardtanh,
    "relu6": pieces.relu6,
    **dict.fromkeys(("threshold", "_threshold"), pieces.threshold),
    "hardshrink": pieces.hardshrink,
    **dict.fromkeys(("abs", "absolute", "__abs__"), pieces.absolute),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), winners.larger),
    **dict.fromkeys(("max", "min"), winners.extreme),
    **dict.fromkeys(("amax", "amin"), winners.amax),
    **dict.fromkeys(("sort", "topk", "kthvalue"), winners.ordered),
    **dict.fromkeys((f"{kind}max_pool{d}d" for kind in ("", "adaptive_") for d in (1, 2, 3)), winners.max_pool),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), pieces.dropout),
}


#: Where gates take the word to work in place, if not by name.
INPLACE = {"relu": 1, "relu6": 1, "leaky_relu": 2, "hardtanh": 3, "threshold": 3} | dict.fromkeys(
    ("dropout", "dropout1d", "dropout2d", "dropout3d"), 3
)
