"""The processes of `axiograd.scale`: killed, fed with rubbish, without space on the disk; and their memory.

`python benchmarks/scale.py faults` and `memory` run these, with Fashion-MNIST and a small network, so that a trial
takes seconds. Moments are drawn with a seed, and what was drawn is in the results.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import axiograd
from axiograd.scale import Attribute, tensors, write_attributions

#: Of all trials but those of the photos: 3,000 images in 47 parts.
N, PARTS, ROWS = 3000, 47, {"batch_size": 64, "part_rows": 64, "progress": False}
NETWORK = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    first = nn.Conv2d(3, 8, 5, 4, bias=False)
    return nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 169, 4, bias=False))
"""


def small():
    """Two layers without biases, for images of 28 × 28."""
    torch.manual_seed(0)
    layers = nn.PixelUnshuffle(2), nn.Conv2d(4, 16, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 49, 10, bias=False))


def make():
    return Attribute(small())


def write(out, engine="plain"):
    """The run of the trials, whole or the rest of it."""
    workers = {"engine": "ray", "workers": 2} if engine == "ray" else {}
    data = axiograd.datasets.fashion_mnist("test")
    first = axiograd.datasets.TensorData(data.inputs[:N], data.targets[:N], data.name)
    return write_attributions(make, tensors(first), out, **ROWS, **workers)


def start_ray(cores=2):
    import ray

    # Otherwise Ray's workers let everything else on the machine go first.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # Ray spells it so
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="error")
    return ray


def parts(folder):
    """The files that are there, and when each was made."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*.parquet")}


def same_rows(whole, folder):
    """Whether a folder has the rows of another: each once, in order, with the same bits."""
    import pyarrow.parquet as pq

    a, b = pq.read_table(whole), pq.read_table(folder)
    return {
        "once": b["row"].to_pylist() == list(range(len(a))),
        "equal": a.equals(b) and a.schema.equals(b.schema, check_metadata=True),
    }


@dataclass(frozen=True)
class Moment:
    """When a process is killed: so long after so many parts are there; in the first two trials, before any are."""

    parts: int
    seconds: float

    @classmethod
    def drawn(cls, draw, trial):
        early = trial < 2
        return cls(0 if early else draw.randrange(PARTS - 2), draw.uniform(0, 8) if early else draw.uniform(0, 0.1))

    def wait(self, out, begun, ended):
        """Until it has come; False if everything ended before."""
        while not begun() or len(parts(out)) < self.parts:
            if ended():
                return False
            time.sleep(0.005)
        time.sleep(self.seconds)
        return not ended()


def workers_killed(trials, seed, scratch):
    """One of Ray's two workers is killed."""
    ray = start_ray()
    draw = random.Random(seed)
    write(scratch / "whole")
    found = []
    for trial in range(trials):
        out, done, seen = scratch / f"worker-{trial}", threading.Event(), {"killed": False}
        moment = Moment.drawn(draw, trial)

        def alive():
            return [pid for pid, name in descendants() if "MapWorker" in name]

        def kill(out=out, done=done, seen=seen, moment=moment, alive=alive):
            if moment.wait(out, alive, done.is_set) and (there := alive()):
                seen["parts"] = len(parts(out))
                os.kill(draw.choice(there), signal.SIGKILL)
                seen["killed"] = True

        thread = threading.Thread(target=kill)
        thread.start()
        write(out, "ray")
        done.set()
        thread.join()
        found.append(seen | same_rows(scratch / "whole", out))
        print(f"workers killed: {found[-1]}", flush=True)
        shutil.rmtree(out)
    ray.shutdown()
    return found


def drivers_killed(trials, seed, scratch, engine):
    """The process that a user started is killed, and the same command is given again."""
    draw = random.Random(seed)
    command = [sys.executable, __file__, engine]
    found = []
    for trial in range(trials):
        out, moment = scratch / f"driver-{engine}-{trial}", Moment.drawn(draw, trial)
        child = subprocess.Popen([*command, out], start_new_session=True)
        moment.wait(out, lambda: True, lambda child=child: child.poll() is not None)
        child.send_signal(signal.SIGKILL)
        ended = child.wait()
        before = parts(out)
        subprocess.run([*command, out], check=True)
        kept = all(parts(out).get(name) == when for name, when in before.items())
        row = {"killed": ended == -signal.SIGKILL, "parts": len(before), "kept": kept}
        found.append(row | same_rows(scratch / "whole", out))
        print(f"drivers killed, {engine}: {found[-1]}", flush=True)
        shutil.rmtree(out)
    return found


def corrupt_images(scratch, engine):
    """The command on 64 files of which four are no images any more, against the same files unharmed."""
    import pyarrow.parquet as pq

    folder = scratch / f"images-{engine}"
    folder.mkdir()
    images = axiograd.datasets.fashion_mnist("test").inputs[:64, 0]
    for i, one in enumerate(images):
        pixels = ((one - one.min()) / (one.max() - one.min()) * 255).byte().numpy()
        Image.fromarray(pixels).resize((56, 56)).convert("RGB").save(folder / f"{i:03d}.png")
    network = scratch / "network.py"
    network.write_text(NETWORK)
    how = ["--size", "56", "--batch-size", "8", "--part-rows", "16", "--engine", engine]
    how += ["--workers", "2"] if engine == "ray" else []

    def run(out):
        words = ["attribute", f"{network}:build", "--data", folder, "--out", out, *how, "--json"]
        done = subprocess.run([sys.executable, "-m", "axiograd", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return pq.read_table(out)

    whole = run(scratch / f"unharmed-{engine}")
    content = (folder / "020.png").read_bytes()
    harm = {
        7: b"",
        20: content[: len(content) // 2],
        21: b"this is text",
        63: content[:60] + bytes(400) + content[460:],
    }
    for place, data in harm.items():
        (folder / f"{place:03d}.png").write_bytes(data)
    table = run(scratch / f"harmed-{engine}")
    errors = table["error"].to_pylist()
    good = [i for i in range(64) if i not in harm]
    a, b = (np.stack(one["windows"].take(good).to_pylist()) for one in (whole, table))
    return {
        "files": 64,
        "damaged": sorted(harm),
        "rows with an error": [i for i, error in enumerate(errors) if error],
        "errors": [errors[i] for i in sorted(harm)],
        "largest difference of the others": float(np.abs(a - b).max() / np.abs(a).max()),
    }


def disk_full(scratch, engine):
    """A disk of 2 MB; then it grows, and the same call goes on."""
    import pyarrow.parquet as pq

    from axiograd.errors import StorageError

    disk = scratch / f"disk-{engine}"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        return {"skipped": "mounting a small disk takes the rights of root"}
    try:
        try:
            write(disk / "out", engine)
            raise SystemExit("the disk was not full")
        except StorageError as error:
            told = str(error).replace(str(disk), "DISK")
        before = parts(disk / "out")
        readable = len(pq.read_table(disk / "out"))
        subprocess.run(["mount", "-o", "remount,size=300m", str(disk)], check=True)
        write(disk / "out", engine)
        kept = all(parts(disk / "out").get(name) == when for name, when in before.items())
        return {"told": told, "parts": len(before), "rows readable": readable, "kept": kept} | same_rows(
            scratch / "whole", disk / "out"
        )
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def faults(trials, seed):
    """Everything that may go wrong, one after the other."""
    scratch = Path(tempfile.mkdtemp())
    try:
        found = {"seed": seed, "worker": workers_killed(trials, seed, scratch)}
        for engine in ("plain", "ray"):
            found[f"driver, {engine}"] = drivers_killed(trials, seed + 1, scratch, engine)
            found[f"images, {engine}"] = corrupt_images(scratch, engine)
            found[f"disk, {engine}"] = disk_full(scratch, engine)
            print(found[f"images, {engine}"], found[f"disk, {engine}"], flush=True)
        return found
    finally:
        shutil.rmtree(scratch)


def memory(engine):
    """Resident memory of every process on the way through 70,000 images, in MB."""
    train, test = (axiograd.datasets.fashion_mnist(split) for split in ("train", "test"))
    both = axiograd.datasets.TensorData(
        torch.cat([train.inputs, test.inputs]), torch.cat([train.targets, test.targets]), "Fashion-MNIST"
    )
    del train, test
    ray = start_ray() if engine == "ray" else None
    out, seen, done = Path(tempfile.mkdtemp()), [], threading.Event()

    def watch():
        while not done.wait(0.25):
            alive = {"driver": rss(os.getpid())}
            for pid, name in descendants():
                alive[f"{called(name)} {pid}"] = rss(pid)
            seen.append((len(parts(out)), alive))

    thread = threading.Thread(target=watch)
    thread.start()
    workers = {"engine": "ray", "workers": 2} if engine == "ray" else {}
    start, wall = time.process_time(), time.monotonic()
    made = write_attributions(Attribute(small()), tensors(both), out, batch_size=64, progress=False, **workers)
    seconds, wall = time.process_time() - start, time.monotonic() - wall
    done.set()
    thread.join()
    if ray is not None:
        ray.shutdown()
    total = len(parts(out))
    shutil.rmtree(out)
    places = (0.1, 0.25, 0.5, 0.75, 1.0)
    taken = [min(seen, key=lambda one: abs(one[0] - place * total))[1] for place in places]
    names = [name for name in taken[0] if all(name in one for one in taken)]
    return {
        "rows": made.rows,
        "errors": made.errors,
        "seconds": seconds,
        "wall": wall,
        "places": [f"{place:.0%}" for place in places],
        "mb": {name: [one[name] for one in taken] for name in names},
    }


def rss(pid):
    """Resident memory of a process in MB; what it shares with others, as the object store, is left out."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except OSError:
        return 0.0
    return (int(lines.get("VmRSS", "0").split()[0]) - int(lines.get("RssShmem", "0").split()[0])) / 1024


def processor_time(pid):
    """Seconds of processor that a process has had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def called(command):
    """A short name for a process of Ray's."""
    known = {"MapWorker": "worker", "raylet/raylet": "raylet", "gcs_server": "control store"}
    return next((name for mark, name in known.items() if mark in command), "helper")


def descendants():
    """The processes that this one started, and those that they started: number and command."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit():
                parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(process.name))
        except OSError:
            continue
    waiting = list(children.get(os.getpid(), []))
    for pid in waiting:
        waiting += children.get(pid, [])
        try:
            yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue


if __name__ == "__main__":  # what `drivers_killed` kills
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.engine == "ray":
        start_ray()
    write(options.out, options.engine)
