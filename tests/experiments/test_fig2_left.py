"""Accuracy at low contrast, quick and at full scale in miniature, with the networks of Table 2 beside."""

import pytest
import torch

from axiograd.experiments import fig2_left
from axiograd.experiments.records import Records


@pytest.fixture
def table2(tmp_path):
    """Two seeds of one network of Table 2."""
    settings = {"contrasts": [1.0, 0.1]}
    records = Records(tmp_path / "table2" / "quick.json", command="test", data="shapes", settings=settings)
    name = next(iter(fig2_left.NETWORKS))
    for seed in range(2):
        key = {"part": "trained", "data": "shapes", "network": name, "kind": "X", "seed": seed}
        records.add({"contrast": [80.0 + 2 * seed, 60.0]}, **key)
    return fig2_left.NETWORKS[name].label


def test_an_x_dnn_does_not_see_contrast(quick, table2):
    done = quick("fig2-left")
    regular, x, trained = done.table.rows
    assert regular[:2] == ("small network", "regular")
    assert len(set(x[2:])) == 1
    assert trained[:3] == (f"{table2}, shapes, 1,000 test images", "X", "81.0")
    assert trained[done.table.header.index("α = 0.1")] == "60.0"
    assert trained[done.table.header.index("α = 0.9")] is None


def test_full_scale(full):
    rows = full("fig2-left").table.rows
    assert [row[:2] for row in rows[:2]] == [("AlexNet", "regular"), ("AlexNet", "X")]
    for row in rows:
        if row[1] == "X":
            assert len(set(row[2:])) == 1


def test_calibration_images_do_not_judge(tmp_path):
    settings = {"scale": "real", "seed": 3}
    records = Records(tmp_path / "real.json", command="test", data="photos", settings=settings)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(3)).tolist()
    calibrated_on = set(range(0, 80, 5))  # 16, spread over 80
    for start in (0, 40):
        right = [100.0 if i in calibrated_on else 0.0 for i in order[start : start + 40]]
        values = {f"{factor:g}": right for factor in fig2_left.FACTORS}
        records.add(values, network="squeezenet1_1", form="lifted", images=[start, start + 40])
    curve = fig2_left.curves(records)["SqueezeNet 1.1"]["lifted"]
    assert set(curve.values()) == {0.0}
