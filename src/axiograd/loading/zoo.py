"""axiograd's own models by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from axiograd._names import SPEC_HELP, choose_from
from axiograd.datasets import imagenet_classes, tiny_imagenet_classes
from axiograd.errors import ConfigurationError
from axiograd.loading.loaded import Loaded
from axiograd.loading.prepared import PRESETS, Prepared
from axiograd.models import get_model, list_models, list_weights
from axiograd.models.recipe import BuildRecipe

#: What the known weights of these were trained with; the others saw ImageNet as the paper prepares it.
_PRESETS = {"squeezenet1_1": "squeezenet", "resnet18": "tiny-imagenet", "resnet50": "caffe", "dncnn": "pixels"}
_WEIGHTS = {".pt", ".pth", ".tar", ".npz", ".ckpt", ".bin", ".safetensors"}


def load(spec: str, weights: str | None, settings: Mapping[str, Any], *, download: bool) -> Loaded:
    """The model, with a file of weights or those known by a name."""
    if spec not in list_models():
        raise unknown(spec)
    if reserved := settings.keys() & {"weights", "download", "root"}:
        raise ConfigurationError(f"--set {min(reserved)}=…: say --weights, --download, or AXIOGRAD_DATA for a folder.")
    model = get_model(spec, weights=weights, download=download, **settings).eval()
    known = {name for each in list_weights(spec) for name in (each.name, each.file, "default")}
    recipe = None if weights is None else BuildRecipe.read(weights)
    if recipe is not None and recipe.pixels:  # of the regular twin that was converted
        pixels: Prepared | None = Prepared.from_dict(recipe.pixels, grey=recipe.shape[0] == 1)
        return Loaded(spec, model, spec, trained=True, pixels=pixels, classes=recipe.classes)
    pixels, classes = about(spec) if weights in known else (None, ())
    return Loaded(spec, model, spec, trained=weights is not None, pixels=pixels, classes=classes)


def about(spec: str) -> tuple[Prepared | None, tuple[str, ...]]:
    """How images become inputs of the known weights, and what their classes are called.

    >>> about("resnet50")[1][360]
    'otter'
    """
    name = spec.removeprefix("x")
    if name in {"mlp", "dncnn"}:
        return (Prepared(PRESETS["pixels"], grey=True), ()) if name == "dncnn" else (None, ())
    names = tiny_imagenet_classes() if name == "resnet18" else imagenet_classes()
    classes = tuple(each[1] if each else "" for each in names)
    return Prepared(PRESETS[_PRESETS.get(name, "imagenet")]), classes


def unknown(spec: str) -> ConfigurationError:
    """What to say about a SPEC that is not a model: weights, Python without a function, or a near miss."""
    path = Path(spec)
    if path.suffix in _WEIGHTS and path.is_file():
        return ConfigurationError(
            f"{spec} holds weights, and does not say of which model: name it, axiograd … SPEC --weights {spec}."
        )
    if path.suffix == ".py":
        return ConfigurationError(f"{spec} is a file of Python: say which function makes the model, {spec}:FUNCTION.")
    return ConfigurationError(f"no model {spec!r}: {choose_from(spec, list_models())}. {SPEC_HELP}")
