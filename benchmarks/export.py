"""Export every architecture of `reach.py`, stripped and lifted, and write how far off and how fast the files are.

    python benchmarks/export.py                        # all that are not in benchmarks/results/export.json yet
    python benchmarks/export.py resnet18 vit_b_16 --again
    python benchmarks/export.py --minutes 20           # stop after so long; a later run goes on
    python benchmarks/export.py --render               # the table alone

Random weights, noise, at the image sizes of `reach.py`. Each architecture runs in a process of its own.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from captum.attr import IntegratedGradients
from reach import build

import axiograd
from support.torchvision import torchvision_models

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "export.json"
TABLE = ROOT / "benchmarks" / "results" / "export.md"
RUNS = 7
STEPS = 50


def milliseconds(run: Callable[[], Any], runs: int = RUNS) -> float:
    """The median of several runs after a first one."""
    run()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def examine(name: str, how: str) -> dict[str, Any]:
    """One cell of the table."""
    torch.set_num_threads(1)
    model, x = build(name)
    line: dict[str, Any] = {"name": name, "how": how, "size": x.shape[-1]}
    try:
        converted = axiograd.to_xdnn(model, x, how=how).model.eval()
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
        line["onnxruntime_ms"] = milliseconds(lambda: session.run(None, inputs))
        line["eager_ms"] = milliseconds(lambda: method.explain(x, target=0))
        captum = IntegratedGradients(converted)
        line["captum_ms"] = milliseconds(lambda: captum.attribute(x, target=0, n_steps=STEPS), 1)
    except Exception as error:  # noqa: BLE001  # a failure is a line of the table
        line["error"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return line


def render(lines: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    good = [n for n in lines if "error" not in n]
    quick = [n for n in good if n["onnxruntime_ms"] <= n["eager_ms"]]
    tied = [n for n in good if n["check"]["ties"]]
    ratio = statistics.median(n["eager_ms"] / n["onnxruntime_ms"] for n in good) if good else float("nan")
    against = statistics.median(n["captum_ms"] / n["onnxruntime_ms"] for n in good) if good else float("nan")
    about = (
        "Made by `python benchmarks/export.py`: random weights, noise of the size given, one CPU thread of a busy "
        f"machine, torch {torch.__version__.split('+')[0]}, onnxruntime {onnxruntime.__version__}. *off* is the "
        "largest difference from eager PyTorch's attributions, relative to the largest one, on 8 inputs that the "
        "export had not seen, ties left out; *ties* counts inputs on which rounding switches gates, with the error "
        f"there. Times are of one image: output and attribution, eager by `XGradient.explain`; IG({STEPS}) is Captum's."
    )
    summary = (
        f"{len(lines)} models of {len({n['name'] for n in lines})} architectures: {len(good)} exported, {len(tied)} of "
        f"them with ties, {len(quick)} no slower than eager. In the median the file is {ratio:.1f} times as fast as "
        f"eager, and {against:.0f} times as fast as Captum's IG({STEPS}); on a busy machine such ratios are "
        "rough. Architectures that are missing have not been run yet; the command goes on with them."
    )
    head = [
        "# Export: prediction and attribution in one ONNX file",
        "",
        about,
        "",
        summary,
        "",
        f"| architecture | how | image | off | ties | file | eager | onnxruntime | Captum IG({STEPS}) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for n in sorted(lines, key=lambda n: (n["name"], n["how"])):
        start = f"| {n['name']} | {n['how']} | {n['size']} "
        if "error" in n:
            rows.append(f"{start}| {n['error'].replace('|', '/')[:160]} | | | | | |")
            continue
        check = n["check"]
        ties = f"{check['ties']} ({check['tied_error']:.0e})" if check["ties"] else "–"
        rows.append(
            f"{start}| {check['attribution_error']:.0e} | {ties} | {n['bytes'] / 1e6:.0f} MB | {n['eager_ms']:.0f} ms "
            f"| {n['onnxruntime_ms']:.0f} ms | {n['captum_ms']:.0f} ms |"
        )
    return "\n".join(head + rows) + "\n"


def main() -> None:
    """Run the sweep, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="architectures; all if none is given")
    parser.add_argument("--again", action="store_true", help="also those that have a line already")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after so long")
    parser.add_argument("--render", action="store_true", help="write the table from the saved lines")
    options = parser.parse_args()
    lines = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    done = {(n["name"], n["how"]): n for n in lines}
    begun = time.monotonic()
    if not options.render:
        models = torchvision_models()
        names = options.names or models.list_models(module=models)
        families = {n.rstrip("0123456789").split("_")[0]: n for n in reversed(names)}
        names = sorted(names, key=lambda n: n not in families.values())  # one of each kind first
        todo = [(n, how) for n in names for how in ("strip", "lift") if options.again or (n, how) not in done]
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        for number, (name, how) in enumerate(todo, start=1):
            if time.monotonic() - begun > 60 * options.minutes:
                break
            print(f"{number}/{len(todo)} {name} {how}", flush=True)
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
                try:
                    done[name, how] = pool.submit(examine, name, how).result()
                except Exception as error:  # noqa: BLE001  # the others shall still have their turn
                    print(f"{name} crashed: {error}", flush=True)
            RESULTS.write_text(json.dumps(list(done.values()), indent=1) + "\n")
    TABLE.write_text(render(list(done.values())))
    print(f"{len(done)} models in {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
