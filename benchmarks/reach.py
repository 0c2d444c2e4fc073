"""Convert every classification architecture of torchvision, and write what came of it as a table.

    python benchmarks/reach.py             # all that are not in benchmarks/results/reach.json yet
    python benchmarks/reach.py resnet18 vit_b_16 --again
    python benchmarks/reach.py --export    # the lines of export.py too, from the same conversions
    python benchmarks/reach.py --export --part 1/2    # every second line, so that another process does the others
    python benchmarks/reach.py --render    # the table alone

Weights are random, statistics settled (see zoo.py), one image of noise, at a size that the architecture takes. Each
conversion runs in a process of its own, and its line is saved as soon as it is there, so that the run can be stopped
and taken up again.
"""

import argparse
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import export
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from zoo import Lines, build, in_child, names

from axiograd.homogeneity import certify, verify
from axiograd.homogeneity.conversion import to_xdnn
from support.alive import lives

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "reach.json"
TABLE = ROOT / "benchmarks" / "results" / "reach.md"
SECONDS, GIGABYTES = 400, 12


def examine(name: str, how: str, *, exported: bool) -> Iterator[dict[str, Any]]:
    """One half of a line: a conversion, with the verdict on the original; and what an export of it gives."""
    model, x = build(name)
    yield {"parameters": sum(p.numel() for p in model.parameters()), "size": x.shape[-1]}
    if how == "lift":
        start = time.process_time()
        certificate = certify(model, x)
        yield {"violations": len(certificate.violations), "verdict_seconds": time.process_time() - start}
    start = time.process_time()
    conversion = to_xdnn(model, x, how=how)
    yield {
        "seconds": time.process_time() - start,
        "degree": conversion.certificate.degree,
        "exact": conversion.certificate.exact,
        "edits": len(conversion.edits),
        "lives": lives(conversion.model, x),
    }
    check = verify(conversion.model, x)
    yield {"verified": bool(check.ok), "euler_error": check.euler_error, "scaling_error": check.scaling_error}
    if exported:
        del model, check
        yield {"export": {}}  # begun
        yield {"export": export.measure(conversion.model.eval(), x)}


def render(lines: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    by = {(n["name"], n["how"]): n for n in lines}
    every = sorted({n["name"] for n in lines if n["how"] == "lift"})

    def cell(entry: dict[str, Any]) -> str:
        if "degree" not in entry:
            return f"{entry.get('error', 'not run').splitlines()[0][:120]} | – | –"
        degree = f"degree {entry['degree']:g}{', exact' if entry['exact'] else ''}"
        verified = f"{'yes' if entry.get('verified') else 'no'} ({entry.get('euler_error', float('nan')):.0e})"
        lives = "yes" if entry["lives"] else "no"
        return f"{degree}, {entry['edits']} edits, {entry['seconds']:.1f} s | {verified} | {lives}"

    def good(how: str) -> int:
        return sum(n["how"] == how and n.get("degree") == 1 and n.get("verified", False) and n["lives"] for n in lines)

    about = (
        "Made by `python benchmarks/reach.py`: random weights, one image of noise, eval mode, processor time of one "
        f"thread, torch {torch.__version__.split('+')[0]}. As in a trained network, every bias, mean and shift has a "
        "value, and the statistics of normalisations are those of their inputs; *violations* counts what the "
        "certificate then names in the original. *verified* is the float64 oracle `verify`, with its Euler error; "
        "*lives* means that a deep copy with the same state dict computes the same, and that train mode runs forward "
        "and backward, and eval mode after it. What a conversion costs in accuracy is another question: see "
        "[convert a model](../../docs/trained-model.md)."
    )
    counted = sum("violations" in by[n, "lift"] for n in every)
    homogeneous = sum(by[n, "lift"].get("violations") == 0 for n in every)
    slowest = max((by[n, "lift"].get("verdict_seconds", 0.0) for n in every), default=0.0)
    summary = (
        f"{len(every)} architectures at the image sizes given, with weights that nobody has trained: certified of "
        f"degree 1, verified and alive are {good('lift')} after lift and {good('strip')} after strip. Originals "
        f"without a violation: {homogeneous} of {counted}. Slowest verdict on an original: {slowest:.1f} s."
    )
    fresh = sum(by[n, "lift"].get("fresh", False) for n in every)
    if fresh:
        summary += (
            f" Of {fresh} architectures, those with an asterisk, the line is of an earlier sweep over fresh networks "
            "(no biases, statistics of 0 and 1), in which violations of the original cannot be counted and *lives* "
            "had no backward pass; the command replaces them."
        )
    columns = "| architecture | parameters | image | original: violations | verdict "
    columns += "| lift | verified | lives | strip | verified | lives |"
    head = ["# Reach: every classification architecture of torchvision", "", about, "", summary, "", columns]
    head.append("|---|---|---|---|---|---|---|---|---|---|---|")
    rows = []
    for name in every:
        lift, strip = by[name, "lift"], by.get((name, "strip"), {})
        verdict = f"{lift['violations']} | {lift['verdict_seconds']:.1f} s" if "violations" in lift else "– | –"
        size = f"{lift['parameters'] / 1e6:.1f} M | {lift['size']}" if "parameters" in lift else "– | –"
        mark = "\\*" if lift.get("fresh") else ""
        rows.append(f"| {name}{mark} | {size} | {verdict} | {cell(lift)} | {cell(strip)} |")
    return "\n".join(head + rows) + "\n"


def main() -> None:
    """Run the sweep, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="architectures; all if none is given")
    parser.add_argument("--again", action="store_true", help="also those that have a line already")
    parser.add_argument("--export", action="store_true", help="export what is converted, and measure the files")
    parser.add_argument("--part", default="1/1", help="of how many processes this one is which")
    parser.add_argument("--render", action="store_true", help="write the table from the saved lines")
    options = parser.parse_args()
    lines, exports = Lines(RESULTS), Lines(export.RESULTS)
    if not options.render:
        todo = [(name, how) for how in ("lift", "strip") for name in options.names or names()]
        lacking = [k for k in todo if not lines.has(*k) or (options.export and not exports.has(*k))]
        first, every = map(int, options.part.split("/"))
        todo = (todo if options.again else lacking)[first - 1 :: every]
        certify(torch.nn.ReLU(), torch.ones(1, 2))  # torch.export loads half of torch, once for all
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TimeRemainingColumn()) as progress:
            task = progress.add_task("reach", total=len(todo))
            for name, how in todo:
                progress.update(task, description=f"{name} {how}")
                work = partial(examine, exported=options.export)
                found = in_child(work, name, how, seconds=SECONDS, gigabytes=GIGABYTES)
                file = found.pop("export", None)
                if file is not None:
                    ended = {"error": found.pop("error")} if "error" in found else {}
                    exports.add(name, how, {"size": found["size"], **file, **ended})
                lines.add(name, how, found)
                if file is None and "error" in found:
                    progress.console.print(f"{name} {how}: {found['error'][:300]}")
                progress.advance(task)
    TABLE.write_text(render(lines.all()))
    if options.export or options.render:
        export.TABLE.write_text(export.render(exports.all()))
    print(f"{len(lines.done)} conversions in {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
