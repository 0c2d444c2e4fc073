from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from axiograd.attribution import XGradient
from axiograd.experiments import box_energy
from axiograd.experiments.item import Setting
from axiograd.experiments.records import Records


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    whole = box_energy.load("quick")
    few = replace(whole, train=whole.train.select(slice(128)), val=whole.val.select(slice(32)))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(box_energy, "load", lambda _: few)
        yield _made(tmp_path_factory)


def _made(tmp_path_factory: pytest.TempPathFactory) -> Records:
    plan = box_energy.plan(Setting("quick"))
    made = Records(
        tmp_path_factory.mktemp("box") / "quick.json", command="test", data=plan.data, settings=plan.settings
    )
    for stage in plan.stages:
        for work in stage(made):
            made.piece(work.compute, **work.key)
    return made


def test_every_row_is_measured_and_shown(records: Records) -> None:
    table = box_energy.table(records)
    assert [row[0] for row in table.rows] == [row.label for row in box_energy.ROWS.values()]
    assert "spread evenly" in table.note


def test_on_the_x_network_integrated_gradients_agree_with_x_gradient(records: Records) -> None:
    (piece,) = records.find(row="x-gradient")
    assert piece.values["share"] == pytest.approx(piece.values["share_ig"], abs=0.01)
    (regular,) = records.find(row="none")
    assert regular.values["share"] != pytest.approx(regular.values["share_ig"], abs=0.01)


def test_the_figure_has_a_line_per_method(records: Records) -> None:
    axes = box_energy.figure(records).axes[0]
    assert len(axes.lines) == 4


def test_flips_take_the_masks_along() -> None:
    torch.manual_seed(0)
    x = torch.arange(8.0).reshape(1, 1, 1, 8).expand(64, -1, -1, -1)
    flipped, _, inside = box_energy.flip(x, torch.zeros(64), x > 5)
    assert 0 < int((flipped[:, 0, 0, 0] == 7).sum()) < 64
    assert torch.equal(inside, flipped > 5)


def test_the_share_of_a_known_attribution() -> None:
    data = box_energy.load("quick").val
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 4, bias=False))
    with torch.no_grad():
        model[1].weight.fill_(1.0)  # attribution is the image itself
    summed = data.inputs.double().sum(1, keepdim=True).clamp(min=0)
    expected = (summed * data.masks).sum((1, 2, 3)) / summed.sum((1, 2, 3))
    assert box_energy.inside_share(XGradient(model), data) == pytest.approx(100 * float(expected.mean()), rel=1e-5)


def test_gains_are_over_the_same_network_without_prior(tmp_path) -> None:
    settings = {"ig_steps": 8, "covered": 50.0}
    records = Records(tmp_path / "r.json", command="test", data="boxes", settings=settings)
    for row, weight, accuracy, share, share_ig in (
        ("none", 0.0, 60.0, 51.0, 50.0),
        ("none-x", 0.0, 40.0, 55.0, 55.0),
        ("input-x-gradient", 1.0, 59.0, 61.0, 60.0),
        ("x-gradient", 1.0, 42.0, 70.0, 70.0),
        ("x-gradient", 4.0, 30.0, 80.0, 79.5),
    ):
        values = {"accuracy": accuracy, "share": share, "share_ig": share_ig, "seconds_per_epoch": 1.0}
        records.add(values, row=row, weight=weight, seed=0)
    note = box_energy.table(records).note
    assert "Input × Gradient +10.0 points inside and -1.0 of accuracy (λ = 1)" in note
    assert "X-Gradient +15.0 points inside and +2.0 of accuracy (λ = 1)" in note
    assert "in points: Input × Gradient 1.0, X-Gradient 0.5" in note
