"""Contrast-equivariant regression: a denoiser with and without biases, at noise and contrast outside its training.

A small DnCNN, regular (biases, BatchNorm) and X (neither means nor shifts), is trained on grey patches of photos with
noise up to a level, and judged by PSNR on other photos: at that noise and above it, and with image and noise multiplied
by α, where what is judged is the output divided by α. Beside them a bias-free DnCNN that others have trained. Where the
X form's attribution lies is measured too: the share of |A| of the middle pixel's output within two pixels of it.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd import XGradient
from axiograd.datasets import Preprocess, TensorData, imagenet_sample, shapes
from axiograd.models import get_model
from experiments import lab, loops

#: Standard deviations of the noise, in 255ths: up to the first in training, then inside and outside of it.
TRAINED, LEVELS, CONTRASTS = 30, (10, 30, 50, 75), (0.5, 0.25, 0.1)
PATCH, SIDE, NEAR = 32, 96, 2
PUBLISHED = "bias-free, published"


@cache
def photos(quick: bool) -> tuple[str, Tensor]:
    """Grey images in [0, 1]; the first of them judge."""
    if quick:
        data = shapes("test", 12)
        return data.name, F.interpolate(data.inputs.mean(1, keepdim=True), size=SIDE)
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


@lab.remember
def trained(form: str, seed: int, quick: bool) -> dict[str, float]:
    """One denoiser, and what it does on images that taught nothing."""
    n, epochs, judged, size = (64, 1, 2, (4, 8)) if quick else (3000, 6, 40, (8, 32))
    images = photos(quick)[1]
    if form == PUBLISHED:
        model = get_model("xdncnn", weights="default")
    else:
        pieces = patches(images[judged:], n, seed)
        torch.manual_seed(seed)
        model = get_model("dncnn", homogeneous=form == "X", depth=size[0], width=size[1])

        def loss(x: Tensor, _: Tensor) -> Tensor:
            levels = torch.rand(len(x), 1, 1, 1) * TRAINED / 255
            return F.mse_loss(model(x + levels * torch.randn_like(x)), x)

        data = TensorData(pieces, torch.zeros(n), "patches")
        loops.train(data, loss, torch.optim.Adam(model.parameters(), 2e-3), epochs=epochs, batch=32, seed=seed)
    return judge(model.eval(), images[:judged, :, :SIDE, :SIDE], attributions=form != "regular")


@torch.no_grad()
def judge(model: nn.Module, images: Tensor, *, attributions: bool) -> dict[str, float]:
    """PSNR by noise level and by contrast, and how near the attribution of the middle pixel lies."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    noisy = {level: images + level / 255 * noise for level in LEVELS}
    found = {f"σ = {level}": psnr(model(x), images) for level, x in noisy.items()}
    found |= {f"α = {a:g}": psnr(model(a * noisy[TRAINED]) / a, images) for a in CONTRASTS}
    for level in (10, 50) if attributions else ():
        found[f"near, σ = {level} %"] = 100 * near_share(model, noisy[level][:8])
    return found


def psnr(ours: Tensor, theirs: Tensor) -> float:
    """Peak signal-to-noise ratio in dB, mean of the images."""
    return float(-10 * (ours - theirs).square().flatten(1).mean(1).log10().mean())


def near_share(model: nn.Module, noisy: Tensor) -> float:
    """The share of |A| of the middle pixel's output that lies within two pixels of it."""
    middle = noisy.shape[-1] // 2
    a = XGradient(model).attribute(noisy, lambda output: output[:, 0, middle, middle]).abs()
    near = a[..., middle - NEAR : middle + NEAR + 1, middle - NEAR : middle + NEAR + 1]
    return float((near.flatten(1).sum(1) / a.flatten(1).sum(1)).mean())


def run(*, quick: bool) -> lab.Result:
    """A pair per seed, and with real data the published one."""
    jobs = [(form, seed) for form in ("regular", "X") for seed in range(1 if quick else 2)]
    jobs += [] if quick else [(PUBLISHED, 0)]
    name, images = photos(quick)
    found = [{"denoiser": form, **trained(form, seed, quick)} for form, seed in jobs]
    judged = images[: 2 if quick else 40, :, :SIDE, :SIDE]
    noise = torch.randn(judged.shape, generator=torch.Generator().manual_seed(1))
    found.append(
        {"denoiser": "the noisy image", **{f"σ = {s}": psnr(judged + s / 255 * noise, judged) for s in LEVELS}}
    )
    return summary(found, name)


def summary(runs: list[dict[str, Any]], data: str) -> lab.Result:
    """A line for each form."""
    table = loops.over_seeds(runs, by=["denoiser"]).drop(columns=[f"near, σ = {level} % ±" for level in (10, 50)])
    found = table.set_index("denoiser")
    regular, x = ([found[column][form] for column in ("σ = 30", "α = 0.1")] for form in ("regular", "X"))
    verdict = (
        f"At a tenth of the contrast the regular denoiser goes from {regular[0]:.1f} to {regular[1]:.1f} dB, the X-DNN "
        f"from {x[0]:.1f} to {x[1]:.1f}."
    )
    return lab.Result("Denoising outside the training's noise and contrast", table, verdict, NOTE, data, "0 and 1")


NOTE = f"""\
PSNR in dB, mean ± standard deviation of two seeds. σ is the noise in 255ths; training had up to {TRAINED} (published:
55). α multiplies image and noise (σ = {TRAINED}), and the output is divided by it: an X-DNN answers as at α = 1. Near:
the share of |X-Gradient| of the middle pixel's output within two pixels of it; with more noise a denoiser has to
average over more of the image. The regular form has no X-Gradient. The idea is that of Mohan et al. (2020); the paper
names restoration as a field where contrast equivariance is wanted."""
