"""Networks as they are, stripped and lifted: exact where they were converted, and only there."""

from axiograd.experiments import conversion


def test_quick(quick, monkeypatch):
    monkeypatch.setattr(conversion, "SIZES", {"quick": (5, 1)})
    done = quick("conversion")
    assert [row[1] for row in done.table.rows] == ["original", "strip", "lift"]
    original, strip, lift = (float(row[5]) for row in done.table.rows)
    assert original > 0.01
    assert max(strip, lift) < 1e-3
    assert [row[2] > 0 for row in done.table.rows] == [False, True, True]
