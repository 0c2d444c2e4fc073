"""The right half of Table 2 and the convergence figure, on pretrained networks.

    python -m axiograd.experiments.difference_pretrained --photos 100 --output results/difference.json

For each network: the mean absolute relative difference of Input×Gradient (regular) or X-Gradient (stripped, lifted) to
Integrated Gradients with 128 steps, and how Integrated Gradients of the regular network converge to 300 steps. The
attributed output is the predicted class, the zero baseline is zero after normalisation.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from axiograd.attribution import InputXGradient, IntegratedGradients, XGradient
from axiograd.datasets import IMAGENET, SQUEEZENET, TINY_IMAGENET, ImageFiles, imagenet_sample, tiny_imagenet
from axiograd.homogeneity import to_xdnn
from axiograd.metrics import integrated_gradients_convergence, mean_absolute_relative_difference
from axiograd.models import get_model

#: Photos in memory at once; Integrated Gradients take as many rows again.
BATCH, ROWS = 4, 16

#: The pretrained networks and the photos that each was made for.
PRETRAINED: Mapping[str, Callable[[], ImageFiles]] = {
    "squeezenet1_1": lambda: imagenet_sample(transform=SQUEEZENET),
    "mobilenet_v2": lambda: imagenet_sample(transform=IMAGENET),
    "resnet18": lambda: tiny_imagenet("val", transform=TINY_IMAGENET),
}


def networks(name: str, example: Tensor) -> dict[str, nn.Module]:
    """A pretrained network and the X-DNNs made of it."""
    regular = get_model(name, weights="default").eval()
    made = {how: to_xdnn(regular, example, how=how).model.eval() for how in ("strip", "lift")}
    return {"regular": regular, "stripped": made["strip"], "lifted": made["lift"]}


def difference(model: nn.Module, images: Tensor, *, homogeneous: bool) -> dict[str, Any]:
    """Table 2's number for one network, and what it leaves out."""
    attributed, integrated = [], []
    for batch in images.split(BATCH):
        with torch.no_grad():
            predicted = model(batch).argmax(1)
        single = (XGradient if homogeneous else InputXGradient)(model)
        attributed.append(single.attribute(batch, predicted))
        integrated.append(IntegratedGradients(model, 128, internal_batch_size=ROWS).attribute(batch, predicted))
    found = mean_absolute_relative_difference(torch.cat(attributed), torch.cat(integrated))
    return {name: value for name, value in vars(found).items() if name != "per_sample"}


def convergence(model: nn.Module, images: Tensor) -> dict[str, Any]:
    """Mean |IG(n) − IG(300)| for n = 1 … 256, with standard errors over photos."""
    parts = []
    for batch in images.split(BATCH):
        with torch.no_grad():
            predicted = model(batch).argmax(1)
        parts.append(integrated_gradients_convergence(model, batch, predicted, internal_batch_size=ROWS))
    whole = torch.cat([part.per_sample for part in parts], dim=1)
    errors = whole.std(1) / whole.shape[1] ** 0.5
    return {"steps": parts[0].steps, "differences": whole.mean(1).tolist(), "standard_errors": errors.tolist()}


def run(name: str, *, n_photos: int, n_convergence: int, seed: int = 0) -> dict[str, Any]:
    """Everything for one pretrained network; photos are drawn by the seed."""
    photos = PRETRAINED[name]()
    order = torch.randperm(len(photos), generator=torch.Generator().manual_seed(seed))[:n_photos].tolist()
    images = default_collate([photos[i] for i in order])[0]
    made = networks(name, images[:BATCH])
    return {
        "photos": len(images),
        "seed": seed,
        **{kind: difference(model, images, homogeneous=kind != "regular") for kind, model in made.items()},
        **({"convergence": convergence(made["regular"], images[:n_convergence])} if n_convergence else {}),
    }


def main() -> None:
    """Run from the command line; what has been measured is written after each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=100)
    parser.add_argument("--convergence-photos", type=int, default=20)
    parser.add_argument("--networks", nargs="+", default=list(PRETRAINED), choices=list(PRETRAINED))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    results = {}
    for name in options.networks:
        results[name] = run(name, n_photos=options.photos, n_convergence=options.convergence_photos, seed=options.seed)
        options.output.write_text(json.dumps(results, indent=2))
        sys.stdout.write(f"{name}: {json.dumps(results[name])}\n")


if __name__ == "__main__":
    main()
