"""Attributions of many samples: what summaries lose, what a row costs, and what happens when something goes wrong.

    python benchmarks/scale.py losses      what each summary loses, SqueezeNet 1.1 on the ImageNet sample
    python benchmarks/scale.py rates       what a row costs, and what it costs with Captum's IG(50)
    python benchmarks/scale.py workers     one process, one and two of Ray's workers
    python benchmarks/scale.py memory      70,000 images of Fashion-MNIST, resident memory of every process on the way
    python benchmarks/scale.py faults      workers and drivers killed, damaged images, a full disk
    python benchmarks/scale.py page        benchmarks/results/scale.md from what the others have measured

Each part writes its numbers to benchmarks/results/scale.json as it ends. Where other programs share the machine,
processor time is what a core would need by itself.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from scale_page import page
from scale_processes import descendants, faults, memory, parts, processor_time, start_ray

import axiograd
from axiograd._io import write_atomically
from axiograd.datasets import SQUEEZENET
from axiograd.models import get_model
from axiograd.scale import (
    Attribute,
    Histogram,
    Listed,
    LowRank,
    PerChannel,
    Pixels,
    TopK,
    Windows,
    write_attributions,
)
from axiograd.scale.summaries import as_maps, gini

RESULTS = Path(__file__).parent / "results"
#: Photos of a part where workers are compared: a second of work, so that handing parts out is a small part of it.
PART = 32
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


def rates(n, turns=3):
    """Processor seconds per photo: the parts of a row, the whole row, and Captum's IG(50), turn by turn."""
    model, source, out = squeezenet(), photos(n), Path(tempfile.mkdtemp())
    attribute = Attribute(copy.deepcopy(model).to(memory_format=torch.channels_last))
    start = time.process_time()
    write_attributions(attribute, photos(1), out / "first", progress=False)
    found = {"photos": n, "start": time.process_time() - start, "turns": []}
    write_attributions(attribute, source, out / "warm", batch_size=16, progress=False)  # the first calls check more
    x = torch.stack(source.read(0, 16).inputs)
    last = x.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        target = model(x).argmax(1)
    files = axiograd.datasets.imagenet_sample(transform=SQUEEZENET)
    for turn in range(turns):
        row = {
            "decoding": timed(lambda: [files[i] for i in range(32)], 32),
            "forward": timed(lambda: inferred(model, last), 16),
            "forward and backward": timed(lambda: differentiated(model, last, target), 16),
            "forward and backward, channels first": timed(lambda: differentiated(model, x, target), 16),
            "rows": timed(
                lambda turn=turn: write_attributions(attribute, source, out / f"{turn}", batch_size=16, progress=False),
                n,
            ),
            "Captum, one photo a call": timed(lambda: captum(model, x[:1], target[:1], None), 1),
            "Captum, 16 rows at once": timed(lambda: captum(model, x[:1], target[:1], 16), 1),
            "Captum, 16 rows at once, channels last": timed(lambda: captum(model, last[:2], target[:2], 16), 2),
        }
        found["turns"].append(row)
        print("rates:", {name: round(value, 4) for name, value in row.items()}, flush=True)
    found["bytes"] = sum(part.stat().st_size for part in (out / "0").glob("*.parquet")) / n
    shutil.rmtree(out)
    return found


def timed(work, n):
    """Processor seconds for one of n."""
    start = time.process_time()
    work()
    return (time.process_time() - start) / n


def inferred(model, x):
    with torch.no_grad():
        model(x)


def differentiated(model, x, target):
    x = x.clone().requires_grad_()
    torch.autograd.grad(model(x).gather(1, target[:, None]).sum(), x)


def captum(model, x, target, rows):
    """Captum's Integrated Gradients with 50 steps, and the same summary of it."""
    from captum.attr import IntegratedGradients

    attributions = IntegratedGradients(model).attribute(x, target=target, n_steps=50, internal_batch_size=rows)
    Windows()(attributions)
    gini(as_maps(attributions))


def workers(n, turns=3):
    """Wall and processor seconds per photo of the plain engine, and of Ray with one and two workers, turn by turn.

    Both are taken in the second half of the parts: start and proof are in the first.
    """
    model, out = squeezenet(), Path(tempfile.mkdtemp())
    ray = start_ray(3)
    found = {"photos": n, "turns": []}
    ways = {"plain": {}, "ray 1": {"engine": "ray", "workers": 1}, "ray 2": {"engine": "ray", "workers": 2}}
    for turn in range(turns):
        row = {}
        for name, options in ways.items():
            folder = out / f"{name}-{turn}".replace(" ", "-")
            with watching(folder) as seen:
                write_attributions(
                    Attribute(model), photos(n), folder, batch_size=8, part_rows=PART, progress=False, **options
                )
            row[name] = steady(folder, seen)
            shutil.rmtree(folder)
        row["load"] = os.getloadavg()[0]
        found["turns"].append(row)
        print(f"workers: {row}", flush=True)
    ray.shutdown()
    shutil.rmtree(out)
    return found


@contextmanager
def watching(folder):
    """(parts, processor seconds of all processes that work) as they go."""
    seen, done = [], threading.Event()

    def watch():
        spent = {}
        while not done.wait(0.25):  # looking at all processes costs some of what is measured
            spent[0] = sum(os.times()[:2])
            for pid, name in descendants():
                if "MapWorker" in name:
                    spent[pid] = max(spent.get(pid, 0.0), processor_time(pid))
            seen.append((len(parts(folder)), sum(spent.values())))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def steady(folder, seen):
    """Seconds per photo in the second half of the parts, when every worker has long begun: wall, and processor."""
    written = sorted(part.stat().st_mtime for part in folder.glob("*.parquet"))
    skip = len(written) // 2
    from_then = [spent for count, spent in seen if count >= skip]
    photos_done = PART * (len(written) - skip)
    return {
        "wall": (written[-1] - written[skip - 1]) / photos_done,
        "processor": (from_then[-1] - from_then[0]) / photos_done,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("losses", "rates", "workers", "memory", "faults", "page"))
    parser.add_argument("--limit", type=int, default=500, help="photos of losses")
    parser.add_argument("--photos", type=int, default=96, help="photos of rates and workers")
    parser.add_argument("--trials", type=int, default=10, help="of faults, for each kind of killing")
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
            "faults": lambda: faults(options.trials, seed=0),
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
