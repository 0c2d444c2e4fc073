"""Figure 2, left: top-1 accuracy while the contrast falls, x → αx; with the networks trained for Table 2 beside."""

import pandas as pd
import torch

from experiments import lab, photos, table2

FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
#: Photos of each network.
IMAGES = {"small": 20, "squeezenet1_1": 500, "resnet50": 40}


def run(*, quick: bool) -> lab.Result:
    names = ["small"] if quick else ["squeezenet1_1", "resnet50"]
    curves = []
    for name, form in photos.forms(*names):
        correct = pd.concat([measured(name, form, start) for start in range(0, IMAGES[name], 20)])
        curves.append({"network": label(name), "form": form, **correct.mean().to_dict()})
    return result([*curves, *table2.contrast(table2.runs(quick=quick))])


@lab.remember
def measured(network: str, form: str, start: int) -> pd.DataFrame:
    """Of up to 20 images, 100 where the predicted class is the label at a contrast and 0 where not."""
    # The images that networks were converted with do not count.
    left_out = photos.spread(len(photos.images(network)))
    indices = [i for i in photos.order(network)[start : min(start + 20, IMAGES[network])] if i not in left_out]
    model, (inputs, labels) = photos.load(network, form), next(photos.batches(network, indices, 20))
    with torch.no_grad():
        right = {factor: 100.0 * (model(factor * inputs).argmax(1) == labels).double() for factor in FACTORS}
    return pd.DataFrame({factor: found.numpy() for factor, found in right.items()})


def label(name: str) -> str:
    return photos.NETWORKS[name].label + (f", {IMAGES[name]} photos" if IMAGES[name] < 100 else "")


def result(curves: list[dict]) -> lab.Result:
    """From the network, the form and the accuracy by contrast of each curve."""
    lost = {"regular": [], "X": []}
    for curve in curves:
        lost["regular" if curve["form"] == "regular" else "X"].append(curve[1.0] - curve[0.1])
    holds = max(map(abs, lost["X"])) < 1 < min(lost["regular"])
    verdict = (
        f"{'Reproduces' if holds else 'Does not reproduce'}: at a tenth of the contrast regular networks lose "
        f"{lab.span(lost['regular'], '.0f')} points of accuracy, X-DNNs {lab.span(lost['X'], '.1f')}."
    )
    table = pd.DataFrame(
        [{f"α = {key:g}" if key in FACTORS else key: value for key, value in c.items()} for c in curves]
    )
    ordered = table[["network", "form", *(f"α = {factor:g}" for factor in FACTORS)]]
    title = "Figure 2, left: accuracy at low contrast"
    return lab.Result(
        title, ordered.round(1), verdict, NOTE, f"{photos.DATA}; test images of Table 2", "0", draw(curves)
    )


def draw(curves: list[dict]):
    """Accuracy over contrast, falling from left to right as in the paper; one panel per network."""
    networks = list(dict.fromkeys(curve["network"] for curve in curves))
    across = min(len(networks), 4)
    down = -(-len(networks) // across)
    figure, axes = lab.figure(2.4 * across + 0.4, 2.7 * down, across, down)
    for each, network in zip(axes, networks, strict=False):
        for curve in curves:
            if curve["network"] == network:
                points = {alpha: curve[alpha] for alpha in FACTORS if alpha in curve}
                form = {"regular": "regular", "lifted": "lift", "calibrated": "calibrated"}.get(
                    curve["form"], "strict X"
                )
                style = {"color": lab.COLOURS[form], "marker": "o", "markersize": 3, "label": curve["form"]}
                each.plot(list(points), list(points.values()), **style)
        each.set_xlim(1.03, -0.03)
        each.set_ylim(bottom=0)
        each.set_title(network.replace(", ", "\n"), fontsize=8)
        each.set_xlabel("contrast α", fontsize=8)
        each.legend(fontsize=7, frameon=False, loc="lower left")
    for each in axes[::across]:
        each.set_ylabel("top-1 accuracy (%)", fontsize=8)
    return figure


NOTE = (
    "Top-1 accuracy in per cent of images multiplied by α after normalisation. The paper's figure shows that of "
    "AlexNet fall with the contrast and that of X-AlexNet unaffected; it gives no numbers. Networks that were trained "
    "for Table 2 follow, as means over its seeds, on the first 1,000 of their test images, so that α = 1 is not quite "
    "Table 2's accuracy. The photos are probably training images: these are no validation accuracies. The 16 that the "
    "conversions were made with do not count, nor for ResNet-50 those that its calibrated form was fitted to; its "
    "standard errors are 3 to 5 points at 95 to 90 %, and 8 at 50 %."
)
