"""Table 2: what removing the biases costs small networks trained from scratch, and one gradient beside IG(128).

The two of a pair share recipe, seed and order of the data; the schedule is one cycle. AlexNet and VGG11 are trained
with Adam, at a learning rate chosen for the regular networks; Fixup-ResNet-20 as its authors do, with SGD at 0.1 and a
tenth of it for biases and scales, but with gradients clipped to norm 1, without which the regular one may diverge.
"""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd import InputXGradient, IntegratedGradients, XGradient
from axiograd.metrics import mean_absolute_relative_difference
from experiments import lab, loops, networks

#: Top-5 accuracy in per cent on ImageNet, and difference to Integrated Gradients: of the regular network and the X-DNN.
PAPER = {
    "AlexNet, quarter width": ((79.21, 78.54), (79.0, 1.2)),
    "VGG11, quarter width": ((90.44, 90.25), (97.8, 0.4)),
    "Fixup-ResNet-20, half width": ((92.56, 91.12), (93.8, 0.0)),
}
PAPER_LOST = "AlexNet 0.67, VGG16 0.19, ResNet-50 1.44"
#: Points of accuracy that the paper's X-DNNs lose at most (ResNet-50, top-5), rounded up.
LOST = 1.5
EPOCHS = {"Fashion-MNIST": 4, "Tiny ImageNet, 20 classes": 8, "shapes": 2}
#: Contrasts of Figure 2, left, on so many test images.
CONTRASTS, CONTRASTED = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01), 1000


def runs(*, quick: bool) -> pd.DataFrame:
    """All trainings, one line each."""
    sets, seeds = (["shapes"], 1) if quick else (list(EPOCHS)[:2], 3)
    kinds = [(data, name, form) for data in sets for name in PAPER for form in ("regular", "strict X")]
    return pd.DataFrame([measured(name, form, data, seed) for data, name, form in kinds for seed in range(seeds)])


def run(*, quick: bool) -> lab.Result:
    return result(runs(quick=quick))


@lab.remember
def measured(network: str, form: str, data: str, seed: int) -> dict:
    """Train one network, and judge it."""
    train, test = networks.images(data)
    torch.manual_seed(seed)
    model = networks.build(network, form, data)
    loops.train(
        train.select(slice(20_000)),
        lambda x, y: F.cross_entropy(model(x), y),
        optimizer(model, fixup="Fixup" in network),
        epochs=EPOCHS[data],
        batch=64,
        seed=seed,
        augment=flip,
        clip=1.0 if "Fixup" in network else None,
    )
    return {"data": data, "network": network, "form": form, "seed": seed, **judged(model, test, form == "regular")}


def optimizer(model: nn.Module, *, fixup: bool) -> torch.optim.Optimizer:
    if not fixup:
        return torch.optim.Adam(model.parameters(), 2e-3, weight_decay=1e-4)
    groups: dict[float, list[nn.Parameter]] = {0.1: [], 0.01: []}
    for name, parameter in model.named_parameters():
        groups[0.1 if name.endswith("weight") else 0.01].append(parameter)
    rated = [{"params": found, "lr": rate} for rate, found in groups.items() if found]
    return torch.optim.SGD(rated, momentum=0.9, weight_decay=1e-4)


def flip(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Half of the images mirrored."""
    return torch.where((torch.rand(len(x)) < 0.5)[:, None, None, None], x.flip(-1), x), y


def judged(model: nn.Module, test: networks.TensorData, regular: bool) -> dict:
    """Accuracies in per cent, at full and at lower contrast, and the difference to IG(128) on 100 images."""
    model.eval()
    among = networks.logits(model, test.inputs).topk(min(5, len(test.names)), 1).indices == test.targets[:, None]
    some, images = test.select(slice(CONTRASTED)), test.inputs[: min(100, len(test) // 10)]
    at = {alpha: loops.accuracy(model, replace(some, inputs=alpha * some.inputs)) for alpha in CONTRASTS}
    predicted = networks.logits(model, images).argmax(1)
    single = (InputXGradient if regular else XGradient)(model).attribute(images, predicted)
    exact = IntegratedGradients(model, 128, internal_batch_size=500).attribute(images, predicted)
    found = {"top-1 %": loops.accuracy(model, test), "top-5 %": 100 * float(among.any(1).float().mean())}
    return found | {"difference to IG %": 100 * mean_absolute_relative_difference(single, exact).value, **at}


def contrast(found: pd.DataFrame) -> Iterator[dict]:
    """The curves of Figure 2, left: means over seeds."""
    for (data, name, form), seeds in found.groupby(["data", "network", "form"], sort=False):
        yield {"network": f"{name}, {data}", "form": form, **seeds[list(CONTRASTS)].mean().to_dict()}


def result(found: pd.DataFrame, note: str = "", title: str = "") -> lab.Result:
    """Of each pair the regular network and the others, seeds together, with what they lose."""
    lines, lost = [], {}
    for (data, name, form), seeds in found.groupby(["data", "network", "form"], sort=False):
        line = {"data": data, "network": name, "form": form}
        regular = found[(found["data"] == data) & (found["network"] == name) & (found["form"] == "regular")]
        gap = regular.set_index("seed")["top-1 %"] - seeds.set_index("seed")["top-1 %"]
        for column, values in {**seeds[["top-1 %", "top-5 %"]], "lost top-1": gap}.items():
            line[column], line[f"{column} ±"] = lab.mean(values)
        if form == "regular":
            line["lost top-1"] = None
        elif form == "strict X":
            lost[data, name] = lab.mean(gap)
        line["difference to IG %"] = f"{seeds['difference to IG %'].mean():.3g}"
        top5, difference = (pair[form != "regular"] for pair in PAPER[name]) if form in FORMS else ("", "")
        lines.append(line | {"paper top-5 %": str(top5), "paper difference %": str(difference)})
    within = [mean + 2 * (0 if pd.isna(error) else error) <= LOST for mean, error in lost.values()]
    said = "Reproduces" if all(within) else "In part" if 2 * sum(within) >= len(within) else "Does not reproduce"
    each = []
    for (data, name), (mean, error) in lost.items():
        spread = "" if pd.isna(error) else f" ± {error:.1f}"
        each.append(f"{name.partition(',')[0]} on {data.partition(',')[0]} {mean:z.1f}{spread}")
    verdict = (
        f"{said}: {sum(within)} of {len(within)} pairs lose no more than {LOST:g} points of top-1 without their "
        f"biases, two standard errors added: {', '.join(each)} (paper, top-5: {PAPER_LOST})."
    )
    title = title or "Table 2: accuracy without biases, and difference to Integrated Gradients"
    data = "Fashion-MNIST; Tiny ImageNet, 20 classes, 32 px"
    return lab.Result(title, pd.DataFrame(lines), verdict, note or NOTE, data, lab.span(found["seed"], "d"))


FORMS = ("regular", "strict X")
NOTE = (
    "Mean ± standard error over seeds. Lost is the regular network's top-1 minus this one's, in points. Difference is "
    "the mean absolute relative difference to Integrated Gradients with 128 steps of Input×Gradient (regular) or "
    "X-Gradient (X), components below 1/1000 of the mean left out. The paper's columns are of AlexNet, VGG16 and "
    "Fixup-ResNet-50 on ImageNet's validation split: other networks and images, so only the losses compare. Batches of "
    "64, weight decay 1e-4, mirrored images: 20,000 of Fashion-MNIST for 4 epochs, 10,000 of Tiny ImageNet for 8."
)
