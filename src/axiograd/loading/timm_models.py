"""`timm:NAME`: a model of timm; `--weights default` are those that timm has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from axiograd.datasets import Preprocess, imagenet_classes
from axiograd.loading._libraries import library, make, unknown
from axiograd.loading.loaded import Loaded
from axiograd.loading.own_code import fill
from axiograd.loading.prepared import Prepared

_IMAGENET = 1000


def load(spec: str, weights: str | None, settings: Mapping[str, Any]) -> Loaded:
    """The model, its preprocessing and its classes as timm has them."""
    timm, name = library("timm"), spec.partition(":")[2]
    if not timm.is_model(name.partition(".")[0]):
        raise unknown(spec, timm.list_models())
    known = weights == "default"
    model: nn.Module = make(spec, lambda: timm.create_model(name, pretrained=known, **settings))
    fill(model, spec, None if known else weights)
    config = library("timm.data").resolve_model_data_config(model)
    crop = int(config["input_size"][-1])
    pixels = Prepared(Preprocess(round(crop / config["crop_pct"]), crop, tuple(config["mean"]), tuple(config["std"])))
    classes = tuple(dict(getattr(model, "pretrained_cfg", None) or {}).get("label_names") or ())
    if not classes and known and getattr(model, "num_classes", 0) == _IMAGENET:
        classes = tuple(each[1] for each in imagenet_classes())
    return Loaded(spec, model.eval(), spec, trained=weights is not None, pixels=pixels, classes=classes)
