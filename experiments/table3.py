"""Table 3: KPM, KNM, KAM and RAM of every method, on regular networks and on X-DNNs."""

from itertools import combinations

import pandas as pd
import torch

from axiograd.attribution.methods import find_method
from axiograd.metrics import masking_curves
from experiments import lab, photos

METRICS = ("KPM", "KNM", "KAM", "RAM")
#: The rows, by the names of `axiograd.attribution.methods`. On an X-DNN, Input×Gradient is X-Gradient.
METHODS = {
    "IG (128)": "integrated-gradients",
    "Random": "random",
    "Grad (1)": "gradient",
    "EG (1)": "expected-gradients",
    "Input×Gradient (1)": "input-x-gradient",
    "X-Gradient (1)": "x-gradient",
    "Occlusion": "occlusion",
}
#: The paper's numbers on AlexNet and on X-AlexNet.
PAPER = {
    "regular": {
        "IG (128)": (7.57, 1.67, 25.22, 11.12),
        "Random": (3.68, 3.68, 14.12, 14.10),
        "Grad (1)": (3.62, 3.88, 20.78, 11.82),
        "EG (1)": (4.92, 2.97, 20.49, 13.76),
    },
    "X": {
        "IG (128)": (7.38, 2.21, 21.79, 11.68),
        "Random": (3.81, 3.81, 13.52, 13.50),
        "Grad (1)": (3.87, 4.34, 19.75, 11.25),
        "EG (1)": (5.41, 3.19, 19.47, 13.19),
        "X-Gradient (1)": (7.38, 2.21, 21.83, 11.68),
    },
}
#: Images in all and in a piece; Occlusion, which takes a pass for every window, has the first piece of SqueezeNet.
SIZES = {"small": (8, 4), "squeezenet1_1": (500, 20), "resnet50": (6, 2)}


def run(*, quick: bool) -> lab.Result:
    found = []
    for name, form in photos.forms(*(["small"] if quick else ["squeezenet1_1", "resnet50"])):
        images, size = SIZES[name]
        for method in METHODS:
            if method == ("X-Gradient (1)" if form == "regular" else "Input×Gradient (1)"):
                continue
            last = {"Occlusion": 0 if name == "resnet50" else size}.get(method, images)
            found += [measured(name, form, method, start, start + size) for start in range(0, last, size)]
    return result(pd.concat(found))


@lab.remember
def measured(network: str, form: str, method: str, start: int, stop: int) -> pd.DataFrame:
    """The four areas of each image; what is drawn depends on the place of the piece alone."""
    model, data = photos.load(network, form), photos.images(network)
    many = {"steps": 128, "internal_batch_size": 16} if method.startswith("IG") else {}
    generator = torch.Generator().manual_seed(start)
    attribution = find_method(METHODS[method]).build(model, references=data, generator=generator, **many)
    areas = []
    for inputs, labels in photos.batches(network, photos.order(network)[start:stop], 4):
        curves = masking_curves(model, inputs, attribution.attribute(inputs, labels), labels, max_rows=32)
        areas.append(pd.DataFrame({metric: curves[metric].areas.tolist() for metric in METRICS}))
    found = pd.concat(areas, ignore_index=True)
    return found.assign(network=network, form=form, method=method, image=range(start, start + len(found)))


def result(found: pd.DataFrame) -> lab.Result:
    lines, pairs, on_par = [], [], []
    for (name, form), of_network in found.groupby(["network", "form"], sort=False):
        paper = PAPER["regular" if form == "regular" else "X"]
        by_method = {method: of_network[of_network["method"] == method].set_index("image") for method in METHODS}
        for method, areas in by_method.items():
            if areas.empty:
                continue
            line = {"network": photos.title(name, form), "method": method}
            for metric, arrow in zip(METRICS, "↑↓↑↓", strict=True):
                column = f"{metric} {arrow}"
                line[column], line[f"{column} ±"] = lab.mean(areas[metric])
            theirs = paper.get(method) if photos.NETWORKS[name].paper == "AlexNet" else None
            line |= {f"paper {metric}": f"{theirs[i]:.2f}" if theirs else "" for i, metric in enumerate(METRICS)}
            lines.append(line | {"images": len(areas)})
        for one, other in combinations([method for method in paper if len(by_method[method])], 2):
            for i, metric in enumerate(METRICS):
                gap, error = lab.mean(by_method[one][metric] - by_method[other][metric])
                if papers := paper[one][i] - paper[other][i]:
                    pairs.append({"sign": gap * papers, "clear": abs(gap) > 2 * error, "network": name})
                if (one, other) == ("IG (128)", "X-Gradient (1)"):
                    on_par.append((abs(gap), abs(gap) / error if gap else 0.0))
    return lab.Result(
        "Table 3: masking metrics of attribution methods",
        pd.DataFrame(lines),
        judged(pd.DataFrame(pairs), *zip(*on_par, strict=True)),
        NOTE,
        photos.DATA,
        "0 (order of the images, draws of Random and EG)",
    )


def judged(pairs: pd.DataFrame, points: tuple[float, ...], errors: tuple[float, ...]) -> str:
    """Whether X-Gradient is on par with IG(128), and the order of the methods that of the paper."""
    agree, turned = pairs[pairs["sign"] > 0], pairs[pairs["sign"] < 0]
    clear = int(turned["clear"].sum())
    order = "Does not reproduce" if 2 * len(agree) < len(pairs) else "In part" if clear else "Reproduces"
    alone = [
        f"{photos.NETWORKS[name].label} {int((here['sign'] > 0).sum())} of {len(here)}"
        for name, here in pairs.groupby("network", sort=False)
    ]
    return (
        f"{'Reproduces' if max(errors) <= 2 else 'Does not reproduce'}: X-Gradient is on par with 128 steps, in "
        f"{len(errors)} areas at most {max(errors):.1f} standard errors of the paired difference and {max(points):.2g} "
        f"points apart. {order}: {len(agree)} of {len(pairs)} pairs of methods are in the paper's order "
        f"({', '.join(alone)}), {len(turned) - clear} are reversed by less than two standard errors, {clear} by more."
    )


NOTE = (
    "Areas under the masking curves, mean ± standard error over images; KPM and KNM in units of the target's logit, "
    "KAM and RAM in per cent of top-1 accuracy. The number in parentheses counts gradients; Occlusion hides windows of "
    "an eighth of a side. The paper's columns are of AlexNet and X-AlexNet on ImageNet's validation split; ours are of "
    "pretrained networks and the X-DNNs made of them without training, on photos that they were probably trained on, "
    "so that at best the order of the methods compares, and not the numbers. The calibrated ResNet-50 was fitted to "
    f"{photos.FITTED} photos, none of which judges. The scores of the regular SqueezeNet are never negative, because "
    "of its last ReLU: many masked images have the score 0, where AlexNet's go below."
)
