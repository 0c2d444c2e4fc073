"""What least squares gives a stripped transformer: norms keep their scale, biases are gone, weights make up for them.

    AXIOGRAD_DATA=… python benchmarks/calibrated_transformer.py

A small vision transformer is trained on Fashion-MNIST as the experiment on transformers does it, and stripped. Then,
from the input on, every linear layer is fitted by ridge regression from the stripped network's activations to what the
original's layer makes, as in a calibrated strip of a convolutional network; the images are unlabelled, and none judges.
"""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import axiograd
from axiograd.experiments.transformer_training import fitted, load
from axiograd.homogeneity import Calibration

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "calibrated-transformer.json"
CALIBRATE, SEEDS = (50, 250), (0, 1, 2)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return round(100 * float((model(x).argmax(1) == y).double().mean()), 1)


def measured(seed: int) -> dict[str, Any]:
    data = load("fashion-mnist", 3000, 1000)
    x, y, train = data.test.inputs, data.test.targets, data.train.inputs
    original = fitted(data, seed, "regular").eval()
    line: dict[str, Any] = {"original": accuracy(original, x, y)}
    line["lift"] = accuracy(axiograd.to_xdnn(original, train[:16], how="lift").model.eval(), x, y)
    line["strip"] = accuracy(axiograd.to_xdnn(original, train[:16]).model.eval(), x, y)
    for n in CALIBRATE:
        start = time.process_time()
        calibration = Calibration(train[:n], exchange=True)
        fitted_ = axiograd.to_xdnn(original, train[:16], calibration=calibration)
        line[f"seconds_{n}"] = round(time.process_time() - start, 1)
        line[f"fitted_{n}"], line["exact"] = accuracy(fitted_.model.eval(), x, y), fitted_.certificate.exact
    line["built"] = accuracy(fitted(data, seed, "built").eval(), x, y)
    return line


def main() -> None:
    torch.set_num_threads(1)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = []
    for seed in SEEDS:
        lines.append({"seed": seed, **measured(seed)})
        print(lines[-1], flush=True)
        head = {"command": "python benchmarks/calibrated_transformer.py", "commit": commit.stdout.strip()}
        RESULTS.write_text(json.dumps(head | {"torch": str(torch.__version__), "lines": lines}, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text(rendered(lines), encoding="utf-8")


def rendered(lines: list[dict[str, Any]]) -> str:
    about = (
        "A vision transformer of two blocks, 3,000 training images of Fashion-MNIST, accuracy in per cent on 1,000 "
        "test images. *Least squares* fits every linear layer of the stripped network to what the original's makes, on "
        "unlabelled training images; *built so* is an X-DNN trained from scratch. "
        "Made by `python benchmarks/calibrated_transformer.py`."
    )
    numbers = " | ".join(f"least squares, {n} images" for n in CALIBRATE)
    rows = [f"| seed | original | strip | {numbers} | lift | built so |", "|---|---|---|---|---|---|---|"]
    for line in lines:
        cells = [line["seed"], line["original"], line["strip"], *(line[f"fitted_{n}"] for n in CALIBRATE)]
        rows.append(f"| {' | '.join(map(str, [*cells, line['lift'], line['built']]))} |")
    return "\n".join(["# A stripped transformer, fitted by least squares", "", about, "", *rows]) + "\n"


if __name__ == "__main__":
    main()
