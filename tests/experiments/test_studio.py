"""The studio's experiments in small: finding a shortcut, and fixing it with a few strokes."""

from dataclasses import replace

import numpy as np
import torch

from axiograd.experiments import studio_finding, studio_strokes
from axiograd.experiments.confounded import load
from axiograd.experiments.item import Setting
from axiograd.experiments.records import Records
from axiograd.studio.clusters import Cluster


def cluster(members, box, score):
    return Cluster(tuple(members), box, 0.3, score, 1.0, 0.5, 0.5, score, {}, "", members[0])


def test_a_share_of_the_images_has_the_patch():
    data = load("shapes", n_val=100)
    found = studio_finding.decoyed(data, 200, 0.05, seed=3).train
    assert int(found.shortcuts.any((1, 2, 3)).sum()) == 10
    has = found.shortcuts.any((1, 2, 3))
    assert torch.equal(found.inputs[has], data.train.inputs[:200][has])
    assert torch.equal(found.inputs[~has], data.clean_train.inputs[:200][~has])


def test_a_watermark_is_on_one_class_alone():
    data = load("shapes", n_val=100)
    found = studio_finding.watermarked(data, 400, 0.2, seed=5)
    has = found.train.shortcuts.any((1, 2, 3))
    assert set(found.train.targets[has].tolist()) == {1}
    assert int(has.sum()) == round(0.2 * int((found.train.targets == 1).sum()))
    assert (found.train.inputs[has][:, :, 24:, :4] == 1).all()
    assert 1 not in found.misled.targets
    assert torch.equal(found.misled.inputs[:, :, :24], found.right.inputs[:, :, :24])


def test_rank_and_images_seen():
    shortcuts = torch.zeros(6, 1, 16, 16, dtype=torch.bool)
    shortcuts[[0, 1, 2, 5], :, :2, :2] = True
    corner, middle = (0.0, 0.0, 0.125, 0.125), (0.4, 0.4, 0.6, 0.6)
    # The middle is the more suspicious; the corner's first image has no patch.
    found = [cluster([3, 4], middle, 3.0), cluster([4, 0, 1], corner, 2.0), cluster([5], middle, 1.0)]
    assert studio_finding.effort(found, shortcuts) == {"rank": 2, "seen": 4, "clusters": 3, "wall": 5}
    nowhere = studio_finding.effort([cluster([0, 1], middle, 1.0)], shortcuts)
    assert (nowhere["rank"], nowhere["seen"]) == (None, None)


def test_a_search_that_knows_nothing_finds_the_patch(tmp_path):
    size = studio_finding.FindingSize(n=600, epochs=4, looked_at=200, seeds=1)
    found = studio_finding.searched("shapes", size, "decoy", 1.0, "x-gradient", 0)
    assert found["patches"] == 200
    assert found["rank"] == 1
    assert found["seen"] <= 3
    records = Records(tmp_path / "r.json", command="x", data="shapes", settings={"looked_at": 200})
    records.add(found, shortcut="decoy", share=1.0, maps="x-gradient", seed=0)
    records.add(found | {"rank": None, "seen": None}, shortcut="decoy", share=1.0, maps="x-gradient", seed=1)
    assert studio_finding.table(records).rows[0][4] == "1, found in 1 of 2"


def test_strokes_are_the_patches_and_some_are_wrong():
    data = load("shapes", n_val=100).train.select(slice(20))
    marks = studio_strokes.paint(data, range(10), 0.3, spread=False, n=20, seed=0)
    right = [bool(np.array_equal(marks.masks(row)[0], data.shortcuts[row, 0].numpy())) for row in range(10)]
    assert sum(right) == 7
    assert all(marks.masks(row)[0].sum() == 16 for row in range(10))
    spread = studio_strokes.paint(data, [0], 0.0, spread=True, n=20, seed=0)
    assert np.array_equal(spread.masks(7)[0], data.shortcuts[0, 0].numpy())


def test_a_round_takes_the_attribution_off_the_patch():
    size = replace(studio_strokes.SIZES["quick"], n=300, epochs=3, passes=2)
    before = studio_strokes.mended(size, 0, "no strokes", 0.0, 0)
    after = studio_strokes.mended(size, 0, "all masks", 0.0, 0)
    assert after["share"] < 0.8 * before["share"]
    planned = studio_strokes.plan(Setting("quick"), kind="demonstration")
    assert planned.data == "shapes train, class shortcut"
