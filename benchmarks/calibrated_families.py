"""Which architectures a strip with calibration converts, and how much of the original's answers it keeps.

    AXIOGRAD_DATA=… python benchmarks/calibrated_families.py             # what is not in the results yet
    AXIOGRAD_DATA=… python benchmarks/calibrated_families.py resnet18 --again
    python benchmarks/calibrated_families.py --render                    # the table alone

Weights are random, as no others are at hand, but every bias has a value, the statistics of norms are those of photos,
and the head is fitted to the labels of 20 classes by least squares: a network that answers, and leans on its
constants. Photos of Tiny ImageNet, 64 pixels; those that judge have settled, fitted and calibrated nothing. Each
architecture runs in a process of its own, and its line is saved as soon as it is there. timm's are taken if it can be
imported (`pip install --no-deps --target DIR timm`, and DIR on PYTHONPATH).
"""

import argparse
import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from zoo import Lines, in_child, settled, torchvision_models

from axiograd.datasets import TINY_IMAGENET, tiny_imagenet
from axiograd.homogeneity import to_xdnn

RESULTS = Path(__file__).parent / "results" / "calibrated-families.json"
SECONDS, GIGABYTES, CLASSES = 600, 12, 20
#: Photos that settle statistics and the head, that calibrate, and that judge.
SETTLE, CALIBRATE, JUDGE, BATCH = 300, 80, 150, 50
#: Architecture: where it is from, further settings, and what is of interest about it.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any], str]] = {
    "resnet18": ("torchvision", {}, "residual"),
    "resnet50": ("torchvision", {"replace_stride_with_dilation": [False, True, True]}, "residual, dilated"),
    "resnext50_32x4d": ("torchvision", {}, "grouped"),
    "regnet_x_400mf": ("torchvision", {}, "grouped"),
    "densenet121": ("torchvision", {}, "norm before convolution, concatenation"),
    "vgg11_bn": ("torchvision", {}, "plain, three linear layers"),
    "squeezenet1_1": ("torchvision", {}, "concatenation, no norm"),
    "googlenet": ("torchvision", {"aux_logits": False, "init_weights": False}, "inception"),
    "shufflenet_v2_x0_5": ("torchvision", {}, "depthwise, shuffled channels"),
    "mnasnet0_5": ("torchvision", {}, "depthwise"),
    "mobilenet_v2": ("torchvision", {}, "depthwise, ReLU6"),
    "mobilenet_v3_small": ("torchvision", {}, "depthwise, hardswish, squeeze-and-excitation"),
    "efficientnet_b0": ("torchvision", {}, "depthwise, SiLU, squeeze-and-excitation"),
    "regnet_y_400mf": ("torchvision", {}, "grouped, squeeze-and-excitation"),
    "convnext_tiny": ("torchvision", {}, "LayerNorm, GELU"),
    "vit_b_32": ("torchvision", {"image_size": 64}, "attention"),
    "resnet26d": ("timm", {}, "residual, deep stem, average pooling in shortcuts"),
    "efficientnet_lite0": ("timm", {}, "depthwise, ReLU6"),
    "seresnet33ts": ("timm", {}, "SiLU, squeeze-and-excitation"),
    "dla34": ("timm", {}, "aggregated trees"),
    "resnetv2_50": ("timm", {}, "norm before convolution"),
    "cspresnet50": ("timm", {}, "leaky ReLU, split channels"),
}


def build(name: str) -> nn.Module:
    """The architecture with random weights, in eval mode."""
    library, options, _ = ARCHITECTURES[name]
    torch.manual_seed(0)
    models = torchvision_models()  # timm imports it
    if library == "torchvision":
        model: nn.Module = models.get_model(name, num_classes=CLASSES, **options)
    else:
        model = importlib.import_module("timm").create_model(name, num_classes=CLASSES, **options)
    return model.eval()


def photos(split: str, n: int, start: int = 0) -> tuple[Tensor, Tensor]:
    """Some photos in a random order, and their classes."""
    data = tiny_imagenet(split, transform=TINY_IMAGENET)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[start : start + n]
    chosen = [data[int(i)] for i in order]
    return torch.stack([image for image, _ in chosen]), torch.tensor([int(label) for _, label in chosen])


@torch.no_grad()
def outputs(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part) for part in x.split(BATCH)])


@torch.no_grad()
def answering(model: nn.Module, x: Tensor, labels: Tensor) -> nn.Module:
    """Norms with the statistics of photos, and the last layer fitted to their classes."""
    settled(model, x.shape[-1])
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum, norm.training = None, True  # the mean over batches
    if norms:
        outputs(model, x)
    for norm in norms:
        norm.momentum, norm.training = 0.1, False
    head = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)][-1]
    seen: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    outputs(model, x)
    handle.remove()
    h = torch.cat(seen)
    h = (h.mean((2, 3)) if h.dim() == 4 else h).double()  # a convolution as the head
    wanted = nn.functional.one_hot(labels, CLASSES).double() - 1 / CLASSES
    mean, scale = h.mean(0), h.std(0).mean()
    centred = (h - mean) / scale
    w = torch.linalg.solve(centred.T @ centred + 0.1 * len(h) * torch.eye(h.shape[1]).double(), centred.T @ wanted)
    # As steep as a trained network's.
    w *= 5 / (centred @ w).std() / scale
    head.weight.copy_(w.T.reshape(head.weight.shape))
    head.bias.copy_(-mean @ w)
    return model


def examine(name: str) -> Iterator[dict[str, Any]]:
    model = build(name)
    yield {"parameters": sum(p.numel() for p in model.parameters())}
    x, labels = photos("train", SETTLE + CALIBRATE)
    answering(model, x[:SETTLE], labels[:SETTLE])
    judged, _ = photos("val", JUDGE)
    wanted = outputs(model, judged)
    start = time.process_time()
    conversion = to_xdnn(model, x[:2], calibration=x[SETTLE:], how="calibrate")
    seconds = time.process_time() - start
    made = outputs(conversion.model.eval(), judged)
    stripped = outputs(to_xdnn(model, x[:8], how="strip").model.eval(), judged)
    spread = (wanted - wanted.mean(0)).norm()
    yield {
        "seconds": seconds,
        "layers": len(conversion.layers),
        "degree": conversion.certificate.degree,
        "exact": conversion.certificate.exact,
        "piecewise_linear": conversion.certificate.piecewise_linear,
        "error": float((made - wanted).norm() / spread),
        "same": float((made.argmax(1) == wanted.argmax(1)).double().mean()),
        "stripped_same": float((stripped.argmax(1) == wanted.argmax(1)).double().mean()),
        "constant_error": conversion.layers[-1].bias_error,
    }


def render(lines: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    by = {line["name"]: line for line in lines}
    about = (
        f"Random weights, every bias with a value, statistics of norms from photos, the head fitted to {CLASSES} "
        f"classes; Tiny ImageNet at 64 pixels, {CALIBRATE} photos to calibrate and {JUDGE} others to judge. *Error* is "
        "‖F − f‖ / ‖f − mean f‖ over the outputs for these, *same class* how often the converted network F and the "
        "original f give the same answer, beside that of strip without calibration. Made by "
        "`python benchmarks/calibrated_families.py`, processor time of one thread."
    )
    head = [
        "# Architectures that a strip with calibration converts",
        "",
        about,
        "",
        "| architecture | | layers | proved | error | same class | by plain strip | c off by | one core |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for name, (library, _, about) in ARCHITECTURES.items():
        line = by.get(name)
        if line is None:
            continue
        title = name if library == "torchvision" else f"{library}'s {name}"
        if "degree" not in line:
            rows.append(f"| {title} | {about} | – | {refusal(line.get('error', 'not run'))} | – | – | – | – | – |")
            continue
        proved = f"degree {line['degree']:g}{', exact' if line['exact'] else ''}"
        proved += ", piecewise linear" if line["piecewise_linear"] else ""
        cells = [title, about, line["layers"], proved, f"{line['error']:.2f}", f"{line['same']:.0%}"]
        cells += [f"{line['stripped_same']:.0%}", f"{line['constant_error']:.1%}", f"{line['seconds']:.0f} s"]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*head, *rows]) + "\n"


def refusal(error: str) -> str:
    """What it refuses for, in a cell."""
    operators = dict.fromkeys(word.strip("`,.:()") for word in error.split() if word.startswith("aten."))
    return f"refused: {', '.join(operators)}" if operators else error.splitlines()[0][:100]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="architectures; all if none is given")
    parser.add_argument("--again", action="store_true", help="also those that have a line already")
    parser.add_argument("--render", action="store_true", help="write the table from the saved lines")
    options = parser.parse_args()
    lines = Lines(RESULTS)
    for name in () if options.render else options.names or ARCHITECTURES:
        if options.again or not lines.has(name, "calibrated"):
            lines.add(name, "calibrated", in_child(examine, name, seconds=SECONDS, gigabytes=GIGABYTES))
            print(name, lines.done[name, "calibrated"], flush=True)
    RESULTS.with_suffix(".md").write_text(render(lines.all()), encoding="utf-8")


if __name__ == "__main__":
    main()
