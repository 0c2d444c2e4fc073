"""Attributions of many samples: what summaries lose, what a row costs, and whether memory stays flat.

    python benchmarks/scale.py losses      what each summary loses, SqueezeNet 1.1 on the ImageNet sample
    python benchmarks/scale.py rates       rows per second: X-Gradient, Captum's IG(50), one and two of Ray's workers
    python benchmarks/scale.py memory      70,000 images of Fashion-MNIST, resident memory on the way
    python benchmarks/scale.py page        benchmarks/results/scale.md from what the others have measured

Each part writes its numbers to benchmarks/results/scale.json as it ends. Where other programs share the machine,
processor time is what a core would need by itself.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import axiograd
from axiograd.datasets import SQUEEZENET
from axiograd.models import get_model
from axiograd.runs.files import write_atomically
from axiograd.scale import (
    Attribute,
    Histogram,
    Listed,
    LowRank,
    PerChannel,
    Pixels,
    TopK,
    Windows,
    tensors,
    write_attributions,
)
from axiograd.scale.summaries import as_maps, gini

RESULTS = Path(__file__).parent / "results"
SUMMARIES = {
    "pixels": Pixels(),
    "windows, 4 pixels": Windows(4),
    "windows, 8 pixels (default)": Windows(8),
    "windows, 16 pixels": Windows(16),
    "windows, 32 pixels": Windows(32),
    "top-k, 400": TopK(400),
    "low-rank, 4": LowRank(4),
    "per channel": PerChannel(),
    "histogram, 20 bins a side": Histogram(),
}


def squeezenet():
    """SqueezeNet 1.1, lifted, so that X-Gradient is exact."""
    data = axiograd.datasets.imagenet_sample(transform=SQUEEZENET)
    examples = torch.stack([data[i][0] for i in range(8)])
    return axiograd.to_xdnn(get_model("squeezenet1_1", weights="default").eval(), examples, how="lift").model


def losses(limit):
    """Per photo and summary: how far the map that a row stands for is from the attribution's."""
    data = axiograd.datasets.imagenet_sample(transform=SQUEEZENET)
    n = min(limit, len(data))
    method = axiograd.XGradient(squeezenet())
    found = {name: {"error": [], "correlation": [], "sum": [], "centre": [], "bytes": []} for name in SUMMARIES}
    for first in range(0, n, 10):
        x = torch.stack([data[i][0] for i in range(first, min(first + 10, n))])
        attributions = method.explain(x, method.model(x).detach().argmax(1)).attributions
        maps = as_maps(attributions).numpy()
        for name, summary in SUMMARIES.items():
            columns = summary(attributions)
            for i, true in enumerate(maps):
                row = {key: values[i] for key, values in columns.items()}
                measured = found[name]
                measured["bytes"].append(sum(np.asarray(value).nbytes for value in row.values()))
                again = summary.reconstruct(row, true.shape)
                if again is None:
                    continue
                measured["error"].append(np.linalg.norm(again - true) / np.linalg.norm(true))
                measured["correlation"].append(np.corrcoef(again.ravel(), true.ravel())[0, 1])
                measured["sum"].append(abs(again.sum() - true.sum()) / abs(true.sum()))
                inside = [signed_share(one) for one in (again, true)]
                measured["centre"].append(abs(inside[0] - inside[1]))
        print(f"losses: {min(first + 10, n)} of {n}", flush=True)
    return {
        "photos": n,
        "summaries": {
            name: {key: float(np.median(values)) if values else None for key, values in measured.items()}
            for name, measured in found.items()
        },
    }


def signed_share(one):
    """Share of the positive attribution that lies in the middle quarter of the picture."""
    h, w = one.shape
    positive = np.maximum(one, 0)
    return positive[h // 4 : 3 * h // 4, w // 4 : 3 * w // 4].sum() / positive.sum()


def photos(n):
    """Photos in memory, repeated where there are not enough: decoding is the same for every way."""
    data = axiograd.datasets.imagenet_sample(transform=SQUEEZENET)
    held = torch.stack([data[i][0] for i in range(min(n, 64))])
    return Listed("photos", [f"photo {i}" for i in range(n)], Held(held))


class Held:
    """Reads from memory."""

    def __init__(self, held):
        self.held = held

    def __call__(self, place):
        return self.held[place % len(self.held)]


def rates(n):
    """Processor seconds per photo of one process; Captum's IG(50) with the same rows; and wall time on Ray."""
    torch.set_num_threads(1)
    model = squeezenet()
    source = photos(n)
    out = Path(tempfile.mkdtemp())
    attribute = Attribute(model)
    write_attributions(attribute, photos(16), out / "warm", batch_size=16, progress=False)
    ours, forward, theirs = [], [], []
    for turn in range(3):
        start = time.process_time()
        write_attributions(attribute, source, out / f"ours-{turn}", batch_size=16, progress=False)
        ours.append((time.process_time() - start) / n)
        x = source.read(0, 16).inputs
        x = torch.stack(x)
        with torch.no_grad():
            start = time.process_time()
            model(x)
            forward.append((time.process_time() - start) / 16)
        theirs.append(captum(model, x[:4]))
        print(f"rates: {ours[-1]:.4f} {theirs[-1]:.3f} {forward[-1]:.4f}", flush=True)
    size = sum(part.stat().st_size for part in (out / "ours-0").glob("*.parquet")) / n
    found = {
        "photos": n,
        "ours": statistics.median(ours),
        "captum": statistics.median(theirs),
        "forward": statistics.median(forward),
        "bytes": size,
        "ratio": statistics.median(b / a for a, b in zip(ours, theirs, strict=True)),
    }
    shutil.rmtree(out)
    return found


def captum(model, x):
    """Processor seconds per photo of Captum's Integrated Gradients with 50 steps, and the same summary of it."""
    from captum.attr import IntegratedGradients

    with torch.no_grad():
        target = model(x).argmax(1)
    start = time.process_time()
    attributions = IntegratedGradients(model).attribute(x, target=target, n_steps=50, internal_batch_size=16)
    Windows()(attributions)
    gini(as_maps(attributions))
    return (time.process_time() - start) / len(x)


def workers(n):
    """Wall seconds of the plain engine and of Ray with one and two workers, start-up left out, and the load."""
    import ray

    torch.set_num_threads(1)
    model = squeezenet()
    found = {"photos": n, "turns": []}
    out = Path(tempfile.mkdtemp())
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="error")
    for turn in range(2):
        seconds = {}
        for name, options in (
            ("plain", {}),
            ("ray 1", {"engine": "ray", "workers": 1}),
            ("ray 2", {"engine": "ray", "workers": 2}),
        ):
            folder = out / f"{name}-{turn}".replace(" ", "-")
            options |= {"batch_size": 16, "part_rows": 16, "progress": False}
            write_attributions(Attribute(model), photos(n), folder, **options)
            # The first part of each worker has its start and its proof in it.
            written = sorted(part.stat().st_mtime for part in folder.glob("*.parquet"))
            skip = 2
            seconds[name] = (written[-1] - written[skip - 1]) / (16 * (len(written) - skip))
        seconds["load"] = os.getloadavg()[0]
        found["turns"].append(seconds)
        print(f"workers: {seconds}", flush=True)
    ray.shutdown()
    shutil.rmtree(out)
    return found


def small():
    """Two convolutions without biases, for images of 28 × 28."""
    torch.manual_seed(0)
    layers = nn.PixelUnshuffle(2), nn.Conv2d(4, 16, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 49, 10, bias=False))


def memory(engine):
    """Resident memory of every process on the way through 70,000 images, in MB."""
    torch.set_num_threads(1)
    train, test = (axiograd.datasets.fashion_mnist(split) for split in ("train", "test"))
    both = axiograd.datasets.TensorData(
        torch.cat([train.inputs, test.inputs]), torch.cat([train.targets, test.targets]), "Fashion-MNIST"
    )
    del train, test
    source = tensors(both)
    out = Path(tempfile.mkdtemp())
    seen, done = [], threading.Event()

    def watch():
        while not done.wait(0.5):
            parts = len(list(out.glob("part-*.parquet")))
            seen.append((parts, rss(os.getpid()), max([rss(pid) for pid in ray_workers()], default=0.0)))

    thread = threading.Thread(target=watch)
    thread.start()
    options = {"engine": "ray", "workers": 2} if engine == "ray" else {}
    start = time.process_time()
    statistics_found = write_attributions(Attribute(small()), source, out, batch_size=64, progress=False, **options)
    seconds = time.process_time() - start
    done.set()
    thread.join()
    shutil.rmtree(out)
    total = math.ceil(70_000 / 1024)
    places = (0.1, 0.25, 0.5, 0.75, 1.0)
    taken = {f"{place:.0%}": min(seen, key=lambda one: abs(one[0] - place * total))[1:] for place in places}
    return {"rows": statistics_found.rows, "errors": statistics_found.errors, "seconds": seconds, "mb": taken}


def rss(pid):
    """Resident memory of a process in MB."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return int(text.split("VmRSS:")[1].split()[0]) / 1024 if "VmRSS:" in text else 0.0


def ray_workers():
    """Processes that hold an actor of this process's Ray."""
    own = str(os.getpid())
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and b"MapWorker" in (process / "cmdline").read_bytes() and descends(process, own):
                yield int(process.name)
        except OSError:
            continue


def descends(process, ancestor):
    """Whether a process was started by another, or by one that it started."""
    number = process.name
    while number not in {"0", "1"}:
        if number == ancestor:
            return True
        number = Path(f"/proc/{number}/status").read_text().split("PPid:")[1].split()[0]
    return False


def page(found):
    """Tables in Markdown."""
    lines = [
        "# Millions of samples",
        "",
        "`python benchmarks/scale.py losses`, `rates`, `workers`, `memory`; one thread.",
    ]
    for name in found:
        made = found[name]["made"]
        lines.append(f"{name}: {made['versions']}, commit {made['commit']}.  ")
    if "losses" in found:
        part = found["losses"]
        lines += [
            "",
            f"## What summaries lose: SqueezeNet 1.1, lifted, X-Gradient on {part['photos']} photos of ImageNet",
            "",
            "| summary | bytes | error of the map | correlation | error of the sum | of the share in the centre |",
            "|---|---|---|---|---|---|",
        ]
        for name, row in part["summaries"].items():
            cells = [
                "–" if row[key] is None else f"{row[key]:.{digits}}"
                for key, digits in (("error", "2f"), ("correlation", "2f"), ("sum", "0e"), ("centre", "3f"))
            ]
            lines.append(f"| {name} | {row['bytes']:,.0f} | {' | '.join(cells)} |")
        lines += [
            "",
            "Medians over photos. Error of the map: ‖map − map that the row stands for‖ / ‖map‖, pixel by pixel;",
            "attributions of neighbouring pixels differ in sign: a window loses most of the pixels' energy and keeps",
            "where it is. The share is that of positive attribution in the middle quarter.",
        ]
    if "rates" in found:
        part = found["rates"]
        lines += [
            "",
            f"## What a row costs: the same network, photos in memory, {part['photos']} of them",
            "",
            "| | seconds per photo and core | photos per second and core |",
            "|---|---|---|",
            f"| forward pass alone | {part['forward']:.4f} | {1 / part['forward']:.1f} |",
            f"| X-Gradient, summary, Parquet | {part['ours']:.4f} | {1 / part['ours']:.1f} |",
            f"| Captum's Integrated Gradients (50), summary | {part['captum']:.3f} | {1 / part['captum']:.2f} |",
            "",
            f"Ratio {part['ratio']:.1f} (median of three turns, processor time).",
            f"A row takes {part['bytes']:,.0f} bytes of Parquet.",
        ]
    if "workers" in found:
        part = found["workers"]
        lines += [
            "",
            f"## Workers: {part['photos']} photos, wall time on two cores that others use too",
            "",
            "| turn | plain | Ray, 1 worker | Ray, 2 workers | 2 workers over 1 | Ray over plain | load |",
            "|---|---|---|---|---|---|---|",
        ]
        for i, turn in enumerate(part["turns"]):
            a, b, c = (turn[key] for key in ("plain", "ray 1", "ray 2"))
            lines.append(
                f"| {i + 1} | {a:.3f} s | {b:.3f} s | {c:.3f} s | {b / c:.2f} × | {b / a:.2f} | {turn['load']:.1f} |"
            )
        lines += ["", "Seconds per photo after the first two parts, which hold start-up and proof."]
    for engine in ("plain", "ray"):
        if f"memory-{engine}" in found:
            part = found[f"memory-{engine}"]
            lines += [
                "",
                f"## Memory: {part['rows']:,} images of Fashion-MNIST, engine {engine}",
                "",
                "| rows done | " + " | ".join(part["mb"]) + " |",
                "|---|" + "---|" * len(part["mb"]),
                "| driver, MB | " + " | ".join(f"{value[0]:.0f}" for value in part["mb"].values()) + " |",
            ]
            if engine == "ray":
                lines.append("| largest worker, MB | " + " | ".join(f"{v[1]:.0f}" for v in part["mb"].values()) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("losses", "rates", "workers", "memory", "page"))
    parser.add_argument("--limit", type=int, default=500, help="photos of losses")
    parser.add_argument("--photos", type=int, default=96, help="photos of rates and workers")
    parser.add_argument("--engine", choices=("plain", "ray"), default="plain", help="of memory")
    options = parser.parse_args()
    path = RESULTS / "scale.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if options.part != "page":
        name = f"memory-{options.engine}" if options.part == "memory" else options.part
        measure = {
            "losses": lambda: losses(options.limit),
            "rates": lambda: rates(options.photos),
            "workers": lambda: workers(options.photos),
            "memory": lambda: memory(options.engine),
        }[options.part]
        torch.set_num_threads(1)
        measured = measure()
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout
        versions = f"torch {torch.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
        known = json.loads(path.read_text()) if path.exists() else {}
        known[name] = measured | {"made": {"versions": versions, "commit": commit.strip(), "cores": os.cpu_count()}}
        write_atomically(path, (json.dumps(known, indent=1) + "\n").encode())
    write_atomically(RESULTS / "scale.md", page(known).encode())


if __name__ == "__main__":
    main()
