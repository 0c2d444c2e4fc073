"""Table 1: which axioms each attribution method satisfies, cell by cell beside the paper's."""

import pandas as pd

from axiograd.axioms import AXIOMS
from axiograd.axioms.paper_table import NOTES, Table1, columns
from experiments import lab


def run(*, quick: bool) -> lab.Result:
    sizes = {"n_networks": 1, "n_steps": 256, "n_samples": 256} if quick else {}
    return result([measured(method, **sizes) for method in columns()])


@lab.remember
def measured(method: str, n_networks: int = 4, n_steps: int = 512, n_samples: int = 1024) -> dict:
    """Its marks by axiom, on what, and how far off it may be."""
    column = columns(n_steps=n_steps, n_samples=n_samples)[method]
    report = column.audit(seed=0, n_networks=n_networks)
    marks = {found.axiom: found.mark for found in report.results}
    return {"method": column.name, "models": report.models, "tolerance": column.tolerance, "marks": marks}


def result(found: list[dict]) -> lab.Result:
    paper, cells = Table1(()), {}
    for one in found:
        theirs = {axiom.name: paper.paper(one["method"], axiom.name) for axiom in AXIOMS}
        cells[one["method"]] = {name: (one["marks"][name], mark) for name, mark in theirs.items()}
    written = {
        method: {name: f"{ours} ({theirs})" for name, (ours, theirs) in column.items()}
        for method, column in cells.items()
    }
    filled = [pair for column in cells.values() for pair in column.values() if pair[1] != "–"]
    alike = sum(ours == theirs for ours, theirs in filled)
    verdict = (
        f"{'Reproduces' if alike == len(filled) else 'Does not reproduce'}: {alike} of the {len(filled)} cells that "
        "the paper fills agree; X-Gradient satisfies the axioms that Integrated Gradients does, on X-DNNs."
    )
    groups: dict[tuple[str, float], list[str]] = {}
    for one in found:
        groups.setdefault((one["models"], one["tolerance"]), []).append(one["method"])
    tried = [f"{', '.join(methods)} on {models}, {limit:.2g}" for (models, limit), methods in groups.items()]
    remarks = " ".join(f"{method}: {NOTES[method]}" for method in cells if method in NOTES)
    note = (
        "In parentheses: the paper's Table 1 (– where it says nothing; nonnegative homogeneity is its Definition 3.6). "
        f"{remarks} Tried on, and allowed to be off by that part of the output's scale: {'; '.join(tried)}."
    )
    table = pd.DataFrame(written).rename_axis("axiom").reset_index()
    data = "generated networks and inputs"
    return lab.Result("Table 1: axioms of attribution methods", table, verdict, note, data, "0")
