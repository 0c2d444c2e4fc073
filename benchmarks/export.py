"""Export architectures of torchvision and of ours, converted, and write how far off and how fast the files are.

    python benchmarks/export.py                       # all that are not in benchmarks/results/export.json yet
    python benchmarks/export.py resnet18:lift vit_b_16:lift --again
    python benchmarks/export.py --render              # the table alone

Random weights with settled statistics (see zoo.py), noise; each in a process of its own, each line saved as it comes.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import nn
from zoo import Lines, build, in_child

import axiograd

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "export.json"
TABLE = ROOT / "benchmarks" / "results" / "export.md"
RUNS, SECONDS, GIGABYTES = 5, 600, 12
#: Each family of torchvision, and ours, which are exported as they are.
ROWS = {
    "strip": "resnet18 resnet50 resnext50_32x4d alexnet vgg11 squeezenet1_1 mobilenet_v2 mnasnet0_5 shufflenet_v2_x0_5 "
    "densenet121 googlenet inception_v3",
    "lift": "resnet18 mobilenet_v3_small regnet_y_400mf efficientnet_b0 efficientnet_v2_s convnext_tiny vit_b_16 "
    "swin_t swin_v2_t maxvit_t",
    "own": "xalexnet xvgg11 xsqueezenet1_1 xfixup_resnet20 xfixup_resnet50 xvit",
}


def milliseconds(*runs: Callable[[], Any]) -> list[float]:
    """Processor time of each, in turns, after a first run; the median."""
    found: list[list[float]] = [[] for _ in runs]
    for turn in range(RUNS + 1):
        for run, spent in zip(runs, found, strict=True):
            start = time.process_time()
            run()
            if turn:
                spent.append(1e3 * (time.process_time() - start))
    return [statistics.median(spent) for spent in found]


def measure(converted: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """How far off the file of a converted model is, and how fast."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            path, start = Path(folder) / "model.onnx", time.process_time()
            card = axiograd.export_onnx(converted, x, path)
            line = {"cpu_seconds": time.process_time() - start, "bytes": path.stat().st_size, "check": vars(card.check)}
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            session = onnxruntime.InferenceSession(path, options)
        inputs = {"input": x.numpy(), "target": torch.zeros(len(x), dtype=torch.int64).numpy()}
        method = axiograd.XGradient(converted)
        runs = (lambda: session.run(None, inputs)), (lambda: method.explain(x, target=0))
        line["onnxruntime_ms"], line["eager_ms"] = milliseconds(*runs)
    except Exception as error:  # noqa: BLE001  # a failure is a line of the table
        return {"error": f"{type(error).__name__}: {str(error).strip()}"}
    return line


def examine(name: str, how: str) -> Iterator[dict[str, Any]]:
    """One line of the table."""
    model, x = build(name)
    yield {"size": x.shape[-1]}
    yield measure(model if how == "own" else axiograd.to_xdnn(model, x, how=how).model.eval(), x)


def render(lines: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    good = [n for n in lines if "error" not in n]
    ratio = statistics.median(n["eager_ms"] / n["onnxruntime_ms"] for n in good)
    about = (
        f"{len(good)} of {len(lines)} are exported. Random weights, settled statistics, one image of noise, torch "
        f"{torch.__version__.split('+')[0]}, onnxruntime {onnxruntime.__version__}. *float64* is how far the graph is "
        "from eager PyTorch where rounding plays no part; *median* and *largest* are the file's errors in float32 on "
        "five new inputs, all relative to the largest value. Deep networks that nobody has trained magnify rounding, "
        "and next to a kink (a ReLU at zero) it decides on which side an input is. *export* is the processor time of "
        f"the export with its check, then one image, output and attribution, by `XGradient.explain` and by the file, "
        f"on one thread. In the median the file is {ratio:.1f} times as fast as eager."
    )
    head = "architecture | how | pixels | float64 | median | largest | file | export | eager | onnxruntime"
    rows = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for n in lines:
        start = f"| {n['name']} | {n['how']} | {n.get('size', '')} "
        if "error" in n:
            rows.append(f"{start}| {n['error'].replace('|', '/').splitlines()[0][:160]} | | | | | | |")
            continue
        errors = " | ".join(f"{n['check'][key]:.0e}" for key in ("structure", "median", "largest"))
        times = f"{n['cpu_seconds']:.0f} s | {n['eager_ms']:.0f} ms | {n['onnxruntime_ms']:.0f} ms"
        rows.append(f"{start}| {errors} | {n['bytes'] / 1e6:.0f} MB | {times} |")
    return "\n".join(["# Export: prediction and attribution in one ONNX file", "", about, "", *rows]) + "\n"


def main() -> None:
    """Run the sweep, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", help="ARCHITECTURE:HOW; all if none is given")
    parser.add_argument("--again", action="store_true", help="also those that have a line already")
    parser.add_argument("--render", action="store_true", help="write the table from the saved lines")
    options = parser.parse_args()
    lines = Lines(RESULTS)
    with tempfile.TemporaryDirectory() as folder:  # imports, which are not what is measured
        axiograd.export_onnx(nn.ReLU(), torch.ones(2, 3), Path(folder) / "model.onnx")
    every = [f"{name}:{how}" for how, names in ROWS.items() for name in names.split()]
    for row in [] if options.render else options.rows or every:
        name, _, how = row.partition(":")
        if options.again or (name, how) not in lines.done:
            print(row, flush=True)
            lines.add(name, how, in_child(examine, name, how, seconds=SECONDS, gigabytes=GIGABYTES))
    TABLE.write_text(render(lines.all()))


if __name__ == "__main__":
    main()
