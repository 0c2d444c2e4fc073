"""Attributions of a regular network and of X-DNNs at full and at low contrast: figure 2, right, and figure 4.

Maps are shown without the photos, which are not ours to publish.
"""

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from axiograd import InputXGradient, IntegratedGradients, XGradient
from experiments import lab, photos

CONTRASTS = (1.0, 0.3)
#: 1 − cosine below which a map has kept its shape.
KEPT = 1e-4


@lab.remember
def measured(network: str, form: str, image: int) -> dict:
    """Maps of one backward pass and of IG(128) at both contrasts, as they are shown, and how they differ."""
    model = photos.load(network, form)
    single = (InputXGradient if form == "regular" else XGradient)(model)
    integrated = IntegratedGradients(model, 128, internal_batch_size=16)
    ((inputs, labels),) = photos.batches(network, [image], 1)
    fast, exact = (
        [method.attribute(alpha * inputs, labels)[0].double() for alpha in CONTRASTS] for method in (single, integrated)
    )
    apart = [float((a - b).abs().sum() / b.abs().sum()) for a, b in zip(fast, exact, strict=True)]
    change = [1 - float(F.cosine_similarity(*(each.flatten() for each in pair), dim=0)) for pair in (fast, exact)]
    values = dict(zip(COLUMNS, (*apart, *change), strict=True))
    maps = [[shown(each) for each in pair] for pair in zip(fast, exact, strict=True)]
    return {"network": network, "form": form, "image": image, "class": class_of(network, image), **values, "maps": maps}


COLUMNS = ("to IG, α = 1", "to IG, α = 0.3", "change with contrast", "change of IG")


def shown(attribution: torch.Tensor) -> np.ndarray:
    """The sum over channels, averaged over 2 × 2 pixels where it is large, in units of its 99th percentile."""
    summed = attribution.sum(0, keepdim=True)
    summed = F.avg_pool2d(summed, 2)[0] if summed.shape[-1] > 128 else summed[0]
    return (summed / summed.abs().flatten().quantile(0.99)).clamp(-1, 1).numpy()


def class_of(network: str, image: int) -> str:
    data = photos.images(network)
    return data.classes[int(data.targets[image])].replace("_", " ") if network != "small" else "shape"


def result(found: list[dict], title: str) -> lab.Result:
    lines = [
        {"image": one["class"], "network": photos.title(one["network"], one["form"])}
        | {column: f"{one[column]:.1e}" for column in COLUMNS}
        for one in found
    ]
    change = {
        kind: [one["change with contrast"] for one in found if (one["form"] == "regular") == (kind == "regular")]
        for kind in ("regular", "X")
    }
    holds = max(change["X"]) < KEPT < min(change["regular"])
    verdict = (
        f"{'Reproduces' if holds else 'Does not reproduce'}: attributions of X-DNNs keep their shape at three tenths "
        f"of the contrast (1 − cosine {lab.span(change['X'], '.1g')}), those of regular networks do not "
        f"({lab.span(change['regular'])})."
    )
    note = (
        "To IG: Σ|A − IG(128)| / Σ|IG(128)|, with A Input×Gradient on the regular network and X-Gradient on X-DNNs. "
        "Change: 1 − cosine between the attributions at full contrast and at α = 0.3. The paper: on an X-DNN both are "
        "identical up to the error of the steps, on a regular network both differ. Maps are sums over channels, each "
        "in its own units: blue is against the class, red for it."
    )
    return lab.Result(title, pd.DataFrame(lines), verdict, note, photos.DATA, "0 (order of the images)", draw(found))


def draw(found: list[dict]):
    """Rows are images at two contrasts; columns are forms, X-DNNs first as in the paper, each with two methods."""
    images = list(dict.fromkeys((one["network"], one["image"]) for one in found))
    forms = max(sum((one["network"], one["image"]) == image for one in found) for image in images)
    figure = lab.Figure(figsize=(2.4 * forms + 0.6, 2.4 * len(images) + 0.4), layout="constrained")
    axes = figure.subplots(2 * len(images), 2 * forms, squeeze=False)
    for each in axes.ravel():
        each.set(xticks=[], yticks=[])
    for place, image in enumerate(images):
        here = [one for one in found if (one["network"], one["image"]) == image]
        for column, one in enumerate(sorted(here, key=lambda one: one["form"] == "regular")):
            for row, alpha in enumerate(CONTRASTS):
                for method in (0, 1):
                    each = axes[2 * place + row, 2 * column + method]
                    each.imshow(one["maps"][row][method], cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
                    if row == 0:
                        fast = "I×G" if one["form"] == "regular" else "X-Gradient"
                        each.set_title(f"{one['form']}\n{'IG' if method else fast}", fontsize=8)
                label = f"{photos.NETWORKS[image[0]].label}\n{one['class']}, α = {alpha:g}"
                axes[2 * place + row, 0].set_ylabel(label, fontsize=7)
    return figure
