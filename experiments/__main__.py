"""`python -m experiments NAME [--quick]`: run one script and write its results; `--pages`: write docs from results."""

import argparse
import importlib
import sys

import torch

from experiments import lab


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments", description="Run one experiment.")
    parser.add_argument("name", choices=lab.names(), nargs="?", metavar="NAME", help=", ".join(lab.names()))
    parser.add_argument("--quick", action="store_true", help="in seconds, on little data; nothing is written")
    parser.add_argument("--pages", action="store_true", help="write docs/what-reproduces.md only")
    given = parser.parse_args()
    if given.name is None and not given.pages:
        parser.error("which one? One of: " + ", ".join(lab.names()))
    if given.name is not None:
        torch.set_num_threads(1)  # the last bits of sums depend on the number of threads
        result = importlib.import_module(f"experiments.{given.name}").run(quick=given.quick)
        page = lab.page(given.name, result)
        if not given.quick:
            lab.write(given.name, result, page)
        sys.stdout.write(page)
    if not given.quick:
        (lab.DOCS / "what-reproduces.md").write_text(lab.verdicts(), "utf-8")


if __name__ == "__main__":
    main()
