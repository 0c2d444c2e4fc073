"""axiograd beside Captum: time and memory of attributions on an AlexNet without biases, 16 × 3 × 224 × 224, float32.

    python benchmarks/attribution.py --save

Processor time, medians of ratios within interleaved rounds, so that whatever else the machine does falls on both sides
alike; only ratios are reported. Peak memory is that of a fresh process, less that of the same process before the call.
With `--save`, results/attribution.md is written.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import captum
import captum.attr
import torch
from ratios import interleaved, ratio
from targets import judged
from versions import versions

import axiograd
from axiograd.models import get_model

RESULTS = Path(__file__).parent / "results" / "attribution.md"
BATCH = 16
PARTS = ("one pass", "16 steps", "128 steps", "memory")
#: What is divided by what, and what is wanted of it.
TIMES = (
    ("XGradient.attribute", "captum InputXGradient", "at most 1.05"),
    ("XGradient.explain", "forward", "at most 2.4"),
    ("backward", "forward", "for comparison"),
    ("captum IntegratedGradients(128)", "XGradient.attribute", "at least 100"),
    ("IntegratedGradients(16)", "captum IntegratedGradients(16)", "at most 1"),
)


def actions(batch: int) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    network, x = get_model("xalexnet", dropout=0.0).eval(), torch.randn(batch, 3, 224, 224)
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


_PEAK = """
import ctypes, gc, sys
sys.path.insert(0, sys.argv[1])
import torch, attribution
torch.set_num_threads(1)
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


def measured(part: str, rounds: int) -> dict[str, float]:
    """One part of the table."""
    if part == "memory":
        # Allocators add noise from one process to the next, never less than what is needed.
        plain, ours = (min(peak_mib(name) for _ in range(3)) for name in ("backward", "XGradient.attribute"))
        return {"plain_mib": plain, "x_gradient_mib": ours, "memory": ours / plain}
    table = actions(BATCH)
    if part == "one pass":
        names = ["forward", "backward", "XGradient.attribute", "XGradient.explain", "captum InputXGradient"]
    elif part == "16 steps":
        names, rounds = ["IntegratedGradients(16)", "captum IntegratedGradients(16)"], max(3, rounds // 2)
    else:
        names, rounds = ["XGradient.attribute", "captum IntegratedGradients(128)"], 3
    times = interleaved(
        {name: table[name] for name in names},
        rounds,
        warm=0 if part == "128 steps" else 1,
        said=lambda n: print(f"\r{part}: round {n} of {rounds}", end="", file=sys.stderr, flush=True),
        clock=time.process_time,
    )
    print(file=sys.stderr)
    return {f"{a} / {b}": ratio(times, a, b) for a, b, _ in TIMES if a in names and b in names}


def render(found: dict[str, float], rounds: int) -> str:
    """The page of the results."""
    rows = [(f"{a} / {b}", found[f"{a} / {b}"], wanted) for a, b, wanted in TIMES]
    rows.append(("peak memory, XGradient.attribute / backward", found["memory"], "at most 1.1"))
    lines = [f"| {name} | {value:.3g} | {judged(value, wanted)} |" for name, value, wanted in rows]
    table = "\n".join(["| ratio | measured | wanted |", "|---|---|---|", *lines])
    return (
        "# Attribution: axiograd beside Captum\n\n"
        f"AlexNet without biases, {BATCH} × 3 × 224 × 224, float32; processor time, medians of ratios within {rounds} "
        "interleaved rounds. `forward` is the bare network without a graph, `backward` its gradient by the input.\n\n"
        f"{table}\n\n"
        f"Peak memory above the model and inputs: backward {found['plain_mib']:.0f} MiB, XGradient "
        f"{found['x_gradient_mib']:.0f} MiB.\n\n"
        f"Made by `python benchmarks/attribution.py --save`, seed 0, {torch.get_num_threads()} thread(s); "
        f"{versions(captum=captum.__version__)}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = {name: value for part in PARTS for name, value in measured(part, options.rounds).items()}
    text = render(found, options.rounds)
    if options.save:
        RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
