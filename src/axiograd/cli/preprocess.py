"""From an image file to what a model takes, in numbers and in words."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from axiograd._names import choose_from
from axiograd.datasets import CAFFE, IMAGENET, PIXELS, SQUEEZENET, TINY_IMAGENET
from axiograd.errors import ConfigurationError
from axiograd.loading.prepared import Prepared
from axiograd.loading.specs import guess_shape

PRESETS = {
    "imagenet": IMAGENET,
    "squeezenet": SQUEEZENET,
    "caffe": CAFFE,
    "tiny-imagenet": TINY_IMAGENET,
    "pixels": PIXELS,
}
#: What the known weights of our models were trained with; the others saw ImageNet as the paper prepares it.
OF_MODEL = {"squeezenet1_1": "squeezenet", "resnet18": "tiny-imagenet", "resnet50": "caffe", "dncnn": "pixels"}
_RGB = 3


def choose(
    spec: str,
    model: nn.Module,
    *,
    known: bool = False,
    preset: str | None = None,
    size: int | None = None,
    mean: str | None = None,
    std: str | None = None,
) -> Prepared:
    """What the options say, else what the `known` weights of the model were trained with, else a guess.

    >>> print(choose("squeezenet1_1", nn.Conv2d(3, 8, 3), known=True, size=64))
    short side 64, centre crop 64, BGR, values 0 to 255, minus (103.939, 116.779, 123.68)
    """
    try:
        shape = guess_shape(model)
    except ConfigurationError:
        shape = (_RGB,)
    grey = shape[0] == 1
    named = preset or OF_MODEL.get(spec.removeprefix("x"), "pixels" if grey else "imagenet")
    if named not in PRESETS:
        raise ConfigurationError(f"--preprocess {named}: {choose_from(named, PRESETS)}.")
    transform = PRESETS[named]
    if mean is not None or std is not None:
        centre, spread = _read("--mean", mean, 0.0), _read("--std", std, 1.0)
        if min(spread) <= 0:
            raise ConfigurationError(f"--std {std}: standard deviations are positive.")
        transform = replace(transform, mean=centre, std=spread, white=1.0, bgr=False)
    if size is not None:
        transform = replace(transform, resize=size, crop=size)
    return Prepared(transform, grey, guessed=not (known or preset or mean or std))


def _read(option: str, given: str | None, default: float) -> tuple[float, ...]:
    try:
        found = (default,) if given is None else tuple(float(part) for part in given.split(","))
    except ValueError:
        found = ()
    if len(found) not in {1, _RGB}:
        raise ConfigurationError(f"{option} {given}: expected one number or three, for example 0.485,0.456,0.406.")
    return found * _RGB if len(found) == 1 else found
