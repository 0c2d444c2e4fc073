"""Draws docs/pictures: what training with each prior does to attributions. All but front need no data.

`PYTHONPATH=. python docs/pictures.py` draws all in some minutes, `PYTHONPATH=. python docs/pictures.py Gini L1` some.
"""

import copy
import io
import math
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor, nn

from axiograd import AttributionLoss, IntegratedGradients, XGradient, priors, report
from axiograd.datasets import TensorData, shapes
from axiograd.report.colours import overlay
from experiments import photos

FOLDER = Path(__file__).parent / "pictures"
WITHOUT, WITH, SHADE = "#6b6f76", "#e06a10", "#dfe8f1"
BOX = "#111111"
IMAGES, EPOCHS, BATCH, FEW = 1600, 10, 50, 100
SHOWN = 2  # images per picture
PIXELS_PER_INCH = 100


def keep(figure: Any, name: str) -> None:
    """A small file, without transparency."""
    path = FOLDER / f"{name}.png"
    report.save(figure, path, dpi=PIXELS_PER_INCH)
    with Image.open(path) as picture:
        opaque = picture.convert("RGB")
    opaque.save(path, optimize=True)


# --- Images: procedural shapes, a small convolutional X-DNN ------------------------------------------------


def centred(images: Tensor) -> Tensor:
    """Zero, the baseline, is mid-grey."""
    return (images - 0.5) / 0.25


def network() -> nn.Sequential:
    """Four convolutions, no biases."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2, bias=False),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 4, bias=False),
    )


def trained(
    data: TensorData,
    prior: priors.Prior | None = None,
    weight: float = 1.0,
    *,
    start: nn.Module | None = None,
    outputs: Any = "target",
    epochs: int = EPOCHS,
    arguments: Callable[[Tensor], dict[str, Tensor]] = lambda rows: {},  # noqa: ARG005 (most priors take none)
) -> nn.Module:
    """From scratch, or from where another training ended."""
    torch.manual_seed(0)
    model = network() if start is None else copy.deepcopy(start)
    loss = AttributionLoss(F.cross_entropy, prior or priors.L1(), weight=weight, outputs=outputs)
    optimizer = torch.optim.Adam(model.parameters())
    total = epochs * -(-len(data) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=total)
    x, y = centred(data.inputs), data.targets
    for epoch in range(epochs):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(BATCH):
            if prior is None:
                total_loss = F.cross_entropy(model(x[rows]), y[rows])
            else:
                total_loss = loss(model, x[rows], y[rows], **arguments(rows)).total
            optimizer.zero_grad()
            total_loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def right(model: nn.Module, data: TensorData) -> str:
    """Accuracy as a label."""
    with torch.no_grad():
        return f"{100 * float((model(centred(data.inputs)).argmax(1) == data.targets).float().mean()):.0f} % right"


def draw_maps(
    name: str, data: TensorData, columns: dict[str, nn.Module], judged_on: TensorData, boxes: Tensor | None = None
) -> None:
    """Image, and its attribution in each model; the title has each model's accuracy."""
    shown = torch.tensor([int((data.targets == kind).nonzero()[0]) for kind in (3, 1)])[:SHOWN]
    x, y = data.inputs[shown], data.targets[shown]
    titled = {
        f"{title}\n{right(model, judged_on)}": XGradient(model).attribute(centred(x), y)
        for title, model in columns.items()
    }
    figure = report.compare(x, titled, titles=[data.names[int(kind)] for kind in y])
    if boxes is not None:
        per_row = 1 + len(columns)
        for i, (x0, y0, x1, y1) in enumerate(boxes[shown].tolist()):
            for axes in figure.axes[i * per_row : (i + 1) * per_row]:
                axes.add_patch(Rectangle((x0 - 0.5, y0 - 0.5), x1 - x0, y1 - y0, fill=False, edgecolor=BOX, lw=1.2))
    keep(figure, name)


@cache
def clean() -> tuple[TensorData, TensorData, nn.Module]:
    """Images to train and test with, and a network that was trained without a prior."""
    train, test = shapes("train", IMAGES), shapes("test", 400)
    return train, test, trained(train)


@cache
def tagged() -> tuple[TensorData, TensorData, TensorData, nn.Module]:
    """The same with a tag that gives the class away; the third set has a random one."""
    kinds = (("train", IMAGES, "class"), ("test", 400, "class"), ("test", 400, "random"))
    train, test, random = (shapes(split, n, shortcut=tag, contrast=0.42) for split, n, tag in kinds)
    return train, test, random, trained(train, epochs=5)


def draw_smoothness() -> None:
    train, test, plain = clean()
    smooth = trained(train, priors.Smoothness(), 0.002, start=plain)
    draw_maps("Smoothness", test, {"no prior": plain, "Smoothness": smooth}, test)


def draw_low_frequency() -> None:
    train, test, plain = clean()
    low = trained(train, priors.LowFrequency(0.15), 10.0, start=plain)
    draw_maps("LowFrequency", test, {"no prior": plain, "LowFrequency": low}, test)


@cache
def without_tag() -> nn.Module:
    """The network that looks at the tag, trained on with a prior against it."""
    train, _, _, plain = tagged()
    wrong = train.per_sample()["shortcuts"]
    return trained(
        train,
        priors.RightReasons(),
        1.0,
        start=plain,
        outputs="random",
        epochs=16,
        arguments=lambda rows: {"mask": wrong[rows]},
    )


def draw_right_reasons() -> None:
    _, test, random, plain = tagged()
    fixed = without_tag()
    draw_maps("RightReasons", test, {"no prior": plain, "RightReasons": fixed}, random)


def draw_energy() -> None:
    train, test, plain = clean()
    boxes, shown = (around(data.per_sample()["masks"]) for data in (train, test))
    guided = trained(train, priors.Energy(), 1.0, start=plain, arguments=lambda rows: {"boxes": boxes[rows]})

    def titled(title: str, model: nn.Module) -> str:
        found = XGradient(model).attribute(centred(test.inputs), test.targets)
        return f"{title}\n{100 * (1 - float(priors.Energy()(found, boxes=shown))):.0f} % inside"

    draw_maps("Energy", test, {titled("no prior", plain): plain, titled("Energy", guided): guided}, test, shown)


def around(masks: Tensor) -> Tensor:
    """Boxes around masks."""
    return torch.tensor([report.bounding_box(mask) for mask in masks])


def draw_matching() -> None:
    train, test, teacher = clean()
    few = train.select(slice(0, FEW))
    guide = XGradient(teacher).attribute(centred(few.inputs), few.targets)
    alone = trained(few, epochs=150)
    taught = trained(few, priors.Matching("cosine"), 1.0, epochs=150, arguments=lambda rows: {"teacher": guide[rows]})
    columns = {
        f"teacher, {IMAGES} images": teacher,
        f"alone, {FEW} images": alone,
        f"Matching, {FEW} images": taught,
    }
    draw_maps("Matching", test, columns, test)


# --- Tables: a small X-DNN on made-up features -------------------------------------------------------------


def fitted(x: Tensor, y: Tensor, prior: priors.Prior | None, weight: float, steps: int = 200) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 64, bias=False), nn.ReLU(), nn.Linear(64, 1, bias=False))
    loss = AttributionLoss(one_logit, prior or priors.L1(), weight=weight if prior else 0.0, outputs=None)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model, x, y).total.backward()
        optimizer.step()
    return model


def one_logit(outputs: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs[:, 0], target.float())


def score(model: nn.Module, x: Tensor, y: Tensor) -> str:
    return f"{100 * float(((model(x)[:, 0] > 0) == y).float().mean()):.0f} % right"


def panels(x_label: str, y_label: str) -> tuple[Any, Any]:
    """Without and with the prior, on one scale."""
    figure = Figure(figsize=(6.6, 2.5), layout="constrained", facecolor="white")
    axes = figure.subplots(1, 2, sharey=True)
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)
        each.set_xlabel(x_label, fontsize=9)
    axes[0].set_ylabel(y_label, fontsize=9)
    return figure, axes


def few_of_many(n: int) -> tuple[Tensor, Tensor]:
    """24 features of which the first four decide, with noise."""
    x = torch.randn(n, 24)
    return x, (x[:, :4].sum(1) + 0.8 * torch.randn(n) > 0).long()


def draw_sparse(name: str, prior: priors.Prior, weight: float, *, n: int, as_share: bool) -> None:
    torch.manual_seed(1)
    (x, y), test = few_of_many(n), few_of_many(2000)
    figure, axes = panels("feature", "share of |attribution|, %" if as_share else "mean |attribution|")
    for each, (title, used) in zip(axes, {"no prior": None, name: prior}.items(), strict=True):
        model = fitted(x, y, used, weight)
        heights = XGradient(model).attribute(test[0]).abs().mean(0)
        if as_share:
            heights = 100 * heights / heights.sum()
        each.bar(range(4), heights[:4], color=WITH, label="decide the class")
        each.bar(range(4, 24), heights[4:], color=WITHOUT, label="noise", hatch="///", edgecolor="white", lw=0)
        each.set_title(f"{title}: {score(model, *test)}", fontsize=9.5)
    axes[1].legend(fontsize=8, frameon=False)
    keep(figure, name)


def draw_gini() -> None:
    draw_sparse("Gini", priors.Gini(), 1.0, n=80, as_share=True)


def draw_l1() -> None:
    draw_sparse("L1", priors.L1(), 0.003, n=300, as_share=False)


def survey(n: int, *, informative: bool) -> tuple[Tensor, Tensor]:
    """Four measurements, two answers, and a district as six columns that tells the class in one study only."""
    x, district = torch.randn(n, 6), torch.randint(6, (n,))
    y = (x[:, :4].sum(1) + 0.5 * torch.randn(n) > 0).long()
    if informative:
        district = 3 * y + district % 3
    return torch.cat([x, F.one_hot(district, 6).float()], 1), y


def draw_groups() -> None:
    torch.manual_seed(0)
    (x, y), test = survey(200, informative=True), survey(2000, informative=False)
    groups = {"measurements": range(4), "answers": range(4, 6), "district": range(6, 12)}
    figure, axes = panels("feature group", "mean |sum of attributions|")
    for each, (title, used) in zip(
        axes, {"no prior": None, "Groups": priors.Groups([list(groups["district"])])}.items(), strict=True
    ):
        model = fitted(x, y, used, 1.0)
        a = XGradient(model).attribute(test[0])
        heights = [float(a[:, list(columns)].sum(1).abs().mean()) for columns in groups.values()]
        bars = each.bar(list(groups), heights, color=[WITHOUT, WITHOUT, WITH], width=0.65)
        bars[-1].set_hatch("///")
        bars[-1].set_edgecolor("white")
        each.set_title(f"{title}: {score(model, *test)}", fontsize=9.5)
    keep(figure, "Groups")


def interacting(n: int) -> tuple[Tensor, Tensor]:
    """Eight columns; two pairs of them count only together."""
    x = torch.randn(n, 8)
    clean = x[:, :4].sum(1) + 2 * torch.relu(x[:, 4] + x[:, 5]) - 2 * torch.relu(x[:, 6] - x[:, 7])
    return x, (clean + 0.5 * torch.randn(n) > 0).long()


def shapley_values(model: nn.Module, x: Tensor) -> Tensor:
    """By all subsets: φᵢ = Σ_S |S|!·(n − |S| − 1)!/n!·(F(x_{S∪i}) − F(x_S))."""
    n = x.shape[1]
    subsets = (torch.arange(2**n)[:, None] >> torch.arange(n)) & 1
    with torch.no_grad():
        scores = torch.stack([model(x * subset)[:, 0] for subset in subsets])
    weights = torch.tensor([1 / (n * math.comb(n - 1, k)) for k in range(n)])
    columns = []
    for i in range(n):
        without = torch.arange(2**n)[subsets[:, i] == 0]
        gains = scores[without + 2**i] - scores[without]
        columns.append((weights[subsets[without].sum(1)][:, None] * gains).sum(0))
    return torch.stack(columns, 1)


def draw_shapley() -> None:
    torch.manual_seed(0)
    (x, y), test = interacting(2000), interacting(300)
    figure, axes = panels("Shapley value", "X-Gradient")
    for each, (title, used) in zip(axes, {"no prior": None, "Shapley": priors.Shapley()}.items(), strict=True):
        model = fitted(x, y, used, 0.3)
        a = XGradient(model).attribute(test[0])
        exact = shapley_values(model, test[0])
        each.plot(exact.flatten(), a.flatten(), ".", markersize=2, alpha=0.4, color=WITH if used else WITHOUT)
        each.axline((0, 0), slope=1, color=SHADE, zorder=0)
        r2 = 1 - float((exact - a).square().sum() / (exact - exact.mean()).square().sum())
        each.set_title(f"{title}: R² {r2:.3f}, {score(model, *test)}", fontsize=9.5)
    axes[1].sharex(axes[0])
    keep(figure, "Shapley")


def spectra(n: int) -> tuple[Tensor, Tensor]:
    """60 neighbouring wavelengths; two broad bands carry the class, everything carries noise."""
    y = torch.randint(2, (n,))
    place = torch.arange(60.0)
    bands = torch.exp(-(((place - 18) / 4) ** 2)) - torch.exp(-(((place - 42) / 4) ** 2))
    return (2.0 * y[:, None] - 1) * 0.35 * bands + torch.randn(n, 60), y


def draw_graph() -> None:
    torch.manual_seed(0)
    (x, y), test = spectra(120), spectra(2000)
    path = torch.diag(torch.ones(59), 1)
    figure, axes = panels("wavelength (each linked to the next)", "mean |attribution|")
    for each, (title, used) in zip(
        axes, {"no prior": None, "GraphSmoothness": priors.GraphSmoothness(path + path.T)}.items(), strict=True
    ):
        model = fitted(x, y, used, 3e-4)
        heights = XGradient(model).attribute(test[0]).abs().mean(0)
        for middle, label in ((18, "carries the class"), (42, None)):
            each.axvspan(middle - 6, middle + 6, color=SHADE, lw=0, label=label)
        each.plot(heights / heights.mean(), color=WITHOUT if used is None else WITH, lw=1.6)
        each.set_title(f"{title}: {score(model, *test)}", fontsize=9.5)
    axes[0].set_ylabel("mean |attribution| / average", fontsize=9)
    axes[1].legend(fontsize=8, frameon=False, loc="upper left")
    axes[1].set_ylim(0, None)
    keep(figure, "GraphSmoothness")


def draw_held_gates() -> None:
    """Units of work of a training step: one is one product with each weight."""
    forward, data, weights, twice = "#9db8d2", "#d9b48f", WITH, "#b9b9b9"
    steps = {
        "plain step": [("forward x", forward), ("backward", data), ("weights", weights)],
        "prior, held step": [
            ("forward x,\nkeep gates", forward),
            ("backward to x,\nkeep gradients", data),
            ("forward x + s·v,\ngates held", forward),
            ("weights", weights),
        ],
        "prior, double backward": [
            ("forward x", forward),
            ("backward u", data),
            ("second\nderivatives", twice),
            ("second\nderivatives", twice),
            ("backward r", data),
            ("weights", weights),
        ],
    }
    figure = Figure(figsize=(9, 2.3), layout="constrained")
    axes = figure.subplots()
    for row, units in enumerate(steps.values()):
        for place, (label, colour) in enumerate(units):
            axes.barh(row, 0.97, left=place, color=colour, height=0.75)
            axes.text(place + 0.48, row, label, ha="center", va="center", fontsize=7.5)
    axes.set_yticks(range(len(steps)), list(steps), fontsize=9)
    axes.set_xlabel("units of work", fontsize=9)
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    keep(figure, "HeldGates")


def explained_cat() -> tuple[Tensor, dict[str, Tensor]]:
    """A photo and two maps of it, titled with the processor's time on one thread; ResNet-50, calibrated on photos."""
    torch.set_num_threads(1)
    network = photos.NETWORKS["resnet50"]
    with Image.open(FOLDER / "cat.jpg") as picture:
        x = network.preprocess(picture)[None]
    model = photos.load("resnet50", "calibrated").to(memory_format=torch.contiguous_format)
    target = model(x).argmax(1)
    path, one = IntegratedGradients(model, 128, internal_batch_size=16), XGradient(model)
    one.attribute(x, target)  # makes the proof
    maps = {}
    for title, method in (("Integrated Gradients\n128 gradients", path), ("X-Gradient\none gradient", one)):
        start = time.process_time()
        found = method.attribute(x, target)
        maps[f"{title}, {time.process_time() - start:.1f} seconds"] = found
    return network.preprocess.picture(x)[0].permute(1, 2, 0), maps


def draw_front() -> None:
    """The first picture: the same map by 128 gradients and by one."""
    picture, maps = explained_cat()
    figure = Figure(figsize=(9.6, 3.9), layout="constrained", facecolor="white")
    axes = figure.subplots(1, 3)
    axes[0].imshow(picture)
    axes[0].set_title("a photo: Egyptian cat", fontsize=12)
    for each, (title, found) in zip(axes[1:], maps.items(), strict=True):
        windows = 64 * F.avg_pool2d(found.sum(1, keepdim=True), 8)
        smooth = F.interpolate(windows, scale_factor=8, mode="bilinear")[0, 0]
        each.imshow(overlay((smooth / smooth.abs().quantile(0.995)).numpy(), picture.numpy()))
        each.set_title(title, fontsize=12)
    for each in axes:
        each.set_axis_off()
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=PIXELS_PER_INCH)
    Image.open(drawn).convert("RGB").save(FOLDER / "front.jpg", quality=88)


PICTURES: dict[str, Callable[[], None]] = {
    "Gini": draw_gini,
    "L1": draw_l1,
    "Smoothness": draw_smoothness,
    "LowFrequency": draw_low_frequency,
    "GraphSmoothness": draw_graph,
    "RightReasons": draw_right_reasons,
    "Energy": draw_energy,
    "Groups": draw_groups,
    "Matching": draw_matching,
    "Shapley": draw_shapley,
    "HeldGates": draw_held_gates,
    "front": draw_front,
}

if __name__ == "__main__":
    for wanted in sys.argv[1:] or PICTURES:
        PICTURES[wanted]()
