"""What a pretrained ResNet-50 keeps of its accuracy when it is stripped and calibrated on unlabelled photos.

    AXIOGRAD_DATA=… python benchmarks/calibration.py        # what is not in benchmarks/results/calibration.json yet
    AXIOGRAD_DATA=… python benchmarks/calibration.py --again

160 of the 500 ImageNet photos calibrate, 200 others judge. They are probably training images: what is lost
compares, the level does not. One thread, processor time.
"""

import argparse
import csv
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

import axiograd
from axiograd.homogeneity import Calibration

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "calibration.json"
CALIBRATE, JUDGE, BATCH = 160, 200, 20
MEAN = torch.tensor([103.939, 116.779, 123.68])[:, None, None]
FORMS: dict[str, dict[str, Any] | None] = {
    "original": None,
    "stripped and calibrated": {},
    "least squares alone": {"read_biases": False},
    "biases read off the image alone": {"fit_weights": False},
    "stripped": {"read_biases": False, "fit_weights": False},
}


class Bottleneck(nn.Module):
    """A block of ResNet-50, version 1: the stride is in the first convolution."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, stride), nn.BatchNorm2d(width, 1e-3)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width, 1e-3)
        self.conv3, self.bn3 = nn.Conv2d(width, after, 1), nn.BatchNorm2d(after, 1e-3)
        shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride), nn.BatchNorm2d(after, 1e-3))
        self.downsample: nn.Module = shortcut if before != after else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        return (self.bn3(self.conv3(out)) + self.downsample(x)).relu()


class ResNet50(nn.Module):
    """With biases in its convolutions, as the weights have them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.pool = nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64, 1e-3), nn.MaxPool2d(3, 2, 1)
        before = 64
        for number, (count, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
            blocks = []
            for i in range(count):
                blocks.append(Bottleneck(before, width, 2 if i == 0 and number > 1 else 1))
                before = 4 * width
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.fc = nn.Linear(before, 1000)

    def forward(self, x: Tensor) -> Tensor:
        out = self.pool(self.bn1(self.conv1(x)).relu())
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(out)))).mean((2, 3)))


def photos(folder: Path, rows: list[dict[str, str]]) -> Tensor:
    found = []
    for row in rows:
        with Image.open(folder / row["file"]) as opened:
            image = opened.convert("RGB")
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        pixels = torch.from_numpy(np.array(image.crop((left, top, left + 224, top + 224))))
        found.append(pixels.permute(2, 0, 1).float().flip(0) - MEAN)
    return torch.stack(found)


def measured(model: nn.Module, folder: Path, judged: list[dict[str, str]]) -> dict[str, float]:
    hits = []
    with torch.no_grad():
        for i in range(0, len(judged), BATCH):
            part = judged[i : i + BATCH]
            labels = torch.tensor([[int(row["class_index"])] for row in part])
            hits.append(model(photos(folder, part)).topk(5).indices == labels)
    hit = torch.cat(hits).double()
    return {"top1": float(100 * hit[:, 0].mean()), "top5": float(100 * hit.sum(1).mean())}


def run(forms: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    torch.set_num_threads(1)
    data = Path(os.environ["AXIOGRAD_DATA"])
    folder = data / "imagenet-sample"
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    chosen = range(0, len(rows), 3)[:CALIBRATE]
    judged = [row for i, row in enumerate(rows) if i not in chosen][:JUDGE]
    images = photos(folder, [rows[i] for i in chosen])
    network = ResNet50().eval()
    weights = load_file(data / "weights" / "resnet50_v1.safetensors")
    network.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)
    for form in forms:
        start, model, line = time.process_time(), network, {}
        if (settings := FORMS[form]) is not None:
            conversion = axiograd.to_xdnn(network, images[:2], calibration=Calibration(images, **settings))
            model = conversion.model.eval()
            line = {"exact": conversion.certificate.exact, "cpu_seconds": round(time.process_time() - start)}
        yield form, measured(model, folder, judged) | line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true")
    again = parser.parse_args().again
    found = {} if again or not RESULTS.exists() else json.loads(RESULTS.read_text())["forms"]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    head = {
        "command": "python benchmarks/calibration.py",
        "data": "500 ImageNet photos, probably training images: 160 calibrate, 200 others judge",
        "network": "ResNet-50 version 1, pretrained on ImageNet",
        "commit": commit.stdout.strip(),
        "torch": torch.__version__,
    }
    for form, line in run([form for form in FORMS if form not in found]):
        found[form] = line
        print(form, line, flush=True)
        RESULTS.write_text(json.dumps(head | {"forms": found}, indent=1) + "\n")
        render(head, found)


def render(head: dict[str, str], found: dict[str, Any]) -> None:
    lines = ["| | top-1 | top-5 | one core |", "|---|---|---|---|"]
    for form, line in found.items():
        seconds = f"{line['cpu_seconds']} s" if "cpu_seconds" in line else ""
        lines.append(f"| {form} | {line['top1']:.1f} | {line['top5']:.1f} | {seconds} |")
    RESULTS.with_suffix(".md").write_text(
        "\n".join(
            [
                "# A pretrained ResNet-50, stripped and calibrated",
                "",
                f"{head['network']}; {head['data']}.",
                "",
                *lines,
                "",
            ]
        )
    )


if __name__ == "__main__":
    main()
