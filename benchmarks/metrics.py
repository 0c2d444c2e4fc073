"""Masking curves: ours against the straightforward way, and peak memory against max_rows.

The straightforward way is what one writes down first: a mask per sample and fraction by a sort of its own, and a blur
with the dense 51 × 51 kernel for every masked copy. Published code for the paper's Table 3 works like this on 96 copies
(three orders × keep and remove × 16 fractions); four of these six curves are KPM, KNM, KAM and RAM, 64 copies.

    python benchmarks/metrics.py --output benchmarks/results/metrics.md

Seconds are processor time of one thread, because other programs share the machine. The forward passes of the masked
copies are the floor of either way, so the ratio falls as the network grows: a small and a full AlexNet are shown, and a
SqueezeNet. Beside both stands a loop by someone who has thought about it: one separable blur, one sort per curve, 16
copies a pass. Ours takes as many copies at once as fit the caches, and is given images in channels-last order.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from axiograd.metrics import FRACTIONS, Blur, masking_curves
from axiograd.models import get_model

SIGNS = {"positive": lambda a: a, "negative": lambda a: -a, "absolute": torch.abs}
WANTED = (("positive", "keep"), ("negative", "keep"), ("absolute", "keep"), ("absolute", "remove"))
PUBLISHED = tuple((sign, action) for sign in SIGNS for action in ("keep", "remove"))


def alexnet(width):
    """AlexNet's five convolutions and three linear layers, at a fraction of their widths, without dropout."""
    torch.manual_seed(0)
    c1, c2, c3, c4, c5, hidden = (int(width * n) for n in (64, 192, 384, 256, 256, 4096))
    return nn.Sequential(
        *(nn.Conv2d(3, c1, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(c1, c2, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(c2, c3, 3, padding=1), nn.ReLU(), nn.Conv2d(c3, c4, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(c4, c5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten()),
        *(nn.Linear(36 * c5, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1000)),
    ).eval()


def straightforward(model, images, attributions, labels, options):
    """Every copy has a sort and a dense blur of its own; all copies go through the model at once."""
    axis = torch.exp(-(((torch.arange(51) - 25) / (2 * 41)) ** 2))
    dense = torch.outer(axis, axis)
    dense = (dense / dense.sum()).expand(3, 1, 51, 51)
    copies = []
    for sign, action in options:
        for fraction in FRACTIONS:
            for image, attribution in zip(images, attributions, strict=True):
                pixels = SIGNS[sign](attribution.mean(0)).flatten().clamp(min=0)
                count = min(int(np.float32(fraction * len(pixels))), int((pixels > 0).sum()))
                if action == "remove":
                    pixels = torch.where(pixels > 0, -pixels, -torch.inf)
                keep = torch.zeros(len(pixels), dtype=torch.bool)
                keep[pixels.argsort(descending=True, stable=True)[:count]] = True
                padded = F.pad(image.unsqueeze(0), (25, 25, 25, 25), mode="reflect")
                blurred = F.conv2d(padded, dense, groups=3).squeeze(0)
                copies.append(torch.where(keep.reshape(image.shape[1:]), image, blurred))
    outputs = model(torch.stack(copies)).reshape(len(options), len(FRACTIONS), len(images), -1)
    areas = []
    for (sign, _), curve in zip(options, outputs, strict=True):
        if sign == "absolute":
            scores = 100.0 * (curve.argmax(-1) == labels).double()
        else:
            scores = curve[:, torch.arange(len(images)), labels].double()
        areas.append(np.trapezoid(scores.mean(1).numpy(), FRACTIONS))
    return dict(zip(options, areas, strict=True))


def sensible(model, images, attributions, labels):
    """A loop by someone who has thought about it: one separable blur, one sort per curve, 16 copies a pass."""
    blurred = Blur()(images)
    areas = dict.fromkeys(WANTED, 0.0)
    for image, soft, attribution, label in zip(images, blurred, attributions.mean(1), labels, strict=True):
        for sign, action in WANTED:
            key = SIGNS[sign](attribution).flatten()
            candidates = int((key > 0).sum()) if sign != "absolute" else len(key)
            order = (-key if action == "remove" else key).argsort(descending=True, stable=True)
            rank = torch.empty_like(order)
            rank[order] = torch.arange(len(order))
            counts = torch.tensor(
                [min(int(fraction * len(key) + 1e-9 * len(key)), candidates) for fraction in FRACTIONS]
            )
            keep = (rank < counts[:, None]).reshape(len(counts), 1, *image.shape[1:])
            outputs = model(torch.where(keep, image, soft))
            right = outputs.argmax(1) == label
            scores = 100.0 * right.double() if sign == "absolute" else outputs[:, label].double()
            areas[sign, action] += np.trapezoid(scores.numpy(), FRACTIONS) / len(images)
    return areas


def timed(function):
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def case(n_images):
    generator = torch.Generator().manual_seed(0)
    images, attributions = torch.randn(2, n_images, 3, 224, 224, generator=generator)
    return images, attributions, torch.arange(n_images)


def compared(name, model, n_images, rounds):
    """Rows of the table for one network, and the largest difference between the areas."""
    images, *rest = case(n_images)
    copies = images[:1].repeat(64, 1, 1, 1)
    last = images.contiguous(memory_format=torch.channels_last)
    ways = {
        "fast": lambda: masking_curves(model, last, *rest),
        "sensible": lambda: sensible(model, images, *rest),
        "slow": lambda: straightforward(model, images, *rest, WANTED),
        "published": lambda: straightforward(model, images, *rest, PUBLISHED),
        "floor": lambda: [model(copies) for _ in range(n_images)],
    }
    with torch.no_grad():
        model(copies[:2])
        found = [{way: timed(function) for way, function in ways.items()} for _ in range(rounds)]

    def row(name, what, copies, way):
        seconds = statistics.median(each[way][0] for each in found) / n_images
        faster = statistics.median(each["published"][0] / each[way][0] for each in found)
        return f"| {name} | {what} | {copies} | {seconds:.2f} | {faster:.1f} |"

    rows = [
        row(name, "straightforward, all six curves", 96, "published"),
        row("", "straightforward, KPM KNM KAM RAM", 64, "slow"),
        row("", "a sensible loop, KPM KNM KAM RAM", 64, "sensible"),
        row("", "axiograd, KPM KNM KAM RAM", "at most 64", "fast"),
        row("", "(only the forward passes)", 64, "floor"),
    ]
    ours, *theirs = (found[0][way][1] for way in ("fast", "slow", "sensible"))
    pairs = list(zip(("KPM", "KNM", "KAM", "RAM"), WANTED, strict=True))
    return rows, max(abs(ours[metric].area - other[option]) for other in theirs for metric, option in pairs)


def high_water():
    """Largest resident memory of this process so far, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def peak_of(max_rows):
    """For a process of its own: peak memory before the metric, and with it."""
    torch.set_num_threads(1)
    model, (images, attributions, labels) = alexnet(0.25), case(8)
    with torch.no_grad():
        model(images[:1])
    before = high_water()
    masking_curves(model, images, attributions, labels, metrics=("KPM",), max_rows=max_rows)
    print(f"{before:.0f} {high_water():.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--peak-of", type=int, help="print peak memory in MB before and with this max_rows, and leave")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak_of:
        peak_of(options.peak_of)
        return
    networks = {
        "AlexNet, a quarter wide": alexnet(0.25),
        "AlexNet": alexnet(1),
        "SqueezeNet 1.1": get_model("squeezenet1_1").eval(),
    }
    found = [compared(name, model, options.images, options.rounds) for name, model in networks.items()]
    lines = [
        "# Masking curves: ours against the straightforward way",
        "",
        f"`python benchmarks/metrics.py --images {options.images} --rounds {options.rounds}`:",
        "random images of 224 × 224, 16 fractions, one thread; medians over rounds in which every way takes its turn.",
        f"torch {torch.__version__}, numpy {np.__version__}, Python {platform.python_version()}, {platform.machine()},",
        f"{os.cpu_count()} cores that other programs shared; processor time.",
        "",
        "| network | way | copies per image | seconds per image | times as fast as six curves |",
        "|---|---|---|---|---|",
        *(row for rows, _ in found for row in rows),
        "",
        f"Largest difference between the areas: {max(difference for _, difference in found):.1e}.",
        "",
        "Peak resident memory, 8 images, KPM, a process of its own each:",
        "",
        "| max_rows | before (MB) | with the metric (MB) |",
        "|---|---|---|",
    ]
    for max_rows in (8, 32, 128):
        command = [sys.executable, __file__, "--peak-of", str(max_rows)]
        before, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        lines.append(f"| {max_rows} | {before} | {peak} |")
    report = "\n".join(lines) + "\n"
    print(report)
    if options.output:
        options.output.write_text(report)


if __name__ == "__main__":
    main()
