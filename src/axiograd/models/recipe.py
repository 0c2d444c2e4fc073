"""What a weights file says of itself: of which model, converted or trained how, and how its inputs are prepared.

It is data. It names a model and its settings; nothing in a file is executed.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from axiograd._io import read_header
from axiograd._version import __version__
from axiograd.errors import ConfigurationError, StorageError
from axiograd.models.registry import check_settings

FORMAT = 1
#: Values of one input sample that a file may ask for: 3 × 2,048 × 2,048 and more.
LARGEST_INPUT = 2**24
KEY = "axiograd.conversion"
HOW = ("strip", "lift", "trained")


@dataclass(frozen=True)
class BuildRecipe:
    """Of which model, with which settings, for inputs of which shape, and how it was made."""

    spec: str
    how: Literal["strip", "lift", "trained"]
    shape: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    examples: str = ""
    #: How tables are prepared, as `axiograd.datasets.Schema` says it.
    table: dict[str, Any] = field(default_factory=dict)
    #: How images are prepared, as `axiograd.datasets.Preprocess` has it.
    pixels: dict[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    #: Fitted to examples, which the layout of its network shows.
    calibrated: bool = False
    version: str = __version__
    format: int = FORMAT

    def to_metadata(self) -> dict[str, str]:
        """For the header of a safetensors file."""
        return {KEY: json.dumps(asdict(self))}

    @classmethod
    def read(cls, path: str | Path) -> BuildRecipe | None:
        """The recipe in a file's header; None for a file without one, and for what is not a safetensors file."""
        file = Path(path)
        if file.suffix != ".safetensors" or not file.is_file():
            return None
        text = read_header(file).get(KEY)
        if text is None:
            return None
        try:
            recipe = _checked(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ConfigurationError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
            raise StorageError(f"{file} has a recipe that cannot be read: {reason.rstrip('.')}.") from error
        if ":" not in recipe.spec:
            check_settings(recipe.spec, recipe.settings, str(file))
        return recipe


def _checked(content: Any) -> BuildRecipe:
    """A recipe whose every field has its type: what is in a file may be anything."""
    kinds: dict[str, Any] = {"spec": str, "how": str, "shape": list}
    further = {
        "settings": dict,
        "examples": str,
        "version": str,
        "format": int,
        "table": dict,
        "pixels": dict,
        "classes": list,
        "weights": str | None,
        "calibrated": bool,
    }
    if not isinstance(content, dict) or kinds.keys() - content.keys() or content.keys() - {*kinds, *further}:
        raise TypeError(f"it is an object with {', '.join(kinds)}, and may have {', '.join(further)}.")
    if wrong := [
        key for key, kind in (kinds | further).items() if key in content and not isinstance(content[key], kind)
    ]:
        raise TypeError(f"its {wrong[0]} is {repr(content[wrong[0]])[:80]}.")
    shape, classes = content["shape"], content.get("classes", [])
    if not shape or not all(type(size) is int and size > 0 for size in shape) or math.prod(shape) > LARGEST_INPUT:
        raise ValueError(f"inputs of shape {str(shape)[:80]}; at most {LARGEST_INPUT:,} values are allowed.")
    if not all(isinstance(name, str) for name in classes):
        raise TypeError("its classes are not all words.")
    recipe = BuildRecipe(**{**content, "shape": tuple(shape), "classes": tuple(classes)})
    if recipe.format != FORMAT or recipe.how not in HOW:
        raise ValueError(f"it is of format {recipe.format}, {recipe.how[:20]!r}; this version reads {FORMAT}.")
    return recipe
