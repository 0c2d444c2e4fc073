"""What pretrained networks keep of their accuracy when they are stripped and calibrated on a few unlabelled photos.

    AXIOGRAD_DATA=… python benchmarks/calibration.py        # what is not in benchmarks/results/calibration.json yet
    AXIOGRAD_DATA=… python benchmarks/calibration.py --again

Of 500 ImageNet photos in a random order the first calibrate, and 200 of the second half judge. They are probably
training images: what is lost compares, the level does not. One thread, processor time.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import axiograd
from axiograd.datasets import CAFFE, IMAGENET, Preprocess, imagenet_sample
from axiograd.models import get_model

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "calibration.json"
JUDGE, BATCH = 200, 25
#: Label, preparation and photos that calibrate.
NETWORKS: dict[str, tuple[str, Preprocess, int]] = {
    "resnet50": ("ResNet-50 version 1", CAFFE, 48),
    "mobilenet_v2": ("MobileNetV2", IMAGENET, 64),
}


@torch.no_grad()
def outputs(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part) for part in x.split(BATCH)])


def measured(name: str) -> dict[str, Any]:
    """Hits of the original and of what was made of it, in per cent, and how often both name the same class."""
    _, preprocess, calibrate = NETWORKS[name]
    photos = imagenet_sample(transform=preprocess)
    order = torch.randperm(len(photos), generator=torch.Generator().manual_seed(0)).tolist()
    images = torch.stack([photos[i][0] for i in order[:calibrate]])
    judged = [photos[i] for i in order[len(order) // 2 :][:JUDGE]]
    x, labels = torch.stack([image for image, _ in judged]), torch.tensor([int(label) for _, label in judged])
    network = get_model(name, weights="default").eval()
    start = time.process_time()
    conversion = axiograd.to_xdnn(network, images[:2], calibration=images, how="calibrate")
    seconds = round(time.process_time() - start)
    before, after = (outputs(model, x) for model in (network, conversion.model.eval()))
    line: dict[str, Any] = {"calibrate": calibrate, "judge": len(judged), "cpu_seconds": seconds}
    for form, found in (("original", before), ("calibrated", after)):
        best = found.topk(5).indices == labels[:, None]
        line |= {f"{form}_top1": _share(best[:, 0]), f"{form}_top5": _share(best.any(1))}
    same = _share(before.argmax(1) == after.argmax(1))
    return line | {"same_class": same, "exact": conversion.certificate.exact}


def _share(hits: Tensor) -> float:
    return round(100 * float(hits.double().mean()), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true")
    again = parser.parse_args().again
    torch.set_num_threads(1)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    stored = {} if again or not RESULTS.exists() else json.loads(RESULTS.read_text()).get("networks", {})
    for name in NETWORKS:
        if name not in stored:
            stored[name] = measured(name) | {"commit": commit.stdout.strip()}
            print(name, stored[name], flush=True)
            head = {"command": "python benchmarks/calibration.py", "torch": str(torch.__version__)}
            RESULTS.write_text(json.dumps(head | {"networks": stored}, indent=1) + "\n")
            RESULTS.with_suffix(".md").write_text(rendered(stored))


def rendered(stored: dict[str, Any]) -> str:
    lines = [
        "# Pretrained networks, stripped and calibrated",
        "",
        "ImageNet photos, probably training images; those that judge calibrated nothing. Top-1 / top-5 in per cent.",
        "",
        "| network | original | calibrated | same top class | photos to calibrate | photos to judge | one core |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, line in stored.items():
        forms = [f"{line[f'{form}_top1']:.1f} / {line[f'{form}_top5']:.1f}" for form in ("original", "calibrated")]
        cells = [NETWORKS[name][0], *forms, f"{line['same_class']:.1f} %", line["calibrate"], line["judge"]]
        lines.append(f"| {' | '.join(map(str, cells))} | {line['cpu_seconds']} s |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
