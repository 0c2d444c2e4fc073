"""What a network looks at: windows, places, and spreading to other images, beside brute force."""

import numpy as np
import torch

from axiograd import XGradient
from axiograd.studio.clusters import find_clusters, groups, heaviest, unusual
from axiograd.studio.marks import Stroke
from axiograd.studio.spreading import similar, targets
from axiograd.studio.survey import GRID, look, split
from support.studio_model import CORNER, SIDE

CORNERED = Stroke("wrong", "rectangle", 1, ((0, 0), (CORNER, CORNER))).raster(SIDE, SIDE)


def test_every_class_has_images_to_train_and_to_judge():
    labels = torch.tensor([0] * 10 + [1] * 3 + [2])
    train, held = split(labels)
    assert sorted(train + held) == list(range(14))
    assert 13 in train
    assert {0, 1} == set(labels[held].tolist())


def test_the_heaviest_window_is_that_of_brute_force():
    maps = torch.rand(20, GRID, GRID, generator=torch.Generator().manual_seed(0)).numpy()
    maps /= maps.sum((1, 2), keepdims=True)
    places = heaviest(maps)
    for one, (top, left, side), share in zip(maps, places.windows, places.shares, strict=True):
        best = max(
            one[y : y + s, x : x + s].sum() / s
            for s in (2, 4)
            for y in range(GRID - s + 1)
            for x in range(GRID - s + 1)
        )
        assert np.isclose(share / side, best, rtol=1e-5)
        assert np.isclose(one[top : top + side, left : left + side].sum(), share, rtol=1e-5)


def test_the_unusual_window_is_that_of_brute_force():
    maps = torch.rand(20, GRID, GRID, generator=torch.Generator().manual_seed(0)).numpy() ** 4
    maps /= maps.sum((1, 2), keepdims=True)
    places = unusual(maps)
    for row, (top, left, side) in enumerate(places.windows):
        best = (-np.inf, ())
        for s in (2, 4):
            even = s**2 / GRID**2
            for y in range(GRID - s + 1):
                for x in range(GRID - s + 1):
                    held = maps[:, y : y + s, x : x + s].sum((1, 2))
                    if held[row] > even:
                        best = max(best, ((held[row] - held.mean()) / (held.std() + even / 4), (y, x, s)))
        assert best[1] == (top, left, side)
        held = maps[:, top : top + side, left : left + side].sum((1, 2))
        assert np.isclose(places.shares[row], held[row], rtol=1e-5)
        assert np.isclose(places.usual[row], held.mean(), rtol=1e-5)


def test_a_place_that_few_images_look_at_is_a_group_though_they_look_at_others_more():
    """A twentieth has a little in a corner where nobody else has anything; the heaviest windows do not show it."""
    generator = torch.Generator().manual_seed(0)
    maps = 0.02 * torch.rand(200, GRID, GRID, generator=generator).numpy()
    maps[:, 6:10, 6:10] += 1.0
    maps[:, :2, 14:] = 0.0
    maps[:10, :2, 14:] = 0.3
    maps /= maps.sum((1, 2), keepdims=True)
    assert not (heaviest(maps).windows[:10, 1] >= 13).any()
    assert any(set(members) == set(range(10)) for _, members in groups(maps))
    assert groups(np.zeros((20, GRID, GRID), dtype=np.float32)) == []


def test_the_shortcut_is_the_first_cluster(model, pictures):
    survey = look(XGradient(model), pictures, range(len(pictures)))
    with torch.no_grad():
        assert (survey.predictions == model(pictures.batch(range(120))).argmax(1).numpy()).all()
    first, second = find_clusters(model, pictures, survey)[:2]
    assert first.changed > 0
    assert "upper left corner" in first.sentence
    assert first.box[2] < 0.3
    assert first.score > 2 * second.score > 0


def test_patches_that_look_the_same_are_those_of_brute_force(pictures):
    found = similar(0, CORNERED, pictures, range(1, 40), alike=0.05)
    seen = np.stack([pictures.picture(row) for row in range(40)]).astype(float) / 255
    patch = seen[0, :CORNER, :CORNER]
    expected = []
    for row in range(1, 40):
        places = [
            (np.sqrt(((seen[row, y : y + CORNER, x : x + CORNER] - patch) ** 2).mean()), y, x)
            for y in range(SIDE - CORNER + 1)
            for x in range(SIDE - CORNER + 1)
        ]
        off, y, x = min(places)
        if off <= 0.05:
            expected.append((row, y, x))
    assert found == expected
    assert {row for row, *_ in found} == set(range(2, 40, 2))


def test_a_class_spreads_to_its_own(pictures):
    rows = range(len(pictures))
    assert targets("class", 0, CORNERED, pictures, rows) == [(row, 0, 0) for row in range(2, 120, 2)]
    assert len(targets("place", 0, CORNERED, pictures, rows)) == 119
