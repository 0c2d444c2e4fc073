"""Where what the biases add goes: attributions of a calibrated strip beside those of a lift, on photos.

    AXIOGRAD_DATA=… python benchmarks/constants_share.py

Both are exact for networks that answer as the original does, and both are Input×Gradient of the original plus what its
constants add. The first gives that to what c was read off, the second to all pixels in proportion to x².
"""

import json
import subprocess
from pathlib import Path

import torch
from torch import Tensor

import axiograd
from axiograd.datasets import SQUEEZENET, TINY_IMAGENET, Preprocess, imagenet_sample, tiny_imagenet
from axiograd.models import get_model

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "constants-share.json"
CALIBRATE, JUDGE = 64, 12
NETWORKS: dict[str, tuple[str, Preprocess]] = {
    "resnet18": ("ResNet-18, Tiny ImageNet", TINY_IMAGENET),
    "squeezenet1_1": ("SqueezeNet 1.1, ImageNet photos", SQUEEZENET),
}


def photos(name: str, split: str, n: int) -> Tensor:
    """Some photos; those that judge have calibrated nothing."""
    if name == "resnet18":
        data = tiny_imagenet("train" if split == "calibrate" else "val", transform=NETWORKS[name][1])
    else:
        data = imagenet_sample(transform=NETWORKS[name][1])
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    chosen = order[:n] if split == "calibrate" else order[-n:]
    return torch.stack([data[i][0] for i in chosen])


def concentrated(part: Tensor) -> float:
    """The share of a map that lies on the hundredth of pixels with the most of it, mean over photos."""
    pixels = part.abs().sum(1).flatten(1)
    most = pixels.topk(max(1, pixels.shape[1] // 100), 1).values
    return float((most.sum(1) / pixels.sum(1)).mean())


def apart(one: Tensor, other: Tensor) -> float:
    """Σ|a − b| / Σ|b|, mean over photos."""
    return float(((one - other).abs().flatten(1).sum(1) / other.abs().flatten(1).sum(1)).mean())


def measured(name: str) -> dict[str, float]:
    network = get_model(name, weights="default").eval()
    images, x = photos(name, "calibrate", CALIBRATE), photos(name, "judge", JUDGE)
    with torch.no_grad():
        target = network(x).argmax(1)
    calibrated = axiograd.to_xdnn(network, images[:2], calibration=images, how="calibrate").model
    lifted = axiograd.to_xdnn(network, images[:16], how="lift").model
    plain, read, lift = (
        torch.cat([method(model).attribute(x[i : i + 1], target[i : i + 1]) for i in range(len(x))])
        for method, model in (
            (axiograd.InputXGradient, network),
            (axiograd.XGradient, calibrated),
            (axiograd.XGradient, lifted),
        )
    )
    with torch.no_grad():
        scores = network(x).gather(1, target[:, None])[:, 0]
    constants = (scores - plain.flatten(1).sum(1)).abs() / scores.abs()
    return {
        "constants": float(constants.mean()),
        "calibrated_lift": apart(read, lift),
        "calibrated_plain": apart(read, plain),
        "lift_plain": apart(lift, plain),
        "calibrated_top": concentrated(read - plain),
        "lift_top": concentrated(lift - plain),
    }


def rendered(lines: dict[str, dict[str, float]]) -> str:
    about = (
        f"{JUDGE} photos that calibrated nothing, {CALIBRATE} that did, target the original's top class. *Constants* "
        "is |f − x·∇f| / |f|, what the original's Input×Gradient leaves out. Differences are Σ|a − b| / Σ|b| over all "
        "pixels and colours, mean over photos. The last columns say how much of what is added to Input×Gradient lies "
        "on the hundredth of pixels that get most. Made by `python benchmarks/constants_share.py`."
    )
    head = "| network | constants | calibrated − lift | calibrated − Input×Gradient | lift − Input×Gradient "
    rows = [f"{head}| calibrated: on 1 % of pixels | lift: on 1 % |", "|---|---|---|---|---|---|---|"]
    for name, line in lines.items():
        rows.append(
            f"| {NETWORKS[name][0]} | {line['constants']:.0%} | {line['calibrated_lift']:.2f} | "
            f"{line['calibrated_plain']:.2f} | {line['lift_plain']:.2f} | {line['calibrated_top']:.0%} | "
            f"{line['lift_top']:.0%} |"
        )
    return "\n".join(["# Where what the biases add goes", "", about, "", *rows]) + "\n"


def main() -> None:
    torch.set_num_threads(1)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = {}
    for name in NETWORKS:
        lines[name] = measured(name)
        print(name, lines[name], flush=True)
        head = {"command": "python benchmarks/constants_share.py", "commit": commit.stdout.strip(), "seed": 0}
        RESULTS.write_text(json.dumps(head | {"torch": str(torch.__version__), "lines": lines}, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text(rendered(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
