"""Models of timm, torchvision and Hugging Face by name, and files of torch.export: what each knows of its inputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from axiograd.datasets import Preprocess, imagenet_classes
from axiograd.errors import AxiogradError, ConfigurationError, DataMissingError, InputError, StorageError
from axiograd.loading.prepared import Prepared

#: Among the extra files of a .pt2 file: `axiograd export` wrote it, and this is what it says of itself.
EXPORT_CARD = "axiograd.json"
LIBRARIES = ("timm", "torchvision", "hf")
_IMAGENET = 1000
T = TypeVar("T")


def library_of(spec: str) -> str | None:
    """The library that a SPEC names, as in timm:resnet18.

    >>> library_of("timm:resnet18"), library_of("net.py:build"), library_of("resnet18")
    ('timm', None, None)
    """
    prefix, colon, _ = spec.partition(":")
    return prefix if colon and prefix in LIBRARIES else None


def build(spec: str, settings: Mapping[str, Any], weights: str | None = None, *, download: bool = False) -> nn.Module:
    """The model that a library knows by this name; with weights "default", as the library trained it."""
    library, _, name = spec.partition(":")
    known = weights == "default"
    if library == "timm":
        timm = _import("timm")
        if not timm.is_model(name.partition(".")[0]):
            raise _unknown(spec, name, timm.list_models())
        model: nn.Module = _made(spec, lambda: timm.create_model(name, pretrained=known, **settings))
        return model
    if library == "torchvision":
        models = _import("torchvision.models")
        if name not in models.list_models():
            raise _unknown(spec, name, models.list_models())
        return _made(spec, lambda: models.get_model(name, weights="DEFAULT" if known else None, **settings))  # type: ignore[no-any-return]
    return Logits(_hugging_face(spec, name, settings, download=download))


def about(spec: str, model: nn.Module, weights: str | None) -> tuple[Prepared | None, tuple[str, ...]]:
    """How a model's inputs were prepared in its training, and its classes, as far as its library says so."""
    library, _, name = spec.partition(":")
    if library == "timm":
        return _about_timm(model, trained=weights == "default")
    if library == "torchvision" and weights == "default":
        found = _import("torchvision.models").get_model_weights(name).DEFAULT
        transform = found.transforms()
        sizes = transform.resize_size[0], transform.crop_size[0]
        pixels = Preprocess(*sizes, tuple(transform.mean), tuple(transform.std))
        return Prepared(pixels), tuple(found.meta.get("categories", ()))
    return _about_hugging_face(name, model) if library == "hf" else (None, ())


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


class Exported(nn.Module):
    """A program of `torch.export`, which has no modes."""

    def __init__(self, program: nn.Module, shape: Sequence[int | torch.SymInt] = ()) -> None:
        super().__init__()
        self.program = program
        #: Samples of every call, where the file takes no other number.
        self.samples = shape[0] if shape and isinstance(shape[0], int) else None
        if len(shape) > 1 and all(isinstance(n, int) for n in shape[1:]):
            self.input_shape = tuple(shape[1:])

    def train(self, mode: bool = True) -> Exported:
        """It stays in the mode that it was exported in."""
        self.training = mode
        return self

    def forward(self, *inputs: Any) -> Any:
        if self.samples is not None and len(inputs[0]) != self.samples:
            raise InputError(
                f"the model was exported for {self.samples} samples at a time, and is given {len(inputs[0])}: export "
                "it with dynamic_shapes=({0: torch.export.Dim.AUTO},)."
            )
        return self.program(*inputs)


def read_exported(path: str) -> nn.Module:
    """The program in a .pt2 file."""
    if not Path(path).is_file():
        raise DataMissingError(f"there is no file {path}.")
    try:
        program = torch.export.load(path, extra_files=(extra := {EXPORT_CARD: ""}))
    except Exception as error:
        raise StorageError(f"{path} is not a file of torch.export: {_first_line(error)}.") from error
    if extra[EXPORT_CARD]:
        raise ConfigurationError(
            f"{path} answers with its attributions already, as `axiograd export` wrote it (axiograd check {path} says "
            "what it is): explain the model that it was made from."
        )
    given = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    return Exported(program.module(), given[0].meta["val"].shape if len(given) == 1 else ())


def _about_timm(model: nn.Module, *, trained: bool) -> tuple[Prepared | None, tuple[str, ...]]:
    config = _import("timm.data").resolve_model_data_config(model)
    crop = int(config["input_size"][-1])
    pixels = Preprocess(round(crop / config["crop_pct"]), crop, tuple(config["mean"]), tuple(config["std"]))
    own = dict(getattr(model, "pretrained_cfg", None) or {})
    names = tuple(own.get("label_names") or ())
    if not names and trained and getattr(model, "num_classes", 0) == _IMAGENET:
        names = tuple(each[1] for each in imagenet_classes())
    return Prepared(pixels), names


def _about_hugging_face(name: str, model: nn.Module) -> tuple[Prepared | None, tuple[str, ...]]:
    config: Any = model.model.config  # type: ignore[union-attr]
    labels = {int(place): str(label) for place, label in (getattr(config, "id2label", None) or {}).items()}
    classes = tuple(labels[i] for i in range(len(labels))) if set(labels) == set(range(len(labels))) else ()
    file = Path(name) / "preprocessor_config.json"
    try:
        if file.is_file():
            content = json.loads(file.read_text(encoding="utf-8"))
        else:
            from transformers import AutoImageProcessor

            load: Any = AutoImageProcessor.from_pretrained
            content = load(name, local_files_only=True).to_dict()
    except Exception:  # noqa: BLE001 - a model may come without: then the guess is called a guess
        return None, classes
    return _from_processor(content), classes


def _from_processor(content: Mapping[str, Any]) -> Prepared | None:
    """Hugging Face's description of its image processors; None for what is not resizing, cropping and scaling.

    Those that squash an image to a square are followed for what is square already, and so called a guess.
    """

    def side(value: Any) -> int | None:
        if isinstance(value, Mapping):
            value = value.get("shortest_edge", value.get("height"))
        return value if isinstance(value, int) else None

    resize = side(content.get("size")) if content.get("do_resize", True) else None
    crop = side(content.get("crop_size")) if content.get("do_center_crop", False) else resize
    normalised = content.get("do_normalize", True)
    mean, std = (content.get(key) if normalised else None for key in ("image_mean", "image_std"))
    if resize is None or (normalised and (mean is None or std is None)):
        return None
    size = content.get("size")
    squashed = isinstance(size, Mapping) and "shortest_edge" not in size and not content.get("do_center_crop", False)
    pixels = Preprocess(resize, crop, tuple(mean or (0.0,) * 3), tuple(std or (1.0,) * 3))
    return Prepared(pixels, guessed=squashed)


def _hugging_face(spec: str, name: str, settings: Mapping[str, Any], *, download: bool) -> nn.Module:
    try:
        from transformers import AutoModelForImageClassification
    except ImportError as error:
        raise ConfigurationError(f"{spec} needs transformers: pip install transformers.") from error
    try:
        with without_bars():
            model: nn.Module = AutoModelForImageClassification.from_pretrained(
                name, local_files_only=not download, **settings
            )
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and "AutoModelForImageClassification" in str(error):
            raise ConfigurationError(
                f"{spec} does not classify images; if it reads texts, say axiograd explain {spec} review.txt, or in "
                "Python axiograd.text.explain."
            ) from error
        hint = "" if download or Path(name).is_dir() else " --download fetches it."
        raise DataMissingError(f"{spec} is not on this machine: {_first_line(error)}.{hint}") from error
    return model


@contextmanager
def without_bars() -> Iterator[None]:
    """Without transformers' bars for weights that are loaded in no time."""
    logging: Any = _import("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _import(module: str) -> Any:
    """A library's module; why it cannot be imported, in a sentence."""
    from importlib import import_module

    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{package} is not installed ({error}): pip install {package}.") from error
    except Exception as error:
        raise ConfigurationError(
            f"{package} is installed and cannot be imported beside torch {torch.__version__}: {_first_line(error)}. "
            "torch and torchvision come in pairs, of one version and for one kind of device."
        ) from error


def _made(spec: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except AxiogradError:
        raise
    except Exception as error:
        raise ConfigurationError(f"{spec} cannot be made: {_first_line(error)}.") from error


def _unknown(spec: str, name: str, known: list[str]) -> ConfigurationError:
    near = get_close_matches(name, known, n=3)
    meant = f"did you mean {' or '.join(near)}" if near else f"it knows {len(known):,} others"
    return ConfigurationError(
        f"{spec}: there is no such model; {meant}?" if near else f"{spec}: no such model; {meant}."
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
