"""Export every architecture of `reach.py`, stripped and lifted, and write how far off and how fast the files are.

    python benchmarks/export.py                        # all that are not in benchmarks/results/export.json yet
    python benchmarks/export.py resnet18 vit_b_16:strip --again
    python benchmarks/export.py --minutes 20           # stop after so long; a later run goes on
    python benchmarks/export.py --eager                # eager times of lines that have those of the first calls
    python benchmarks/export.py --render               # the table alone

Random weights with settled statistics (see zoo.py), noise. `python benchmarks/reach.py --export` fills this table and
its own from one conversion of each.
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
from captum.attr import IntegratedGradients
from torch import Tensor, nn
from zoo import Lines, build, in_child, names

import axiograd

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "export.json"
TABLE = ROOT / "benchmarks" / "results" / "export.md"
RUNS, WARM = 3, 6
#: Captum's steps that are reported, and those that are run: a gradient costs the same at each of them.
STEPS, RUN_STEPS = 50, 10
SECONDS, GIGABYTES = 600, 16
EVERY = 80  # architectures of torchvision
APART = {"ties": "tie", "rounded": "rounding"}


def milliseconds(*runs: Callable[[], Any], times: int = RUNS) -> list[float]:
    """Processor time of each, in turns, after a first run; the median."""
    found: list[list[float]] = [[] for _ in runs]
    for turn in range(times + 1):
        for run, spent in zip(runs, found, strict=True):
            start = time.process_time()
            run()
            if turn:
                spent.append(time.process_time() - start)
    return [statistics.median(spent) * 1e3 for spent in found]


def warm(method: axiograd.XGradient, x: Tensor) -> None:
    """The first calls check the proof more often."""
    for _ in range(WARM):
        method.explain(x, target=0)


def time_eager(name: str, how: str) -> Iterator[dict[str, Any]]:
    """The eager time of a line once more, without its first calls."""
    model, x = build(name)
    method = axiograd.XGradient(axiograd.to_xdnn(model, x, how=how).model.eval(), degree=1.0)
    warm(method, x)
    yield {"eager_ms": milliseconds(lambda: method.explain(x, target=0))[0], "warm": True}


def measure(converted: nn.Module, x: Tensor) -> dict[str, Any]:
    """How far off the file of a converted model is, and how fast."""
    line: dict[str, Any] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            path, start = Path(folder) / "model.onnx", time.process_time()
            card = axiograd.export_onnx(converted, x, path)
            line |= {"cpu_seconds": time.process_time() - start, "bytes": path.stat().st_size}
            line |= {"check": vars(card.check)}
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        inputs = {"input": x.numpy(), "target": torch.zeros(1, dtype=torch.int64).numpy()}
        method = axiograd.XGradient(converted, degree=1.0)
        warm(method, x)
        line["onnxruntime_ms"], line["eager_ms"] = milliseconds(
            lambda: session.run(None, inputs), lambda: method.explain(x, target=0)
        )
        line["warm"] = True
        captum, start = IntegratedGradients(converted), time.process_time()
        captum.attribute(x, target=0, n_steps=RUN_STEPS, internal_batch_size=RUN_STEPS)
        line["captum_ms"] = (time.process_time() - start) * 1e3 * STEPS / RUN_STEPS
    except Exception as error:  # noqa: BLE001  # a failure is a line of the table
        line["error"] = f"{type(error).__name__}: {str(error).strip()}"
    return line


def examine(name: str, how: str) -> Iterator[dict[str, Any]]:
    """One line of the table."""
    model, x = build(name)
    yield {"size": x.shape[-1]}
    yield measure(axiograd.to_xdnn(model, x, how=how).model.eval(), x)


def set_apart(check: dict[str, Any]) -> int:
    """Inputs on which rounding alone is more than the tolerance, also if PyTorch has to take the file's gates."""
    return int(check.get("unequal", sum(check.get(what, 0) for what in APART)))


def render(lines: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    good = [n for n in lines if "error" not in n]
    quick = [n for n in good if n["onnxruntime_ms"] <= n["eager_ms"]]
    for n in good:  # lines of a time when rows without a switching gate were called ties too
        if "rounded" not in n["check"]:
            n["check"] |= {"rounded": 0 if n["check"]["gates"] else n["check"]["ties"]}
            n["check"]["ties"] -= n["check"]["rounded"]
    tied = [n for n in good if n["check"]["ties"]]
    rounded = [n for n in good if n["check"]["rounded"] and not n["check"]["ties"]]
    exact = [n for n in good if n not in tied and n not in rounded]
    compared = [n for n in good if set_apart(n["check"]) < n["check"]["samples"]]
    ratio = statistics.median(n["eager_ms"] / n["onnxruntime_ms"] for n in good) if good else float("nan")
    against = statistics.median(n["captum_ms"] / n["onnxruntime_ms"] for n in good) if good else float("nan")
    about = (
        "Made by `python benchmarks/export.py`: random weights, settled statistics, noise of the size given, "
        f"torch {torch.__version__.split('+')[0]}, onnxruntime {onnxruntime.__version__}. *off* is the "
        "largest difference from eager PyTorch's attributions, relative to the largest one, on 8 inputs that the "
        "export had not seen; set apart are *ties*, inputs on which rounding otherwise switches gates of the network, "
        "and *rounding*, inputs on which PyTorch's own float32 answer is as far from its float64 answer as the file "
        "is. In parentheses the error there and, behind a semicolon, what is left of it if PyTorch has to take the "
        "gates that the file chooses (not known of the oldest lines). Deep networks that nobody has trained magnify "
        "rounding; where it is more than 1e-5 on all 8 inputs with the same gates, too, *off* has nothing left to "
        "compare. Times are processor time of one thread for one image, median of "
        f"{RUNS}: output and attribution, eager by `XGradient.explain` after its first calls; "
        f"IG({STEPS}) is Captum's, from {RUN_STEPS} of "
        "its steps. (Lines of commit 424fc1f are medians of 7 and of all of Captum's steps.)"
    )
    rest = "; the command goes on with the others" if len(lines) < 2 * EVERY else ""
    summary = (
        f"{len(lines)} of {2 * EVERY} rows have been run, of {len({n['name'] for n in lines})} of {EVERY} "
        f"architectures{rest}. {len(good)} exported "
        f"({len(good) / (2 * EVERY):.1%} of all): "
        f"{len(exact)} within 1e-5 on every input, {len(tied)} with ties, {len(rounded)} with rounding and no tie "
        f"({len(good) - len(compared)} of these on all inputs); "
        f"{len(quick)} are no slower than eager (wanted: at least 95 % exported, 90 % no slower). "
        f"In the median the file is {ratio:.1f} times as fast as eager, and {against:.0f} times as fast "
        f"as Captum's IG({STEPS}); the machine was busy, so ratios are rough."
    )
    head = [
        "# Export: prediction and attribution in one ONNX file",
        "",
        about,
        "",
        summary,
        "",
        f"| architecture | how | image | off | set apart | file | eager | onnxruntime | Captum IG({STEPS}) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for n in sorted(lines, key=lambda n: (n["name"], n["how"])):
        start = f"| {n['name']} | {n['how']} | {n['size']} "
        if "error" in n:
            rows.append(f"{start}| {n['error'].replace('|', '/')[:160]} | | | | | |")
            continue
        check = n["check"]
        apart = [f"{check.get(what)} {name}" for what, name in APART.items() if check.get(what)]
        gated = f"; {check['gated_error']:.0e}" if check.get("gated_error") else ""
        ties = f"{', '.join(apart)} ({check['tied_error']:.0e}{gated})" if apart else "–"
        off = f"{check['attribution_error']:.0e}" if n in compared else "–"
        rows.append(
            f"{start}| {off} | {ties} | {n['bytes'] / 1e6:.0f} MB | {n['eager_ms']:.0f} ms "
            f"| {n['onnxruntime_ms']:.0f} ms | {n['captum_ms']:.0f} ms |"
        )
    return "\n".join(head + rows) + "\n"


def main() -> None:
    """Run the sweep, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "names", nargs="*", help="architectures, or one form of them, as vit_b_16:strip; all if none is given"
    )
    parser.add_argument("--again", action="store_true", help="also those that have a line already")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after so long")
    parser.add_argument(
        "--eager", action="store_true", help="only eager times, of lines that have those of the first calls"
    )
    parser.add_argument("--render", action="store_true", help="write the table from the saved lines")
    options = parser.parse_args()
    lines, begun = Lines(RESULTS), time.monotonic()
    if not options.render:
        asked = [word.partition(":") for word in options.names or names()]
        todo = [(name, how) for name, _, only in asked for how in ("strip", "lift") if only in ("", how)]
        if options.eager:
            todo = [key for key, line in lines.done.items() if "eager_ms" in line and not line.get("warm")]
        else:
            todo = [key for key in todo if options.again or not lines.has(*key)]
        for number, (name, how) in enumerate(todo, start=1):
            if time.monotonic() - begun > 60 * options.minutes:
                break
            print(f"{number}/{len(todo)} {name} {how}", flush=True)
            before = lines.done[name, how] if options.eager else {}
            work = time_eager if options.eager else examine
            lines.add(name, how, before | in_child(work, name, how, seconds=SECONDS, gigabytes=GIGABYTES))
    TABLE.write_text(render(lines.all()))
    print(f"{len(lines.done)} models in {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
