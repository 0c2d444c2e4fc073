"""Pretrained networks and what each conversion makes of them; calibrated and taught on images that judge nothing."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from axiograd.datasets import Preprocess, imagenet_sample, tiny_imagenet
from axiograd.experiments import image_networks
from axiograd.experiments.image_networks import CALIBRATION, FAMILIES, Family, Images
from axiograd.experiments.item import Scale, Setting
from axiograd.homogeneity import Calibration, to_xdnn
from axiograd.homogeneity.conversion import OverfittingWarning
from axiograd.training import Recipe
from axiograd.training.distill import TaughtAttributions, distill

FORMS = ("original", "strip", "calibrated", "bias-free", "distilled", "taught", "lift")
#: Distilled from the bias-free form, on further images; where there are any.
FOLLOWING = "bias-free, distilled"


@dataclass(frozen=True)
class Pretrained:
    """A network, and how many images it is measured on."""

    family: Family
    #: Images that calibrate, and others that judge.
    calibrate: int
    judge: int
    #: Of those that judge, how many are compared with Integrated Gradients, and how many are masked.
    compared: int
    masked: int
    forms: tuple[str, ...] = FORMS
    #: Unlabelled images beside those that calibrate, for the bias-free form to follow the original on.
    further: int = 0


SUBJECTS: Mapping[Scale, tuple[Pretrained, ...]] = {
    "quick": (Pretrained(FAMILIES["quick"][0], 40, 40, 1, 2, (*FORMS, FOLLOWING), 20),),
    "real": (
        Pretrained(FAMILIES["real"][0], 250, 250, 2, 12),
        Pretrained(FAMILIES["real"][2], 250, 500, 4, 24, (*FORMS, FOLLOWING), 1500),
        Pretrained(FAMILIES["real"][1], 64, 250, 1, 8, tuple(form for form in FORMS if form != "taught")),
        Pretrained(
            FAMILIES["real"][3], 48, 250, 1, 4, ("original", "strip", "calibrated", "bias-free", "lift", FOLLOWING), 202
        ),
    ),
}
#: The distillation behind a calibration, without labels.
RECIPE = Recipe(optimizer="adam", lr=2e-5, weight_decay=0.0, schedule="cosine", epochs=3, batch_size=16)

#: What the calibrated network learns of the original's attributions, and how.
TAUGHT = TaughtAttributions(weight=3.0, steps=8, window=2)
TEACHING = Recipe(optimizer="adam", lr=2e-4, weight_decay=0.0, schedule="cosine", epochs=2, batch_size=16)


@dataclass(frozen=True)
class Made:
    """One form of a network, the processor time that it took, and the images that it needed."""

    model: nn.Module
    seconds: float
    images: int
    #: Root mean square of c − 1 in the last layer on held-out images.
    constant_error: float = 0.0


def data_of(subject: Pretrained, setting: Setting) -> Images:
    """The images that judge, and for networks with one set, those that calibrate too."""
    return image_networks.images(subject.family, setting)


def order(subject: Pretrained, setting: Setting) -> tuple[list[int], list[int]]:
    """Places of the images that judge, and of those that calibrate, in the set of each."""
    found = image_networks.order(data_of(subject, setting), setting.seed)
    if subject.family.key == "resnet18":
        train = tiny_imagenet("train", transform=subject.family.preprocess)
        return found[: subject.judge], image_networks.order(train, setting.seed, subject.calibrate)
    return found[subject.calibrate :][: subject.judge], found[: subject.calibrate]


@lru_cache(maxsize=2)
def calibration_images(subject: Pretrained, setting: Setting, *, further: bool = False) -> Tensor:
    """What a network is calibrated and distilled on, or the further images; none of these judges."""
    data: Images = data_of(subject, setting)
    if subject.family.key == "resnet18":
        data = tiny_imagenet("train", transform=subject.family.preprocess)
    chosen: Sequence[int] = order(subject, setting)[1]
    if further:
        used = {*chosen, *(() if subject.family.key == "resnet18" else order(subject, setting)[0])}
        chosen = [i for i in image_networks.order(data, setting.seed) if i not in used][: subject.further]
    images: Tensor = default_collate([data[i] for i in chosen])[0]
    return images


@lru_cache(maxsize=2)
def original(subject: Pretrained, setting: Setting) -> nn.Module:
    """The network as it was trained."""
    return image_networks.network(subject.family, "regular", setting)


@lru_cache(maxsize=2)
def make(subject: Pretrained, form: str, setting: Setting, n: int | None = None) -> Made:
    """One form of a network, from n images."""
    regular, images = original(subject, setting), calibration_images(subject, setting)[:n]
    start = time.process_time()
    if form == "original":
        return Made(regular, 0.0, 0)
    if form in {"strip", "lift"}:
        conversion = to_xdnn(regular, images[:CALIBRATION], how="strip" if form == "strip" else "lift")
        return Made(_ready(conversion.model), time.process_time() - start, CALIBRATION)
    calibration = Calibration(images, seed=setting.seed, read_biases=not form.startswith("bias-free"))
    with warnings.catch_warnings():
        # How much is lost with too few images is what is measured.
        warnings.simplefilter("ignore", OverfittingWarning)
        conversion = to_xdnn(regular, images[:2], calibration=calibration, how="calibrate")
    if form == FOLLOWING:
        images = torch.cat([images, calibration_images(subject, setting, further=True)])
    student = conversion.model.requires_grad_(form in {"distilled", "taught", FOLLOWING})
    follow = partial(distill, student, regular, seed=setting.seed, accelerator="cpu", progress=False)
    if form in {"distilled", FOLLOWING}:
        judging = torch.arange(len(images)) % 5 == 4  # noqa: PLR2004  # every fifth image judges when to stop
        follow(images[~judging], validation=images[judging], recipe=RECIPE)
    elif form == "taught":
        follow(images, attributions=TAUGHT, recipe=TEACHING)
    seconds = time.process_time() - start
    return Made(_ready(conversion.model), seconds, len(images), conversion.layers[-1].bias_error)


def _ready(model: nn.Module) -> nn.Module:
    model.eval().requires_grad_(False).to(image_networks.device())
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def noisy_photos(setting: Setting, n: int = 16, size: int = 64, sigma: float = 25 / 255) -> tuple[Tensor, Tensor]:
    """The middles of photos, grey in [0, 1], without and with noise."""
    data = imagenet_sample(transform=Preprocess(128, size, (0.0,) * 3, (1.0,) * 3))
    clean = torch.stack([data[i][0].mean(0, keepdim=True) for i in image_networks.order(data, setting.seed, n)])
    draws = torch.Generator().manual_seed(setting.seed)
    return clean, clean + sigma * torch.randn(clean.shape, generator=draws)
