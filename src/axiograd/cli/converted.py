"""Converted models as files: weights in safetensors, and in their header the recipe by which to rebuild the model.

A recipe is data. It names the model that was converted, and how; what rebuilds it is `to_xdnn` on the same
architecture, whose calibrated constants are then loaded with the weights. Nothing in a file is executed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from axiograd._version import __version__
from axiograd.cli.tables import Statistics, TableOptions
from axiograd.errors import ConfigurationError, MissingExtraError, StorageError
from axiograd.homogeneity import calibrated_layout, to_xdnn
from axiograd.models import get_model
from axiograd.models.registry import check_settings
from axiograd.runs.files import write_atomically

FORMAT = 1
#: Values of one input sample that a file may ask for: 3 × 2,048 × 2,048 and more.
LARGEST_INPUT = 2**24
#: How many times as many parameters as its file's a model may have (biases that were taken out), and some more.
_MORE, _SMALL = 4, 1_000_000
KEY = "axiograd.conversion"


@dataclass(frozen=True)
class Recipe:
    """Of which model, with which settings, for inputs of which shape, and how it was converted."""

    spec: str
    how: Literal["strip", "lift"]
    shape: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    examples: str = ""
    #: How tables were prepared: standardise, missing, and mean and standard deviation by column.
    table: dict[str, Any] = field(default_factory=dict)
    #: Fitted to examples, which the layout of its network shows.
    calibrated: bool = False
    version: str = __version__
    format: int = FORMAT

    def tables(self) -> TableOptions | None:
        """How tables are prepared for this model; None where that is not known."""
        if not self.table:
            return None
        columns = {str(name): (float(mean), float(std)) for name, (mean, std) in self.table["columns"].items()}
        if not all(math.isfinite(number) for pair in columns.values() for number in pair):
            raise ValueError("its table has a mean or standard deviation that is not finite.")
        statistics = Statistics("the data that the model was made with", columns)
        return TableOptions(None, (), str(self.table["missing"]), bool(self.table["standardise"]), statistics)

    @classmethod
    def read(cls, path: str | Path) -> Recipe | None:
        """The recipe in a file's header; None for a file without one, and for what is no safetensors file."""
        file = Path(path)
        if file.suffix != ".safetensors" or not file.is_file():
            return None
        try:
            with _safetensors().safe_open(file, framework="pt") as opened:
                text = (opened.metadata() or {}).get(KEY)
        except (_safetensors().SafetensorError, OSError) as error:
            raise StorageError(f"{file} is not a complete safetensors file: {error}") from error
        if text is None:
            return None
        try:
            recipe = _checked(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ConfigurationError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
            raise StorageError(f"{file} has a recipe that cannot be read: {reason}.") from error
        if ":" not in recipe.spec:
            check_settings(recipe.spec, recipe.settings, str(file))
        return recipe


def _checked(content: Any) -> Recipe:
    """A recipe whose every field has its type: what is in a file may be anything."""
    kinds: dict[str, Any] = {"spec": str, "how": str, "shape": list}
    further = {
        "settings": dict,
        "examples": str,
        "version": str,
        "format": int,
        "table": dict,
        "weights": str | None,
        "calibrated": bool,
    }
    if not isinstance(content, dict) or kinds.keys() - content.keys() or content.keys() - {*kinds, *further}:
        raise TypeError(f"it is an object with {', '.join(kinds)}, and may have {', '.join(further)}.")
    if wrong := [
        key for key, kind in (kinds | further).items() if key in content and not isinstance(content[key], kind)
    ]:
        raise TypeError(f"its {wrong[0]} is {repr(content[wrong[0]])[:80]}")
    shape = content["shape"]
    if not shape or not all(type(size) is int and size > 0 for size in shape) or math.prod(shape) > LARGEST_INPUT:
        raise ValueError(f"inputs of shape {str(shape)[:80]}; at most {LARGEST_INPUT:,} values are allowed.")
    recipe = Recipe(**{**content, "shape": tuple(shape)})
    recipe.tables()
    if recipe.format != FORMAT or recipe.how not in {"strip", "lift"}:
        raise ValueError(f"it is of format {recipe.format}, {recipe.how[:20]!r}; this version reads {FORMAT}.")
    return recipe


def save(path: Path, model: nn.Module, recipe: Recipe) -> Path:
    """Write weights and recipe, atomically."""
    from safetensors.torch import save as serialise

    # Copies: safetensors refuses tensors that share their memory.
    state = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
    content: bytes = serialise(state, metadata={KEY: json.dumps(asdict(recipe))})
    return write_atomically(path, content)


def bare(recipe: Recipe, path: str | Path, settings: Mapping[str, Any]) -> nn.Module:
    """The architecture that a recipe names, which is built only if it is about as large as the file's weights."""
    merged = {**recipe.settings, **settings}
    try:
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in get_model(recipe.spec, **merged).parameters())
    except (TypeError, ValueError, RuntimeError) as error:
        raise StorageError(f"{path}: {recipe.spec} cannot be built with {str(merged)[:200]}: {error}.") from error
    if size > _MORE * sum(tensor.numel() for tensor in _state(Path(path)).values()) + _SMALL:
        raise StorageError(f"{path} asks for {recipe.spec} with {size:,} parameters, and does not hold that many.")
    return get_model(recipe.spec, **merged)


def rebuild(model: nn.Module, recipe: Recipe, path: str | Path) -> nn.Module:
    """Convert the bare architecture once more, and load the weights and constants of the file into it."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    example = torch.randn(2, *recipe.shape, generator=generator).to(parameter.dtype)
    if recipe.calibrated:
        converted: nn.Module = calibrated_layout(model.eval(), example)
    else:
        converted = to_xdnn(model.eval(), example, how=recipe.how).model
    state = _state(Path(path))
    own = converted.state_dict()
    wrong = [
        name
        for name in {**own, **state}
        if name not in own or name not in state or own[name].shape != state[name].shape
    ]
    if wrong:
        raise ConfigurationError(
            f"{path} does not fit {recipe.spec} converted by {recipe.how}: {', '.join(sorted(wrong)[:5])} differ. "
            "Has the model's code changed, or are settings missing (--set)?"
        )
    converted.load_state_dict(state)
    return converted


def _state(path: Path) -> Mapping[str, Tensor]:
    from safetensors.torch import load_file

    try:
        found: dict[str, Tensor] = load_file(path)
    except (_safetensors().SafetensorError, OSError) as error:
        raise StorageError(f"{path} is not a complete safetensors file: {error}") from error
    return found


def _safetensors() -> Any:
    try:
        import safetensors
    except ImportError as error:
        raise MissingExtraError("safetensors", "storage", "a converted model's file") from error
    return safetensors


def base_spec(spec: str, weights: str | None) -> str:
    """The model's name, also where SPEC is a converted file."""
    recipe = Recipe.read(spec) or (Recipe.read(weights) if weights else None)
    return spec if recipe is None else recipe.spec
