"""Does it work on my model? Trained networks by `to_xdnn(model, examples)`: what is kept, what agrees, what it costs.

Accuracy before and after on images that nothing was converted with; how well X-Gradient of the converted network
agrees with Integrated Gradients of the original, beside Input×Gradient of the original; and the time of both.
"""

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import default_collate

import axiograd
from axiograd import InputXGradient, IntegratedGradients, XGradient
from axiograd.datasets import TensorData, fashion_mnist, shapes, tiny_imagenet
from axiograd.models import get_model
from benchmarks.ratios import ratio
from experiments import lab, loops, photos

#: Images that convert, that judge, and that are attributed.
CONVERTING, JUDGING, COMPARED = 200, 250, 4
NAMES = ("batchnorm", "squeezenet1_1", "resnet18", "mobilenet_v2", "resnet50")


class Case(NamedTuple):
    """A trained network, unlabelled images to convert it with, and others with their classes."""

    label: str
    model: nn.Module
    examples: Tensor
    images: Tensor
    classes: Tensor


def trained_here(*, quick: bool) -> Case:
    """A small network with BatchNorm, as anybody would train it."""
    torch.manual_seed(0)
    sets = [shapes(split, 400, size=28) if quick else fashion_mnist(split) for split in ("train", "test")]
    train, test = (TensorData((data.inputs - 0.286) / 0.353, data.targets, data.name) for data in sets)
    model = nn.Sequential(
        *(nn.Conv2d(train.inputs.shape[1], 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    loops.train(train, lambda x, y: F.cross_entropy(model(x), y), adam, epochs=2, batch=100, seed=0)
    label = "small CNN with BatchNorm, Fashion-MNIST"
    return Case(label, model.eval(), train.inputs[:CONVERTING], test.inputs[:JUDGING], test.targets[:JUDGING])


def pretrained(name: str) -> Case:
    """A network of `photos`, with images of its own training where there are some."""
    network = photos.NETWORKS[name]
    data = photos.images(name)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    others, rest = data, order[:CONVERTING]
    if name == "resnet18":
        others = tiny_imagenet("train", transform=network.preprocess)
        rest = torch.randperm(len(others), generator=torch.Generator().manual_seed(1)).tolist()[:CONVERTING]
    examples = default_collate([others[i] for i in rest])[0]
    images, classes = default_collate([data[i] for i in order[CONVERTING : CONVERTING + JUDGING]])
    return Case(network.label, get_model(name, weights="default").eval(), examples, images, classes * network.step)


@torch.no_grad()
def outputs(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([model(rows) for rows in images.split(25)])


def correlations(found: Tensor, wanted: Tensor) -> list[float]:
    """Over the features of each image."""
    rows = [each.flatten(1).double() for each in (found, wanted)]
    a, b = (each - each.mean(1, keepdim=True) for each in rows)
    return F.cosine_similarity(a, b, 1).tolist()


@lab.remember
def measured(name: str, quick: bool) -> dict[str, Any]:
    case = trained_here(quick=quick) if name == "batchnorm" else pretrained(name)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how much is lost is what is measured
        conversion = axiograd.to_xdnn(case.model, case.examples)
    seconds = time.process_time() - start
    before, after = outputs(case.model, case.images), outputs(conversion.model, case.images)
    path = IntegratedGradients(case.model, 128, internal_batch_size=16)
    plain, ours = InputXGradient(case.model), XGradient(conversion.model)
    ours.attribute(case.images[:1], before[:1].argmax(1))  # makes the proof
    wanted, found, input_x_gradient = [], [], []
    times: dict[str, list[float]] = {"path": [], "ours": []}
    for image, output in zip(case.images[:COMPARED].split(1), before[:COMPARED].split(1), strict=True):
        for which, method, kept in (("path", path, wanted), ("ours", ours, found)):
            start = time.process_time()
            kept.append(method.attribute(image, output.argmax(1)))
            times[which].append(time.process_time() - start)
        input_x_gradient.append(plain.attribute(image, output.argmax(1)))
    return {
        "label": case.label,
        "how": conversion.how,
        "seconds": seconds,
        "before": (before.argmax(1) == case.classes).tolist(),
        "after": (after.argmax(1) == case.classes).tolist(),
        "kept": (before.argmax(1) == after.argmax(1)).tolist(),
        "ours": correlations(torch.cat(found), torch.cat(wanted)),
        "plain": correlations(torch.cat(input_x_gradient), torch.cat(wanted)),
        "ratio": ratio(times, "path", "ours"),
    }


def run(*, quick: bool) -> lab.Result:
    rows = []
    for name in NAMES[:1] if quick else NAMES:
        found = measured(name, quick)
        row: dict[str, Any] = {"network": found["label"], "form": found["how"]}
        for column, key, scale in (
            ("top-1 % before", "before", 100),
            ("top-1 % after", "after", 100),
            ("same class %", "kept", 100),
            ("correlation with its IG(128)", "ours", 1),
            ("Input×Gradient", "plain", 1),
        ):
            row[column], row[f"{column} ±"] = lab.mean(scale * np.asarray(found[key], dtype=float))
        rows.append(row | {"time of IG(128)": f"{found['ratio']:.0f} ×", "processor s to convert": found["seconds"]})
    table = pd.DataFrame(rows)
    lost = table["top-1 % before"] - table["top-1 % after"]
    verdict = (
        f"Converted by default, {len(table)} networks lose {lab.span(lost, 'z.1f')} points of top-1; one gradient "
        f"correlates with Integrated Gradients of the original by {lab.span(table['correlation with its IG(128)'])}, "
        f"where Input×Gradient of the original has {lab.span(table['Input×Gradient'])}."
    )
    return lab.Result("Does it work on my model?", table, verdict, NOTE, DATA, "0")


DATA = f"Fashion-MNIST; Tiny ImageNet, 20 classes; {photos.DATA}"
NOTE = f"""\
`axiograd.to_xdnn(model, examples)` with {CONVERTING} unlabelled examples, and nothing else; accuracy on {JUDGING} other
images. The ImageNet photos are probably training images: before and after compare, the level does not. Correlations are
over the features of each of {COMPARED} images, for the class that the original predicts, zero baseline in normalised
space. Time is the processor's, of one image on one thread: Integrated Gradients of the original with 128 steps, 16 at a
time, over X-Gradient of the converted network."""
