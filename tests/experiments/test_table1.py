"""Table 1 in its smallest form: the paper's cells beside ours."""

import pytest

from axiograd.experiments import table1
from axiograd.experiments.records import read


# `tests/axioms/test_table.py` measures every cell, and the committed table is drawn again in every run.
@pytest.mark.long
def test_cells(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(table1, "SIZES", {"quick": (1, 256, 16)})
    done = quick("table1")
    column = done.table.header.index("X-Gradient")
    assert [row[column] for row in done.table.rows] == ["✓ (✓)"] * 7
    column = done.table.header.index("Input×Gradient")
    assert [row[column] for row in done.table.rows[:6]] == ["✗ (✗)", "✓ (✓)", "✓ (✓)", "✗ (✗)", "✓ (✓)", "✓ (✓)"]
    found = read(tmp_path / "table1" / "quick.json").get(method="Input×Gradient")
    assert "1 - ReLU(1 - x)" in found["axioms"]["Sensitivity (a)"]["counterexample"]
