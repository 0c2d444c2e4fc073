"""`torchvision:NAME`: a model of torchvision; `--weights default` are those that torchvision has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from axiograd.datasets import Preprocess
from axiograd.loading._libraries import library, make, unknown
from axiograd.loading.loaded import Loaded
from axiograd.loading.own_code import fill
from axiograd.loading.prepared import Prepared


def load(spec: str, weights: str | None, settings: Mapping[str, Any]) -> Loaded:
    """The model; of its own weights also how images were prepared, and the classes."""
    models, name = library("torchvision.models"), spec.partition(":")[2]
    if name not in models.list_models():
        raise unknown(spec, models.list_models())
    known = weights == "default"
    model: nn.Module = make(
        spec, lambda: models.get_model(name, weights="DEFAULT" if known else None, **settings)
    ).eval()
    if not known:
        fill(model, spec, weights)
        return Loaded(spec, model, spec, trained=weights is not None)
    found = models.get_model_weights(name).DEFAULT
    transform = found.transforms()
    pixels = Preprocess(transform.resize_size[0], transform.crop_size[0], tuple(transform.mean), tuple(transform.std))
    return Loaded(spec, model, spec, True, pixels=Prepared(pixels), classes=tuple(found.meta.get("categories", ())))
