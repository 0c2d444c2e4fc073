"""Table 1: which axioms each attribution method satisfies, cell by cell beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from axiograd.axioms import AXIOMS
from axiograd.axioms.paper_table import NOTES, MethodColumn, Table1, columns
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.records import Records

#: Networks, steps of Integrated Gradients and samples of Expected Gradients.
SIZES: Mapping[str, tuple[int, int, int]] = {"quick": (1, 256, 256), "real": (4, 512, 1024)}


def measure(column: MethodColumn, n_networks: int, setting: Setting) -> dict[str, Any]:
    """A mark, the largest violation and, where there is one, the counterexample in words, for each axiom."""
    report = column.audit(seed=setting.seed, n_networks=n_networks)
    return {
        "models": report.models,
        "tolerance": column.tolerance,
        "axioms": {
            result.axiom: {
                "mark": result.mark,
                "violation": float(f"{result.violation:.6g}"),
                "cases": result.n_cases,
                "counterexample": None if result.counterexample is None else str(result.counterexample),
            }
            for result in report.results
        },
    }


def plan(setting: Setting) -> Plan:
    """One piece per method."""
    n_networks, n_steps, n_samples = SIZES[setting.scale]

    work = [
        Work(
            {"method": column.name},
            partial(measure, column, n_networks, setting),
            n_steps if column.name == "Integrated Gradients" else n_samples if column.baselines is not None else 8,
        )
        for column in columns(n_steps=n_steps, n_samples=n_samples).values()
    ]
    sizes = {"networks": n_networks, "steps": n_steps, "samples": n_samples}
    return Plan.of("generated networks and inputs", {"seed": setting.seed, **sizes, "scale": setting.scale}, work)


def table(records: Records) -> Table:
    """Ours, then the paper's in parentheses; – where it says nothing."""
    found = {piece.key["method"]: piece.values for piece in records.pieces}
    paper = Table1(())
    rows: list[tuple[Cell, ...]] = []
    different = []
    for axiom in AXIOMS:
        cells = []
        for method, values in found.items():
            ours, theirs = values["axioms"][axiom.name]["mark"], paper.paper(method, axiom.name)
            cells.append(f"{ours} ({theirs})")
            if theirs not in {"–", ours}:
                different.append(f"{method}, {axiom.name}: violation {values['axioms'][axiom.name]['violation']:.1e}")
        rows.append((axiom.name, *cells))
    agreement = (
        f"Not as in the paper: {'; '.join(different)}." if different else "Every cell that the paper fills agrees."
    )
    notes = " ".join(f"{name}: {NOTES[name]}" for name in found if name in NOTES)
    note = (
        "In parentheses: the paper's Table 1 (– where it says nothing; nonnegative homogeneity is its Definition 3.6). "
        f"{agreement} {notes} {_tried(found)}"
    )
    return Table(("axiom", *found), tuple(rows), note)


def _tried(found: Mapping[str, Mapping[str, Any]]) -> str:
    """On what, and within which tolerance of the output's scale, each method was tried."""
    groups: dict[tuple[str, float], list[str]] = {}
    for method, values in found.items():
        groups.setdefault((values["models"], values["tolerance"]), []).append(method)
    words = [f"{', '.join(names)} on {models}, {limit:.2g}" for (models, limit), names in groups.items()]
    return f"Tried on, and allowed to be off by that part of the output's scale: {'; '.join(words)}."


ITEM = Item("table1", "Table 1: axioms of attribution methods", plan, table, scales=("quick", "real"))
