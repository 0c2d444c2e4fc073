"""axiograd beside Captum: time and memory of attributions on an AlexNet without biases, 16 × 3 × 224 × 224, float32.

    python benchmarks/attribution.py --save

Times are medians of interleaved runs, so that whatever else the machine does falls on both sides alike; only
ratios are reported. Peak memory is that of a fresh process, less that of the same process before the call.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import captum
import captum.attr
import torch
from torch import nn

import axiograd

RESULTS = Path(__file__).parent / "results" / "attribution.md"


def alexnet() -> nn.Module:
    """AlexNet as in torchvision, without biases and dropout."""
    conv = [
        nn.Conv2d(3, 64, 11, 4, 2, bias=False), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2, bias=False), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1, bias=False), nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1, bias=False), nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1, bias=False), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
    ]  # fmt: skip
    head = [
        nn.Flatten(), nn.Linear(9216, 4096, bias=False), nn.ReLU(inplace=True),
        nn.Linear(4096, 4096, bias=False), nn.ReLU(inplace=True), nn.Linear(4096, 1000, bias=False),
    ]  # fmt: skip
    return nn.Sequential(*conv, *head).eval()


def actions(batch: int) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    network, x = alexnet(), torch.randn(batch, 3, 224, 224)
    y = torch.randint(1000, (batch,))
    ours, theirs = axiograd, captum.attr
    x_gradient = ours.XGradient(network)
    x_gradient.attribute(x, y)  # certified once, as in use

    def forward() -> None:
        with torch.no_grad():
            network(x)

    def backward() -> None:
        leaf = x.clone().requires_grad_()
        torch.autograd.grad(network(leaf).gather(1, y[:, None]).sum(), leaf)

    return {
        "forward": forward,
        "backward": backward,
        "XGradient.attribute": lambda: x_gradient.attribute(x, y),
        "XGradient.explain": lambda: x_gradient.explain(x, y),
        "captum InputXGradient": lambda: theirs.InputXGradient(network).attribute(x, y),
        "IntegratedGradients(16)": lambda: ours.IntegratedGradients(network, 16).attribute(x, y),
        "captum IntegratedGradients(16)": lambda: theirs.IntegratedGradients(network).attribute(
            x, target=y, n_steps=16, internal_batch_size=64
        ),
        "captum IntegratedGradients(128)": lambda: theirs.IntegratedGradients(network).attribute(
            x, target=y, n_steps=128, internal_batch_size=64
        ),
    }


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleaved(
    table: dict[str, Callable[[], object]], names: list[str], rounds: int, *, warm: bool = True
) -> dict[str, list[float]]:
    for name in names if warm else ():
        table[name]()
    times: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds):
        for name in names if round_ % 2 else reversed(names):
            times[name].append(seconds(table[name]))
        print(f"\rround {round_ + 1} of {rounds}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return times


def ratio(times: dict[str, list[float]], a: str, b: str) -> float:
    """The median of the ratios within each round."""
    return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))


_PEAK = """
import ctypes, gc, sys
sys.path.insert(0, sys.argv[1])
import torch, attribution
torch.set_num_threads(2)
action = attribution.actions(16)[sys.argv[2]]
gc.collect()
ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier work left with the allocator would hide what is needed now
open("/proc/self/clear_refs", "w").write("5")
def high_water():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = high_water()
action()
print((high_water() - before) / 1024)
"""


def peak_mib(name: str) -> float:
    """Growth of the process's high-water mark during one call, in MiB (Linux)."""
    folder = str(Path(__file__).parent)
    # Every tensor in pages of its own, given back when it is freed: the mark is then what was needed at once.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", _PEAK, folder, name]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}")
    options = parser.parse_args()
    torch.set_num_threads(2)
    table = actions(16)
    fast = ["forward", "backward", "XGradient.attribute", "XGradient.explain", "captum InputXGradient"]
    times = interleaved(table, fast, options.rounds)
    steps = interleaved(
        table, ["IntegratedGradients(16)", "captum IntegratedGradients(16)"], max(3, options.rounds // 2)
    )
    long = interleaved(table, ["XGradient.attribute", "captum IntegratedGradients(128)"], 1, warm=False)
    # Allocators add noise from one process to the next, never less than what is needed.
    plain, ours = (min(peak_mib(name) for _ in range(3)) for name in ("backward", "XGradient.attribute"))
    rows = [
        ("XGradient.attribute / captum InputXGradient", ratio(times, fast[2], fast[4]), "at most 1.05"),
        ("XGradient.explain / bare forward pass", ratio(times, fast[3], "forward"), "at most 2.4"),
        ("plain backward / bare forward pass", ratio(times, "backward", "forward"), "for comparison"),
        (
            "captum IntegratedGradients(128) / XGradient.attribute",
            ratio(long, "captum IntegratedGradients(128)", "XGradient.attribute"),
            "at least 100",
        ),
        (
            "IntegratedGradients(16) / captum's",
            ratio(steps, "IntegratedGradients(16)", "captum IntegratedGradients(16)"),
            "at most 1",
        ),
        ("peak memory, XGradient.attribute / plain backward", ours / plain, "at most 1.1"),
    ]
    versions = (
        f"axiograd {axiograd.__version__}, captum {captum.__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )
    lines = [
        "# Attribution: axiograd beside Captum",
        "",
        "AlexNet without biases, 16 × 3 × 224 × 224, float32, 2 threads; medians of interleaved runs.",
        "",
        "| ratio | measured | wanted |",
        "|---|---|---|",
        *(f"| {name} | {value:.3g} | {wanted} |" for name, value, wanted in rows),
        "",
        f"Peak memory above the model and inputs: plain backward {plain:.0f} MiB, XGradient {ours:.0f} MiB.",
        "",
        f"`python benchmarks/attribution.py --save`, seed 0; {versions}.",
    ]
    print("\n".join(lines))
    if options.save:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
