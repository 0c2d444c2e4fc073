"""Convert every classification architecture of torchvision, and write what came of it as a table.

    python benchmarks/reach.py            # all that are not in results/conversion/reach.json yet
    python benchmarks/reach.py resnet18 vit_b_16 --again
    python benchmarks/reach.py --render   # the table alone

Random weights, one image of noise, at a size that the architecture takes. Each architecture runs in a process of its
own, and its line is saved as soon as it is there, so that the run can be stopped and taken up again.
"""

import argparse
import gc
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from axiograd.homogeneity import certify, verify
from axiograd.homogeneity.conversion import to_xdnn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))
from support.alive import lives  # noqa: E402  # the tests' helpers
from support.torchvision import torchvision_models  # noqa: E402

RESULTS = ROOT / "results" / "conversion" / "reach.json"
TABLE = ROOT / "docs" / "reach.md"

#: Image size by beginning of the name; the first that fits counts.
SIZES = {
    "alexnet": 64,
    "inception": 299,
    "maxvit": 224,
    "vit_h_14": 28,
    "vit": 64,
    "swin": 64,
    "squeezenet": 64,
    "googlenet": 64,
    "convnext": 64,
    "": 32,
}


def build(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """The architecture with random weights in eval mode, and an image for it."""
    torch.manual_seed(0)
    size = next(s for start, s in SIZES.items() if name.startswith(start))
    options: dict[str, Any] = {}
    if name.startswith("vit"):
        options["image_size"] = size
    if name in {"googlenet", "inception_v3"}:
        options["init_weights"] = False
    model = torchvision_models().get_model(name, **options)
    if name.startswith("vit"):  # its head is all zeros, and so would be every output
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    return model.eval(), torch.randn(1, 3, size, size)


def examine(name: str) -> dict[str, Any]:
    """One line of the table."""
    model, x = build(name)
    start, cpu = time.perf_counter(), time.process_time()
    certificate = certify(model, x)
    line: dict[str, Any] = {
        "name": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "size": x.shape[-1],
        "violations": len(certificate.violations),
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
    }
    for how in ("lift", "strip"):
        entry: dict[str, Any] = {}
        try:
            start = time.perf_counter()
            conversion = to_xdnn(model, x, how=how)
            entry["seconds"] = time.perf_counter() - start
            entry["degree"] = conversion.certificate.degree
            entry["exact"] = conversion.certificate.exact
            entry["edits"] = len(conversion.edits)
            entry["lives"] = lives(conversion.model, x)
            entry["verified"] = False
            check = verify(conversion.model, x)
            entry["verified"] = bool(check.ok)
            entry["euler_error"] = float(check.euler_error)
            entry["scaling_error"] = float(check.scaling_error)
            del conversion, check
        except Exception as error:  # noqa: BLE001  # a failure is a line of the table
            entry["error"] = f"{type(error).__name__}: {error}"
        line[how] = entry
        gc.collect()
    return line


def render(lines: list[dict[str, Any]]) -> str:
    """The table as Markdown."""

    def cell(entry: dict[str, Any]) -> str:
        if "verified" not in entry:
            return "not converted | – | –"
        degree = f"degree {entry['degree']:g}{', exact' if entry['exact'] else ''}"
        verified = f"{'yes' if entry['verified'] else 'no'} ({entry.get('euler_error', float('nan')):.0e})"
        lives = "yes" if entry["lives"] else "no"
        return f"{degree}, {entry['edits']} edits, {entry['seconds']:.1f} s | {verified} | {lives}"

    def good(how: str) -> int:
        return sum(1 for n in lines if n[how].get("degree") == 1 and n[how].get("verified") and n[how]["lives"])

    about = (
        "Made by `python benchmarks/reach.py`: random weights, one image of noise, eval mode, one CPU thread of a busy "
        f"machine, torch {torch.__version__.split('+')[0]}. *verified* is the float64 oracle `verify`, with its Euler "
        "error; *lives* means that a deep copy with the same state dict computes the same, and that train mode runs "
        "forward and backward, and eval mode after it."
    )
    summary = (
        f"{len(lines)} architectures; certified of degree 1, verified and alive: lift {good('lift')}, strip "
        f"{good('strip')}. Slowest verdict on an original: {max((n['cpu_seconds'] for n in lines), default=0):.1f} s "
        "of processor time."
    )
    columns = "| architecture | parameters | image | original: violations | verdict "
    columns += "| lift | verified | lives | strip | verified | lives |"
    head = ["# Reach: every classification architecture of torchvision", "", about, "", summary, "", columns]
    head.append("|---|---|---|---|---|---|---|---|---|---|---|")
    rows = [
        f"| {n['name']} | {n['parameters'] / 1e6:.1f} M | {n['size']} | {n['violations']} | {n['cpu_seconds']:.1f} s "
        f"| {cell(n['lift'])} | {cell(n['strip'])} |"
        for n in sorted(lines, key=lambda n: n["name"])
    ]
    return "\n".join(head + rows) + "\n"


def main() -> None:
    """Run the sweep, or one architecture of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="architectures; all if none is given")
    parser.add_argument("--again", action="store_true", help="also those that have a line already")
    parser.add_argument("--render", action="store_true", help="write the table from the saved lines")
    options = parser.parse_args()
    done = {n["name"]: n for n in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    if not options.render:
        models = torchvision_models()
        names = options.names or models.list_models(module=models)
        todo = [n for n in names if options.again or n not in done]
        families = {n.rstrip("0123456789").split("_")[0]: n for n in reversed(todo)}
        todo.sort(key=lambda n: n not in families.values())  # one of each kind first
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        certify(torch.nn.ReLU(), torch.ones(1, 2))  # torch.export loads half of torch, once for all
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TimeRemainingColumn()) as progress:
            task = progress.add_task("reach", total=len(todo))
            for name in todo:
                progress.update(task, description=name)
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
                    try:
                        done[name] = pool.submit(examine, name).result()
                    except Exception as error:  # noqa: BLE001  # the others shall still have their turn
                        progress.console.print(f"{name} crashed: {error}")
                RESULTS.write_text(json.dumps(list(done.values()), indent=1) + "\n")
                progress.advance(task)
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(render(list(done.values())))
    print(f"{len(done)} architectures in {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
