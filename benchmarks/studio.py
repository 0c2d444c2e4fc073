"""How long a person waits in the studio, and what it needs: through the real server, with the real worker.

    python benchmarks/studio.py --save

Heat maps of images that nobody has looked at yet; a round of correction on 10,000 small images (one pass over them,
the verdict on held-out images before and after, and the new clusters); a wall of 60,000 images in files beside one of
6,000; and photos of 12 megapixels. Seconds are by the clock, and so depend on what else the machine does: the processor
seconds of a round stand beside them. Wanted: a heat map below 1 s, a round below 2 min, and memory that does not grow
with the images.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from versions import versions

from axiograd.datasets import SQUEEZENET, Preprocess, TensorData, fashion_mnist
from axiograd.datasets.pictures import Pictures
from axiograd.models import get_model
from axiograd.studio.network import Origin
from axiograd.studio.opening import Opened, opened

RESULTS = Path(__file__).parent / "results" / "studio.md"
SMALL = Preprocess(resize=None, crop=None, mean=(0.0,) * 3, std=(1.0,) * 3)


def small_network(between: object = None) -> nn.Module:  # noqa: ARG001  # called by the worker
    """For 28 × 28 pixels, without biases."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(16 * 14 * 14, 10, bias=False))


def photo_network(between: object = None) -> nn.Module:  # noqa: ARG001
    """SqueezeNet with fresh weights, without biases, for photos of 227 × 227 pixels."""
    torch.manual_seed(0)
    return get_model("xsqueezenet1_1")


@contextmanager
def running(pictures: Pictures, make: object) -> Iterator[Opened]:
    """A studio in a folder of its own, as soon as nothing is being done any more."""
    origin = Origin(make, partial(make), name="benchmark")  # type: ignore[arg-type, call-overload]
    with tempfile.TemporaryDirectory() as folder, opened(pictures, origin, Path(folder) / "session") as found:
        yield found


def idle(studio: Opened) -> None:
    """Wait until all jobs are done, and those that follow from them."""
    quiet = 0
    while quiet < 5:
        quiet = quiet + 1 if studio.chief.job is None else 0
        time.sleep(0.05)
        if studio.chief.trouble:
            raise SystemExit(studio.chief.trouble)


def get(studio: Opened, path: str) -> bytes:
    with urllib.request.urlopen(studio.address + path) as answer:
        return bytes(answer.read())


def post(studio: Opened, path: str, **content: object) -> None:
    request = urllib.request.Request(studio.address + path, json.dumps(content).encode(), method="POST")
    urllib.request.urlopen(request).close()


def timed(work: object) -> float:
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start


def resident(pid: int) -> float:
    """MiB in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def processor(pid: int) -> float:
    """Seconds that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def maps(studio: Opened, images: range) -> float:
    """Seconds of a heat map that is new, median."""
    return statistics.median(timed(partial(get, studio, f"api/map/0/{image}.png")) for image in images)


def round_of_correction() -> dict[str, float]:
    data = fashion_mnist("train")
    data = TensorData(data.inputs[:12_500], data.targets[:12_500], data.name, data.names)  # a fifth is held out
    with running(Pictures.of_tensors(data), small_network) as studio:
        idle(studio)
        worker = studio.chief._process.pid  # noqa: SLF001
        heat = maps(studio, range(12_000, 12_020))
        corners = {"kind": "wrong", "tool": "rectangle", "points": [[0, 0], [4, 4]]}
        post(studio, "api/stroke", image=0, **corners)
        post(studio, "api/spread", image=0, how="place")
        idle(studio)
        # A pass of the studio has 2,000 images; it trains whole passes until the time is over.
        before, start = processor(worker), time.perf_counter()
        done = {"passes": 0}
        post(studio, "api/mend", prior="right-reasons", strength=1.0, seconds=86_000)
        while done["passes"] < 5:
            time.sleep(0.02)
            done["passes"] = max([step["epoch"] for step in studio.chief.steps], default=0)
        post(studio, "api/stop")
        trained = time.perf_counter() - start
        idle(studio)
        return {
            "map_small": heat,
            "round": time.perf_counter() - start,
            "round_training": trained,
            "round_processor": processor(worker) - before,
            "passes": studio.session.rounds[-1]["plan"]["epochs"],
        }


def written(folder: Path, n: int) -> Path:
    """Fashion-MNIST as PNG files, one folder per class."""
    data = fashion_mnist("train")
    pixels = (data.inputs[:n, 0] * 255).round().byte().numpy()
    for label in range(10):
        (folder / str(label)).mkdir(parents=True)

    def write(i: int) -> None:
        Image.fromarray(pixels[i]).save(folder / str(int(data.targets[i])) / f"{i:05}.png", compress_level=1)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(n)))
    return folder


def wall(n: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = written(Path(temporary) / "images", n)
        start = time.perf_counter()
        pictures = Pictures.of_folder(folder, SMALL, grey=True)
        listed = time.perf_counter() - start
        with running(pictures, small_network) as studio:
            get(studio, "api/state")
            page = json.loads(get(studio, "api/images?start=0&count=60"))
            for one in page["images"]:
                get(studio, f"api/thumb/{one['image']}.png")
            first = time.perf_counter() - start
            idle(studio)
            worker = studio.chief._process.pid  # noqa: SLF001
            ready = time.perf_counter() - start
            memory = resident(os.getpid()), resident(worker)
            more = timed(lambda: get(studio, f"api/images?start={n // 2}&count=60"))
            for image in range(0, n, max(1, n // 600)):
                get(studio, f"api/thumb/{image}.png")
                get(studio, f"api/map/0/{image}.png")
            after = resident(os.getpid()), resident(worker)
        return {
            "images": n,
            "listed": listed,
            "first_paint": first,
            "ready": ready,
            "next_page": more,
            "server_mib": memory[0],
            "worker_mib": memory[1],
            "server_mib_after_600": after[0],
            "worker_mib_after_600": after[1],
        }


def large_photos(n: int = 12) -> dict[str, float]:
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary:
        for i in range(n):
            folder = Path(temporary) / "photos" / str(i % 2)
            folder.mkdir(parents=True, exist_ok=True)
            coarse = Image.fromarray(random.integers(0, 256, (150, 200, 3), dtype=np.uint8))
            coarse.resize((4000, 3000)).save(folder / f"{i}.jpg", quality=90)
        listed = time.perf_counter()
        pictures = Pictures.of_folder(Path(temporary) / "photos", SQUEEZENET)
        listed = time.perf_counter() - listed
        with running(pictures, photo_network) as studio:
            idle(studio)
            thumbnails = [timed(partial(get, studio, f"api/thumb/{i}.png")) for i in range(n)]
            return {
                "listed_per_photo": listed / n,
                "thumbnail": statistics.median(thumbnails),
                "map_large": maps(studio, range(n)),
            }


def page(found: dict[str, dict[str, float]]) -> str:
    one, few, many, large = (found[name] for name in ("round", "6000", "60000", "photos"))
    rows = [
        ("heat map of a new image, 28 px", f"{one['map_small']:.3f} s", "below 1 s"),
        ("heat map of a new photo of 12 megapixels, SqueezeNet 1.1", f"{large['map_large']:.2f} s", "below 1 s"),
        ("thumbnail of such a photo", f"{large['thumbnail']:.2f} s", ""),
        ("checking that such a photo can be decoded, once", f"{large['listed_per_photo']:.2f} s", ""),
        (
            f"round of correction on 10,000 images: {one['passes']:.0f} passes of 2,000, both verdicts, new clusters",
            (
                f"{one['round']:.0f} s ({one['round_training']:.0f} s of it training; "
                f"{one['round_processor']:.0f} s of the processor)"
            ),
            "below 2 min",
        ),
    ]
    for each in (few, many):
        rows += [
            (
                f"{each['images']:,.0f} PNG files: first 60 images on the wall",
                f"{each['first_paint']:.1f} s ({each['listed']:.1f} s of it checking all files)",
                "",
            ),
            (f"{each['images']:,.0f}: 60 images from the middle", f"{each['next_page']:.2f} s", ""),
            (
                f"{each['images']:,.0f}: memory of server and worker, and after 600 thumbnails and maps",
                (
                    f"{each['server_mib']:.0f} + {each['worker_mib']:.0f} MiB, "
                    f"{each['server_mib_after_600']:.0f} + {each['worker_mib_after_600']:.0f} MiB"
                ),
                "flat",
            ),
        ]
    lines = [f"| {what} | {value} | {wanted} |" for what, value, wanted in rows]
    table = "\n".join(["| what | measured | wanted |", "|---|---|---|", *lines])
    machine = found["machine"]
    return f"""# Studio: how long a person waits

{table}

Seconds by the clock, through the server and its worker process, on {machine["cores"]:.0f} cores with
{machine["threads"]:.0f} thread(s) of torch; {machine["load"]:.1f} other programs were running on average when it began.
Fashion-MNIST, and photos of random colours.

`python benchmarks/studio.py --save`, seed 0; {versions()}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    found: dict[str, dict[str, float]] = {
        "machine": {"cores": os.cpu_count() or 1, "load": load, "threads": torch.get_num_threads()}
    }
    for name, work in {
        "round": round_of_correction,
        "photos": large_photos,
        "6000": partial(wall, 6000),
        "60000": partial(wall, 60_000),
    }.items():
        found[name] = work()
        print(name, json.dumps(found[name]), flush=True)
    if arguments.save:
        RESULTS.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
        RESULTS.write_text(page(found))


if __name__ == "__main__":
    main()
