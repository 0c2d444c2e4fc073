"""Models by name, each regular and X from one definition."""

import fnmatch
import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from axiograd._names import choose_from
from axiograd.errors import ConfigurationError
from axiograd.models.convnets import MLP, VGG, VGG_DEPTHS, AlexNet, DnCNN, MobileNetV2, SqueezeNet
from axiograd.models.resnets import CIFAR_DEPTHS, IMAGENET_DEPTHS, FixupResNet, ResNet18, ResNet50
from axiograd.models.transformers import TextEncoder, ViT
from axiograd.models.weights import (
    fetch_weights,
    find_weights,
    list_weights,
    load_into,
    read_state_dict,
    require_weights,
)

Builder = Callable[..., nn.Module]

#: Families that exist as a regular network and as an X-DNN.
PAIRS: dict[str, Builder] = {
    "alexnet": AlexNet,
    **{f"vgg{depth}": partial(VGG, depth) for depth in VGG_DEPTHS},
    **{f"fixup_resnet{depth}": partial(FixupResNet.of_depth, depth) for depth in (*IMAGENET_DEPTHS, *CIFAR_DEPTHS)},
    "squeezenet1_0": partial(SqueezeNet, "1_0"),
    "squeezenet1_1": partial(SqueezeNet, "1_1"),
    "dncnn": DnCNN,
    "mlp": MLP,
    "vit": ViT,
    "text_encoder": TextEncoder,
}
#: Networks with normalisation, here to be converted by `axiograd.to_xdnn`.
REGULAR: dict[str, Builder] = {"mobilenet_v2": MobileNetV2, "resnet18": ResNet18, "resnet50": ResNet50}
MODELS: dict[str, Builder] = {
    **REGULAR,
    **PAIRS,
    **{f"x{name}": partial(builder, homogeneous=True) for name, builder in PAIRS.items()},
}


def list_models(filter: str | None = None) -> list[str]:  # noqa: A002  (torchvision's and timm's name)
    """The names of all models, or of those that match a pattern.

    >>> list_models("x*net1_*")
    ['xsqueezenet1_0', 'xsqueezenet1_1']
    """
    return sorted(name for name in MODELS if filter is None or fnmatch.fnmatchcase(name, filter))


def get_model(
    name: str,
    *,
    num_classes: int | None = None,
    in_channels: int | None = None,
    weights: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
    download: bool = False,
    **config: Any,
) -> nn.Module:
    """A model by name; `weights` is None, a file, or the name of known weights: `"paper"`, `"default"`, …

    They are looked for in `root`, AXIOGRAD_DATA/weights and the cache; only `download=True` fetches them.

    >>> model = get_model("xmlp", in_channels=4, hidden=(8,))
    >>> model
    MLP(
      (0): Linear(in_features=4, out_features=8, bias=False)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=1, bias=False)
    )
    """
    if name not in MODELS:
        raise ConfigurationError(f"no model {name!r}: {choose_from(name, list_models())}.")
    path: Path | None = None
    if weights is not None:
        path, known = resolve(name, weights, root=root, download=download)
        config = {**known, **config}
    sizes = {"num_classes": num_classes, "in_channels": in_channels}
    config |= {key: value for key, value in sizes.items() if value is not None}
    if unknown := config.keys() - inspect.signature(MODELS[name]).parameters:
        setting = min(unknown)
        raise ConfigurationError(f"{name!r} has no setting {setting!r}: {choose_from(setting, setting_names(name))}.")
    model = MODELS[name](**config)
    if path is not None:
        state = read_state_dict(path)
        if isinstance(model, SqueezeNet):
            state = model.from_caffe(state)
        load_into(model, state, model_name=name, source=str(path))
    return model


def setting_names(name: str) -> list[str]:
    """What a model's architecture can be told.

    >>> setting_names("xmlp")
    ['num_classes', 'in_channels', 'biases', 'hidden', 'dropout']
    """
    return [each for each in inspect.signature(MODELS[name]).parameters if each != "homogeneous"]


def resolve(
    name: str, weights: str | os.PathLike[str], *, root: str | os.PathLike[str] | None, download: bool
) -> tuple[Path, dict[str, Any]]:
    """The file to load, and the configuration that its model was trained with if it is a known one."""
    path = Path(weights)
    names = {known.name for known in list_weights(name)} | {known.file for known in list_weights(name)} | {"default"}
    if path.is_file() or (str(weights) not in names and (path.suffix or len(path.parts) > 1)):
        return path, {}
    known = find_weights(name, str(weights))
    if download:
        fetch_weights(name, known.name, root=root)
    return require_weights(name, known.name, root=root), known.config
