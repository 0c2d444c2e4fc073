"""The recipe in a weights file: which model, how it was converted or trained, and how its inputs are prepared.

It is data. It names a model and its settings; nothing in a file is executed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from axiograd._io import read_header
from axiograd._version import __version__
from axiograd.errors import StorageError
from axiograd.models.registry import MODELS, setting_names

FORMAT = 2
KEY = "axiograd.conversion"


#: How a model came to be.
Form = Literal["strip", "carry", "calibrate", "lift", "trained"]


@dataclass(frozen=True)
class BuildRecipe:
    """Of which model, with which settings, for inputs of which shape, and how it was made."""

    spec: str
    how: Form
    shape: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    examples: str = ""
    #: How tables are prepared, as `axiograd.datasets.Schema` says it.
    table: dict[str, Any] = field(default_factory=dict)
    #: How images are prepared, as `axiograd.datasets.Preprocess` has it, and whether that is a guess.
    pixels: dict[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
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
            content = json.loads(text)
            classes = tuple(content.get("classes", ()))
            recipe = cls(**{**content, "shape": tuple(content["shape"]), "classes": classes})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise StorageError(f"{file} has a recipe that cannot be read: {str(error)[:200].rstrip('.')}.") from error
        if recipe.format != FORMAT or recipe.how not in get_args(Form):
            raise StorageError(
                f"{file} has a recipe of format {recipe.format}, {recipe.how!r}; this version reads {FORMAT}."
            )
        if ":" not in recipe.spec:
            # Settings are those of the architecture: a file asks for no other file and no download.
            if recipe.spec not in MODELS:
                raise StorageError(f"{file}: there is no model {recipe.spec!r}; is it of another version?")
            known = setting_names(recipe.spec)
            if unknown := [key for key in recipe.settings if key not in known]:
                raise StorageError(f"{file}: {unknown[0]!r} is not a setting of {recipe.spec!r}.")
        return recipe
