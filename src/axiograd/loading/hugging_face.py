"""`hf:NAME_OR_FOLDER`: a model of Hugging Face that classifies images, with its processor and its classes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from axiograd.datasets import Preprocess
from axiograd.errors import ConfigurationError, DataMissingError
from axiograd.loading._libraries import first_line, library
from axiograd.loading.loaded import Loaded
from axiograd.loading.own_code import fill
from axiograd.loading.prepared import Prepared


class Logits(nn.Module):
    """A model of Hugging Face that takes pixels and gives its logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one image, as its configuration has it."""
        config: Any = self.model.config
        size = getattr(config, "image_size", 224)
        side = size if isinstance(size, list | tuple) else (size, size)
        return (int(getattr(config, "num_channels", 3)), *map(int, side))

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values=pixels).logits
        return logits


def load(spec: str, weights: str | None, settings: Mapping[str, Any], *, download: bool) -> Loaded:
    """The model, which is on this machine unless it may be downloaded."""
    name = spec.partition(":")[2]
    transformers = library("transformers")
    try:
        with without_bars():
            found = transformers.AutoModelForImageClassification.from_pretrained(
                name, local_files_only=not download, **settings
            )
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and "AutoModelForImageClassification" in str(error):
            raise ConfigurationError(
                f"{spec} does not classify images; if it reads texts, say axiograd explain {spec} review.txt, or in "
                "Python axiograd.text.explain."
            ) from error
        hint = "" if download or Path(name).is_dir() else " --download fetches it."
        raise DataMissingError(f"{spec} is not on this machine: {first_line(error)}.{hint}") from error
    model = Logits(found)
    fill(model, spec, None if weights == "default" else weights)
    labels = {int(place): str(label) for place, label in (getattr(found.config, "id2label", None) or {}).items()}
    classes = tuple(labels[i] for i in range(len(labels))) if set(labels) == set(range(len(labels))) else ()
    return Loaded(spec, model.eval(), spec, trained=True, pixels=_pixels(name, transformers), classes=classes)


@contextmanager
def without_bars() -> Iterator[None]:
    """Without transformers' bars for weights that are loaded in no time."""
    logging: Any = library("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _pixels(name: str, transformers: Any) -> Prepared | None:
    """What the processor beside the model does; None for what is not resizing, cropping and scaling.

    One that squashes an image to a square is followed for what is square already, and so called a guess.
    """
    file = Path(name) / "preprocessor_config.json"
    try:
        if file.is_file():
            content: Any = json.loads(file.read_text(encoding="utf-8"))
        else:
            content = transformers.AutoImageProcessor.from_pretrained(name, local_files_only=True).to_dict()
    except Exception:  # noqa: BLE001 - a model may come without: then the guess is called a guess
        return None
    size, crops = content.get("size"), content.get("do_center_crop", False)
    resize = _side(size) if content.get("do_resize", True) else None
    normalised = content.get("do_normalize", True)
    mean, std = (content.get(key) if normalised else None for key in ("image_mean", "image_std"))
    if resize is None or (normalised and (mean is None or std is None)):
        return None
    squashed = isinstance(size, Mapping) and "shortest_edge" not in size and not crops
    crop = _side(content.get("crop_size")) if crops else resize
    return Prepared(Preprocess(resize, crop, tuple(mean or (0.0,) * 3), tuple(std or (1.0,) * 3)), guessed=squashed)


def _side(value: Any) -> int | None:
    if isinstance(value, Mapping):
        value = value.get("shortest_edge", value.get("height"))
    return value if isinstance(value, int) else None
