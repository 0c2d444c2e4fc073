"""Experiments behind the claims of axiograd: one script per table or figure, each readable on its own.

    python -m experiments NAME [--quick]

writes docs/results/NAME.csv, NAME.md and, where there is a figure, NAME.png. What was computed is remembered in
`.experiments/`, so that an interrupted run goes on where it stopped. `--quick` takes seconds and only prints.
"""
