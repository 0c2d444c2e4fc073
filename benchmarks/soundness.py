"""Random networks against the certificate: `python benchmarks/soundness.py --examples 100000`.

Every certificate is tried in float64 at several scales of inputs of any sign, of negative and of sparse ones; one that
brute force refutes is printed and makes the command fail. Fifty networks are certified at a time, as the outputs of one
program, with every beginning of each; every tenth batch has changes in place.
"""

import argparse
import random
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

from support.certificates.draws import draw
from support.certificates.soundness import Tally, examine

BATCH = 50


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this long in any case")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    tally = search(arguments.examples, arguments.seed, arguments.minutes * 60, console)
    print(
        f"{tally.examples} networks (seed {arguments.seed}): {tally.certified} certified, {tally.refused} refused "
        f"({tally.cautious} of them although some degree fits at the points tried), {len(tally.refuted)} refuted"
    )
    for network, degree, test in tally.refuted:
        print(f"  degree {degree:g} fails the {test}: {network}")
    return 1 if tally.refuted else 0


def search(examples, seed, seconds, console):
    tally = Tally()
    generator = random.Random(seed)
    start = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("networks", total=examples)
        batch = 0
        while tally.examples < examples and time.monotonic() - start < seconds:
            in_place = batch % 10 == 9
            examine([draw(generator, in_place=in_place) for _ in range(BATCH)], tally, seed=seed + batch)
            batch += 1
            progress.update(task, completed=tally.examples, description=f"networks, {len(tally.refuted)} refuted")
    return tally


if __name__ == "__main__":
    sys.exit(main())
