"""Contrast-equivariant regression: a denoiser with and without biases, at noise and contrast outside its training.

    axiograd reproduce denoising

A small DnCNN, regular (biases, BatchNorm) and X (neither means nor shifts), is trained on grey patches of photos with
noise up to a level, and judged by PSNR on other photos: at that noise and above it, and with image and noise multiplied
by α, where what is judged is the output divided by α. Beside them a bias-free DnCNN that others have trained. Where the
X form's attribution lies is measured too: the share of |A| of the middle pixel's output within two pixels of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.attribution import XGradient
from axiograd.datasets import Preprocess, TensorData, imagenet_sample, shapes
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.loop import train_epochs
from axiograd.experiments.records import Records, mean_and_std
from axiograd.models import get_model

#: Standard deviations of the noise, in 255ths: up to the first in training, then inside and outside of it.
TRAINED, LEVELS = 30, (10, 30, 50, 75)
CONTRASTS = (1.0, 0.5, 0.25, 0.1)
#: Sides of patches and of judged images; noise of the attributions.
PATCH, SIDE, QUIET, LOUD = 32, 96, 10, 50
NEAR = 2
SEEDS: Mapping[str, int] = {"quick": 1, "real": 2}
SIZES: Mapping[str, Mapping[str, int]] = {
    "quick": {"patches": 64, "epochs": 1, "judged": 2, "depth": 4, "width": 8},
    "real": {"patches": 3000, "epochs": 6, "judged": 40, "depth": 8, "width": 32},
}
FORMS = {"regular": False, "X": True}
PUBLISHED = "bias-free, published"


@cache
def photos(scale: str) -> tuple[str, Tensor]:
    """Grey images in [0, 1]; the first of them judge."""
    if scale == "quick":
        data = shapes("test", 12)
        found = F.interpolate(data.inputs.mean(1, keepdim=True), size=SIDE)
        return data.name, found
    files = imagenet_sample(transform=Preprocess(128, 128, (0.0,) * 3, (1.0,) * 3))
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0)).tolist()
    return files.name, torch.stack([files[i][0].mean(0, keepdim=True) for i in order])


def patches(images: Tensor, n: int, seed: int) -> Tensor:
    """Square pieces at random places of random images."""
    draw = torch.Generator().manual_seed(seed)
    pieces = []
    for _ in range(n):
        image = images[int(torch.randint(len(images), (), generator=draw))]
        top, left = (int(torch.randint(side - PATCH + 1, (), generator=draw)) for side in image.shape[1:])
        pieces.append(image[:, top : top + PATCH, left : left + PATCH])
    return torch.stack(pieces)


def train(form: str, scale: str, seed: int) -> dict[str, Any]:
    """One denoiser, and what it does on images that taught nothing."""
    size = SIZES[scale]
    images = photos(scale)[1]
    taught = patches(images[size["judged"] :], size["patches"], seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = get_model("dncnn", homogeneous=FORMS[form], depth=size["depth"], width=size["width"])
        noisy = partial(_step, model)
        train_epochs(
            TensorData(taught, torch.zeros(len(taught), dtype=torch.long), "patches"),
            lambda x, _: noisy(x),
            torch.optim.Adam(model.parameters(), 2e-3),
            epochs=size["epochs"],
            batch=32,
            seed=seed,
        )
    return judge(model.eval(), images[: size["judged"], :, :SIDE, :SIDE], attributions=FORMS[form])


def _step(model: nn.Module, x: Tensor) -> Tensor:
    levels = torch.rand(len(x), 1, 1, 1) * TRAINED / 255
    return F.mse_loss(model(x + levels * torch.randn_like(x)), x)


def published(scale: str) -> dict[str, Any]:
    """The denoiser that others have trained, with noise up to 55."""
    size = SIZES[scale]
    model = get_model("xdncnn", weights="default").eval()
    return judge(model, photos(scale)[1][: size["judged"], :, :SIDE, :SIDE], attributions=True)


@torch.no_grad()
def judge(model: nn.Module, images: Tensor, *, attributions: bool) -> dict[str, Any]:
    """PSNR by noise level and by contrast, and how near the attribution of the middle pixel lies."""
    draw = torch.Generator().manual_seed(1)
    noise = torch.randn(images.shape, generator=draw)
    loud = {str(level): images + level / 255 * noise for level in LEVELS}
    found: dict[str, Any] = {
        "levels": {level: psnr(model(x), images).mean() for level, x in loud.items()},
        "contrasts": {f"{a:g}": psnr(model(a * loud[str(TRAINED)]) / a, images).mean() for a in CONTRASTS},
        "noisy": {level: psnr(x, images).mean() for level, x in loud.items()},
    }
    if attributions:
        found["near"] = {str(level): near_share(model, images[:8] + level / 255 * noise[:8]) for level in (QUIET, LOUD)}
    return found


def psnr(ours: Tensor, theirs: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each image in dB."""
    return -10 * (ours - theirs).square().flatten(1).mean(1).log10()


def near_share(model: nn.Module, noisy: Tensor) -> float:
    """The share of |A| of the middle pixel's output that lies within two pixels of it."""
    middle = noisy.shape[-1] // 2
    a = XGradient(model).attribute(noisy, lambda output: output[:, 0, middle, middle]).abs()
    near = a[..., middle - NEAR : middle + NEAR + 1, middle - NEAR : middle + NEAR + 1]
    return float((near.flatten(1).sum(1) / a.flatten(1).sum(1)).mean())


def plan(setting: Setting) -> Plan:
    """A pair per seed, and with real data the published one."""
    scale = setting.scale

    seeds = range(setting.seed, setting.seed + SEEDS[scale])
    work = [Work({"form": f, "seed": seed}, partial(train, f, scale, seed)) for seed in seeds for f in FORMS]
    if scale == "real":
        work.append(Work({"form": PUBLISHED, "seed": 0}, partial(published, scale), 0.5))
    settings = {"scale": scale, "seed": setting.seed, "noise_in_training": f"0 to {TRAINED} / 255", **SIZES[scale]}
    return Plan.of(photos(scale)[0], {**settings, "optimizer": "adam, 2e-3, one cycle, batch 32"}, work)


def table(records: Records) -> Table:
    """One line per form: PSNR by noise, then by contrast, then where attributions lie."""
    rows: list[tuple[Cell, ...]] = []
    for form in dict.fromkeys(piece.key["form"] for piece in records.pieces):
        values = [piece.values for piece in records.find(form=form)]
        cells = [mean_and_std([v["levels"][str(level)] for v in values]) for level in LEVELS]
        cells += [mean_and_std([v["contrasts"][f"{a:g}"] for v in values]) for a in CONTRASTS[1:]]
        near = [
            f"{100 * statistics.fmean(v['near'][str(level)] for v in values):.0f}" if "near" in values[0] else None
            for level in (QUIET, LOUD)
        ]
        rows.append((form, *cells, *near))
    if records.pieces:
        noisy = records.pieces[0].values["noisy"]
        rows.append(("the noisy image", *(f"{noisy[str(level)]:.1f}" for level in LEVELS), *[None] * 5))
    header = ("denoiser", *(f"σ = {level}" for level in LEVELS), *(f"α = {a:g}" for a in CONTRASTS[1:]))
    return Table((*header, f"near, σ = {QUIET} %", f"near, σ = {LOUD} %"), tuple(rows), NOTE)


NOTE = (
    f"PSNR in dB, mean ± standard deviation of two seeds. σ is the noise in 255ths; training had up to {TRAINED} "
    f"(published: 55). α multiplies image and noise (σ = {TRAINED}), and the output is divided by it: an X-DNN "
    "answers as at α = 1. Near: the share of |X-Gradient| of the middle pixel's output within two pixels of it; with "
    "more noise a denoiser has to average over more of the image. The regular form has no X-Gradient. The idea is "
    "that of Mohan et al. (2020); the paper names restoration as a field where contrast equivariance is wanted."
)

ITEM = Item("denoising", "Denoising outside the training's noise and contrast", plan, table, scales=("quick", "real"))
