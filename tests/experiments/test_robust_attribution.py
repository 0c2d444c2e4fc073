"""Robust attribution training: measures against SciPy and sets, the attack, the choice of λ, and a run in small."""

import pytest
import torch
from scipy.stats import kendalltau
from torch import nn

from axiograd.attribution import XGradient
from axiograd.experiments import robust_attribution
from axiograd.experiments.decoy_training import network
from axiograd.experiments.records import Records
from axiograd.experiments.robust_attribution import SIZES, WAYS, choose, train
from axiograd.experiments.stability import attacked, kendall, noisy, overlap, smoothed


def test_kendall_is_scipys_with_ties():
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randint(0, 9, (4, 2, 15), generator=draw).double() for _ in range(2))
    expected = [kendalltau(x.flatten(), y.flatten()).statistic for x, y in zip(a, b, strict=True)]
    torch.testing.assert_close(kendall(a, b), torch.tensor(expected, dtype=torch.float64))


def test_overlap_is_that_of_sets():
    draw = torch.Generator().manual_seed(0)
    a, b = torch.rand(4, 1, 6, 6, generator=draw), torch.rand(4, 1, 6, 6, generator=draw)
    sets = [[set(one.flatten().argsort()[-10:].tolist()) for one in maps] for maps in (a, b)]
    expected = [len(x & y) / 10 for x, y in zip(*sets, strict=True)]
    torch.testing.assert_close(overlap(a, b, 10), torch.tensor(expected))
    assert overlap(a, a, 10).tolist() == [1, 1, 1, 1]


def test_the_attack_does_more_than_noise_in_the_same_ball_and_keeps_the_class():
    torch.manual_seed(0)
    model = network(1, 10, homogeneous=True)
    x = torch.rand(12, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    y = model(x).argmax(1)
    moved = attacked(model, x, y, 0.1, 50, seed=0)
    assert (moved - x).abs().max() <= 0.1 + 1e-6
    assert 0 <= moved.min() <= moved.max() <= 1
    assert model(moved).argmax(1).equal(y)
    method = XGradient(model)
    maps = [method.attribute(z, y).abs() for z in (x, noisy(x, 0.1, 0), moved)]
    assert overlap(maps[0], maps[2], 50).mean() < overlap(maps[0], maps[1], 50).mean() - 0.1


def test_the_smooth_copy_is_close_and_shares_nothing():
    model = nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 2, bias=False))
    copied = smoothed(model)
    assert isinstance(copied[1], nn.Softplus)
    assert copied[0].weight.equal(model[0].weight)
    assert copied[0].weight is not model[0].weight


def records_of(tmp_path, found):
    records = Records(tmp_path / "r.json", command="x", data="images", settings={})
    values = dict.fromkeys(robust_attribution.COLUMNS, 50.0)
    for (way, weight), (accuracy, stable) in found.items():
        held_out = {"accuracy": accuracy, "attack_overlap": stable}
        seconds = 30.0 if way == "ig-norm" else 1.0
        records.add(values | {"held_out": held_out, "seconds_per_epoch": seconds}, way=way, weight=weight, seed=0)
    return records


def test_lambda_is_the_most_stable_that_costs_little(tmp_path):
    weights = WAYS["ig-norm"].grid
    found = {("plain", 0.0): (80.0, 40.0)}
    found |= {("ig-norm", w): seen for w, seen in zip(weights, [(76.0, 45.0), (70.0, 60.0)], strict=True)}
    found |= {("adversarial", w): seen for w, seen in zip(WAYS["adversarial"].grid, [(79, 41), (78, 42)], strict=True)}
    records = records_of(tmp_path, found)
    assert choose(records, "ig-norm") == weights[0]
    assert choose(records, "adversarial") == WAYS["adversarial"].grid[1]
    assert choose(records, "x-gradient") is None
    shown = robust_attribution.table(records)
    assert [row[0] for row in shown.rows] == ["plain", *["adversarial"] * 2, *["IG-NORM"] * 2]
    assert shown.rows[3][-2] == "30.0"


@pytest.mark.parametrize("name", WAYS)
def test_every_way_in_small(name):
    found = train(name, WAYS[name].grid[0], SIZES["quick"], 0)
    assert found["attack_overlap"] < found["noise_overlap"] < 100
    assert all(0 <= found[what] <= 100 for what in robust_attribution.COLUMNS)
