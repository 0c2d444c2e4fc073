"""Pretrained networks as they are, stripped and lifted: accuracy, and how far one backward pass is from 128-step IG.

    python -m axiograd.experiments.convert_pretrained --output results/conversion

No training at all. SqueezeNet 1.1 and MobileNetV2 see ImageNet photos (probably training images: these are no
validation accuracies), ResNet-18 sees Tiny ImageNet val. Each line is saved as it comes, and not computed again.
"""

import argparse
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from axiograd.attribution import InputXGradient, IntegratedGradients
from axiograd.datasets import IMAGENET, SQUEEZENET, TINY_IMAGENET, ImageFiles, imagenet_sample, tiny_imagenet
from axiograd.errors import MissingExtraError
from axiograd.homogeneity.conversion import to_xdnn
from axiograd.models import get_model
from axiograd.runs.files import write_atomically

T = TypeVar("T")

#: Class i of the 20 is class 10·i of the 200 that the network knows.
TINY_STEP = 10
BATCH = 20
CALIBRATION = 16


@dataclass(frozen=True)
class Setting:
    """A pretrained network, the images it sees, and where images to calibrate on come from."""

    network: str
    weights: str
    data: Callable[[], ImageFiles]
    calibration: Callable[[], ImageFiles]
    step: int = 1


SETTINGS = (
    Setting(
        "squeezenet1_1",
        "imagenet",
        lambda: imagenet_sample(transform=SQUEEZENET),
        lambda: imagenet_sample(transform=SQUEEZENET),
    ),
    Setting(
        "mobilenet_v2",
        "imagenet",
        lambda: imagenet_sample(transform=IMAGENET),
        lambda: imagenet_sample(transform=IMAGENET),
    ),
    Setting(
        "resnet18",
        "tiny_imagenet",
        lambda: tiny_imagenet("val", transform=TINY_IMAGENET),
        lambda: tiny_imagenet("train", transform=TINY_IMAGENET),
        TINY_STEP,
    ),
)


@dataclass(frozen=True)
class Line:
    """What was measured for one network in one form."""

    network: str
    form: str
    data: str
    images: int
    top1: float
    top5: float
    edits: int
    #: Mean over images of Σ|a − IG| / Σ|IG|, a = x ⊙ ∇F, both on this form of the network, target = its prediction.
    attribution_error: float | None
    attributed: int


def forms(model: nn.Module, examples: Tensor) -> Iterator[tuple[str, nn.Module, int]]:
    """The network as it is, stripped, and lifted."""
    yield "original", model, 0
    for how in ("strip", "lift"):
        conversion = to_xdnn(model, examples, how=how)
        yield how, conversion.model, len(conversion.edits)


def accuracy(model: nn.Module, data: ImageFiles, indices: np.ndarray, step: int) -> tuple[float, float]:
    """Top-1 and top-5 in percent."""
    hits = torch.zeros(2)
    for chunk in _progress(np.array_split(indices, max(1, len(indices) // BATCH)), "accuracy"):
        images = torch.stack([data[int(i)][0] for i in chunk])
        targets = data.targets[torch.as_tensor(chunk)] * step
        with torch.no_grad():
            ranked = model(images).topk(5, 1).indices == targets[:, None]
        hits += torch.stack([ranked[:, 0].sum(), ranked.any(1).sum()])
    top1, top5 = (100 * hits / len(indices)).tolist()
    return top1, top5


def attribution_error(model: nn.Module, images: Tensor) -> float:
    """Mean over images of Σ|x ⊙ ∇F − IG₁₂₈| / Σ|IG₁₂₈|, for the class that the model predicts."""
    errors = []
    for image in _progress(images.split(1), "128-step IG"):
        with torch.no_grad():
            target = int(model(image).argmax())
        fast = InputXGradient(model).attribute(image, target)
        exact = IntegratedGradients(model, n_steps=128, internal_batch_size=16).attribute(image, target)
        if not isinstance(fast, Tensor) or not isinstance(exact, Tensor):
            raise TypeError("one input, one attribution")
        errors.append(float((fast - exact).abs().sum() / exact.abs().sum()))
    return float(np.mean(errors))


def run(output: Path, *, images: int | None, attributed: int, seed: int) -> list[Line]:
    """Measure every network in every form that has no line yet."""
    output.mkdir(parents=True, exist_ok=True)
    store = output / "pretrained.json"
    lines = [Line(**row) for row in json.loads(store.read_text())["lines"]] if store.exists() else []
    for setting in SETTINGS:
        done = {n.form for n in lines if n.network == setting.network and n.attributed >= attributed}
        if done >= {"original", "strip", "lift"}:
            continue
        rng = np.random.default_rng(seed)
        model = get_model(setting.network, weights=setting.weights).eval()
        data, source = setting.data(), setting.calibration()
        examples = torch.stack([source[int(i)][0] for i in rng.choice(len(source), CALIBRATION, replace=False)])
        chosen = rng.permutation(len(data))[: images or len(data)]
        for form, network, edits in forms(model, examples):
            if form in done:
                continue
            top1, top5 = accuracy(network, data, chosen, setting.step)
            line = Line(setting.network, form, data.name, len(chosen), top1, top5, edits, None, 0)
            lines = [n for n in lines if (n.network, n.form) != (setting.network, form)]
            _save(output, [*lines, line], seed)
            if attributed:
                subset = torch.stack([data[int(i)][0] for i in chosen[:attributed]])
                line = replace(line, attribution_error=attribution_error(network, subset), attributed=attributed)
            lines.append(line)
            _save(output, lines, seed)
    return lines


def _save(output: Path, lines: list[Line], seed: int) -> None:
    about = {
        "command": "python -m axiograd.experiments.convert_pretrained --output results/conversion",
        "seed": seed,
        "calibration_images": CALIBRATION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "note": "No training. ImageNet photos are probably training images: no validation accuracy.",
    }
    content = {"about": about, "lines": [asdict(line) for line in lines]}
    write_atomically(output / "pretrained.json", (json.dumps(content, indent=1) + "\n").encode())
    write_atomically(output / "pretrained.md", markdown(about, lines).encode())


def markdown(about: dict[str, object], lines: list[Line]) -> str:
    """The table for people."""
    intro = (
        f"`{about['command']}`, seed {about['seed']}, torch {about['torch']}, {about['calibration_images']} images to "
        f"calibrate on. {about['note']} *Error* is the mean over images of Σ|x ⊙ ∇F − IG| / Σ|IG| with 128-step "
        "Integrated Gradients of the same form of the network, zero baseline in normalised space, target the predicted "
        "class."
    )
    head = [
        "# Pretrained networks, stripped and lifted without training",
        "",
        intro,
        "",
        "| network | data | images | form | edits | top-1 | top-5 | error against IG(128) | on images |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = [
        f"| {n.network} | {n.data} | {n.images} | {n.form} | {n.edits} | {n.top1:.1f} | {n.top5:.1f} "
        f"| {'–' if n.attribution_error is None else f'{n.attribution_error:.2g}'} | {n.attributed} |"
        for n in lines
    ]
    return "\n".join(head + rows) + "\n"


def _progress(items: Sequence[T], description: str) -> Iterator[T]:
    try:
        from rich.progress import track
    except ImportError as error:
        raise MissingExtraError("rich", "cli", "the progress bar of an experiment") from error
    yield from track(items, description=description)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path("results/conversion"))
    parser.add_argument("--images", type=int, help="how many images per network; all if not given")
    parser.add_argument("--attributed", type=int, default=4, help="how many images are attributed by 128-step IG")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    run(options.output, images=options.images, attributed=options.attributed, seed=options.seed)


if __name__ == "__main__":
    main()
