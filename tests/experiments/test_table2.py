from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from axiograd.experiments import image_networks, table2, table2_training
from axiograd.experiments.image_networks import FAMILIES
from axiograd.experiments.item import Setting
from axiograd.experiments.records import Records
from axiograd.experiments.table2_training import NETWORKS


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        task = replace(table2_training.load("shapes"), epochs=3)
        monkeypatch.setattr(table2_training, "load", lambda _: task)
        monkeypatch.setattr(table2_training, "IG_STEPS", 32)
        monkeypatch.setattr(table2_training, "CONTRASTS", (1.0, 0.1, 0.01))
        yield _made(tmp_path_factory)


def _made(tmp_path_factory: pytest.TempPathFactory) -> Records:
    plan = table2.plan(Setting("quick"))
    made = Records(tmp_path_factory.mktemp("t2") / "quick.json", command="test", data=plan.data, settings=plan.settings)
    for stage in plan.stages:
        for work in stage(made):
            made.piece(work.compute, **work.key)
    return made


def test_a_pair_for_each_of_the_papers_networks(records: Records) -> None:
    rows = table2.table(records).rows
    assert [row[1:3] for row in rows] == [(n.label, kind) for n in NETWORKS.values() for kind in ("regular", "X")]
    # Table 2 of the paper.
    assert [row[-2:] for row in rows] == [
        (79.21, 79.0),
        (78.54, 1.2),
        (90.44, 97.8),
        (90.25, 0.4),
        (92.56, 93.8),
        (91.12, 0.0),
    ]


def test_one_gradient_is_integrated_gradients_only_without_biases(records: Records) -> None:
    for name in NETWORKS:
        regular, homogeneous = (records.find(network=name, kind=kind)[0].values for kind in ("regular", "X"))
        assert homogeneous["difference"] < 1
        assert regular["difference"] > 5


def test_contrast_does_not_matter_without_biases(records: Records) -> None:
    for piece in records.find(kind="X"):
        assert max(piece.values["contrast"]) - min(piece.values["contrast"]) < 1


def test_a_pair_has_the_same_lost_points_as_its_accuracies(records: Records) -> None:
    rows = table2.table(records).rows
    for regular, homogeneous in zip(rows[::2], rows[1::2], strict=True):
        assert float(str(homogeneous[5])) == pytest.approx(
            float(str(regular[3])) - float(str(homogeneous[3])), abs=0.11
        )
        assert regular[5] is None


def test_what_the_biases_were_worth(tmp_path: Path) -> None:
    records = Records(tmp_path / "real.json", command="test", data="images", settings={"scale": "real"})
    for seed, (regular, homogeneous) in enumerate(((80.0, 79.0), (82.0, 79.0), (81.0, 79.0))):
        for kind, top1 in (("regular", regular), ("X", homogeneous)):
            values = {"top1": top1, "top5": 99.0, "difference": 1.0}
            records.add(values, part="trained", data="fashion-mnist", network="alexnet", kind=kind, seed=seed)
    # 1, 3 and 2 points: mean 2, s = 1, over √3.
    assert "On fashion-mnist the 3 pairs lose 2.0 ± 0.6 points" in table2.table(records).note
    # 79.21 − 78.54, 90.44 − 90.25, 92.56 − 91.12 in the paper's Table 2.
    assert "in points of top-5: AlexNet 0.67, VGG16 0.19, ResNet-50 1.44." in table2.table(records).note


def test_hits_are_counted_among_five(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_networks, "images", lambda *_: None)
    targets = torch.tensor([3, 0, 9])
    monkeypatch.setattr(image_networks, "batch", lambda *_: (torch.arange(10.0).expand(3, 10), targets))
    found = table2.hits(nn.Identity(), FAMILIES["real"][0], [0, 1, 2], Setting())
    # Scores grow with the class, so the first five are 9 to 5.
    assert found == {"top1": 1, "top5": 1, "images": 3}


def test_published_networks_are_counted_over_chunks(tmp_path: Path) -> None:
    records = Records(tmp_path / "full.json", command="test", data="ImageNet", settings={"scale": "full"})
    for form, firsts in (("regular", (600, 500)), ("X", (500, 550))):
        for start, first in zip((0, 1000), firsts, strict=True):
            values = {"top1": first, "top5": first + 200, "images": 1000}
            records.add(values, part="published", network="alexnet", form=form, images=[start, start + 1000])
    regular, homogeneous = table2.table(records).rows
    assert regular[3:6] == ("55.0", "75.0", None)
    assert homogeneous[3:6] == ("52.5", "72.5", "2.5")
    assert (regular[-2], homogeneous[-2]) == (79.21, 78.54)


def test_flips_keep_the_classes() -> None:
    torch.manual_seed(0)
    x = torch.arange(4.0).reshape(1, 1, 1, 4).expand(64, -1, -1, -1)
    flipped, y = table2_training.flip(x, torch.arange(64))
    assert 0 < int((flipped[:, 0, 0, 0] == 3).sum()) < 64
    assert torch.equal(y, torch.arange(64))
