"""Does the attribution suffer where biases are carried? Masking metrics of one gradient against IG(128).

X-Gradient of X-DNNs with carried biases and without any, Integrated Gradients and Input×Gradient of the regular
network; each judged on its own network, and on the regular one, by areas under masking curves above those of random
attributions, image by image, so that differences to Integrated Gradients are paired.
"""

from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from axiograd import InputXGradient, IntegratedGradients, RandomAttribution, XGradient
from axiograd.metrics import masking_curves
from experiments import lab, networks
from experiments.carried_training import FIXUP, TINY

METRICS = ("KPM", "KNM", "KAM", "RAM")
STEPS, IMAGES, EPOCHS, SEEDS = 128, 200, 40, (0, 1, 2)
QUICK = ("AlexNet, quarter width", "shapes", 2, (0,))
METHODS = {
    "IG(128), regular": "regular",
    "Input×Gradient, regular": "regular",
    "X-Gradient, carried": "carried",
    "X-Gradient, strict X": "strict X",
}


def attributions(method: str, model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    if method.startswith("IG"):
        return IntegratedGradients(model, STEPS, internal_batch_size=512).attribute(x, target)
    return (XGradient if method.startswith("X") else InputXGradient)(model).attribute(x, target)


@lab.remember
def gains(network: str, data: str, epochs: int, seed: int, images: int) -> pd.DataFrame:
    """Areas above those of random attributions, signed so that more is better; a row per method, judge and image."""
    _, test = networks.images(data)
    x, labels = test.inputs[:images], test.targets[:images]
    models = {form: networks.load(network, form, data, epochs, seed) for form in set(METHODS.values())}
    random = RandomAttribution(models["regular"], generator=torch.Generator().manual_seed(seed)).attribute(x, labels)
    rows = []
    for method, form in METHODS.items():
        found = attributions(method, models[form], x, labels)
        for judge in dict.fromkeys((form, "regular")):
            curves, chance = (masking_curves(models[judge], x, each, labels) for each in (found, random))
            areas = {metric: (curves[metric].areas - chance[metric].areas).tolist() for metric in METRICS}
            judged = "the regular network" if judge != form else "its own network"
            rows.append(pd.DataFrame(areas).assign(method=method, judged=judged, image=range(images), seed=seed))
    return pd.concat(rows)


def run(*, quick: bool) -> lab.Result:
    network, data, epochs, seeds = QUICK if quick else (FIXUP, TINY, EPOCHS, SEEDS)
    images = 16 if quick else IMAGES
    found = pd.concat([gains(network, data, epochs, seed, images) for seed in seeds]).reset_index(drop=True)
    found[["KNM", "RAM"]] *= -1
    reference = found[found["method"] == "IG(128), regular"].set_index(["seed", "image"])[list(METRICS)]
    rows: list[dict[str, Any]] = []
    for (method, judged), each in found.groupby(["method", "judged"], sort=False):
        aligned = each.set_index(["seed", "image"])[list(METRICS)]
        row: dict[str, Any] = {"attribution": method, "judged on": judged}
        found_by = {"": aligned} | ({} if method.startswith("IG") else {" less IG": aligned - reference})
        for name, values in found_by.items():
            means = values.groupby("image").mean()  # the images are the same for every seed
            for metric in METRICS:
                row |= {f"{metric}{name}": means[metric].mean(), f"{metric}{name} ±": means[metric].sem()}
        rows.append(row)
    table = pd.DataFrame(rows)
    carried = table[(table["attribution"] == "X-Gradient, carried")].iloc[0]
    against = ", ".join(f"{m} {carried[f'{m} less IG']:+.2f} ± {carried[f'{m} less IG ±']:.2f}" for m in METRICS)
    return lab.Result(
        title="What one gradient marks in networks with carried biases",
        table=table,
        verdict=f"X-Gradient of the carried network, minus IG(128) of the regular one, each on its own: {against}.",
        note=(
            f"Gains over random attributions, {images} test images for each of {len(seeds)} seeds, target the label; "
            "more is better (the signs of KNM and RAM are turned). KPM and KNM are in logits, which have other scales "
            "in other networks; KAM and RAM in points of accuracy. Standard errors over images, after averaging over "
            "seeds; differences to IG(128) of the regular network are paired by image."
        ),
        data=data,
        seed=", ".join(map(str, seeds)),
    )
