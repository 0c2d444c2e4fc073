"""What the studio computes, without a server: split, clusters, spreading, judging, masks as files."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from axiograd import XGradient
from axiograd.datasets.pictures import MarkedImages, Pictures, read_mask
from axiograd.errors import DataMissingError, InputError
from axiograd.studio.clusters import find_clusters
from axiograd.studio.judging import judge, parts, randomised
from axiograd.studio.marks import Marks, as_dicts
from axiograd.studio.mask_files import annotation, find_masks, import_masks, write_masks
from axiograd.studio.split import split
from axiograd.studio.spreading import similar, targets
from axiograd.studio.survey import GRID, cells, look
from axiograd.studio.windows import groups, heaviest, unusual
from support.studio_model import CORNER, SIDE, squares


def quietly(done, total):
    """Nobody watches."""


def cornered(images=(0,), side=CORNER) -> Marks:
    marks = Marks((SIDE, SIDE))
    for image in images:
        marks.add(
            {"do": "stroke", "image": image, "kind": "wrong", "tool": "rectangle", "points": [[0, 0], [side, side]]}
        )
    return marks


def test_every_class_has_images_to_train_and_to_judge():
    found = split([0] * 10 + [1] * 3 + [2])
    assert sorted(found.train + found.held_out) == list(range(14))
    assert found.too_small == (2,)
    assert 13 in found.train
    assert {0, 1} == {([0] * 10 + [1] * 3 + [2])[row] for row in found.held_out}


def test_the_heaviest_window_is_that_of_brute_force():
    maps = torch.rand(20, GRID, GRID, generator=torch.Generator().manual_seed(0)).numpy()
    maps /= maps.sum((1, 2), keepdims=True)
    places = heaviest(maps)
    for one, (top, left, side), share in zip(maps, places.windows, places.shares, strict=True):
        best = max(
            (one[y : y + s, x : x + s].sum() / s, s)
            for s in (2, 4)
            for y in range(GRID - s + 1)
            for x in range(GRID - s + 1)
        )
        assert np.isclose(share / side, best[0], rtol=1e-5)
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


def test_images_without_attribution_are_in_no_group():
    assert groups(np.zeros((20, GRID, GRID), dtype=np.float32)) == []


def test_the_shortcut_is_the_first_cluster(model, pictures):
    survey = look(model, XGradient(model), pictures, range(len(pictures)), quietly)
    with torch.no_grad():
        assert (survey.predictions == model(pictures.batch(range(120))).argmax(1).numpy()).all()
    first, second = find_clusters(model, pictures, survey, quietly)[:2]
    assert "upper left corner" in first.sentence
    assert first.box[2] < 0.3
    assert first.score > 5 * second.score
    assert first.accuracy > 0.9


def test_an_image_without_attribution_has_an_empty_map():
    assert float(cells(torch.zeros(1, 3, 32, 32)).sum()) == 0


def test_patches_that_look_the_same_are_those_of_brute_force(pictures):
    mask = cornered().masks(0)[0]
    found = similar(0, mask, pictures, range(1, 40), quietly, alike=0.05)
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


def test_a_class_and_a_cluster_spread_to_their_own(pictures):
    mask = cornered().masks(0)[0]
    rows = range(len(pictures))
    assert targets("class", 0, mask, pictures, rows, quietly) == [(row, 0, 0) for row in range(2, 120, 2)]
    assert targets("cluster", 0, mask, pictures, rows, quietly, members=[0, 7]) == [(7, 0, 0)]
    with pytest.raises(InputError, match="no cluster"):
        targets("cluster", 0, mask, pictures, rows, quietly)


def test_exchanged_regions_come_from_other_classes(pictures):
    rows = list(range(40))
    marks = cornered(rows)
    exchanged = randomised(pictures, rows, marks).batch(0, 40)
    before = pictures.batch(rows)
    corner = exchanged[:, 0, :CORNER, :CORNER]
    told = pictures.targets[rows].bool()
    # Two classes, so that the other one's value is in every corner, and nothing else has changed.
    assert torch.allclose(corner.mean((1, 2)), torch.where(told, 0.35, 0.95))
    exchanged[:, :, :CORNER, :CORNER] = before[:, :, :CORNER, :CORNER]
    assert torch.equal(exchanged, before)


def test_a_mask_has_its_parts():
    mask = np.zeros((6, 6), dtype=bool)
    mask[:2, :2] = mask[4:, 3:] = True
    found = parts(0, mask)
    assert [(one.top, one.left, one.mask.shape) for one in found] == [(0, 0, (2, 2)), (4, 3, (2, 3))]


def test_a_verdict_is_what_a_loop_over_images_finds(model, pictures):
    rows = list(range(30))
    marks = cornered(range(10))
    verdict = judge(model, XGradient(model), pictures, rows, marks, quietly)
    right, shares = [], []
    for row in rows:
        x = pictures.batch([row]).requires_grad_()
        outputs = model(x)
        right.append(int(outputs.argmax()) == int(pictures.targets[row]))
        if row < 10:
            (gradient,) = torch.autograd.grad(outputs[0].max(), x)
            mass = (x * gradient).abs().sum((0, 1))
            shares.append(float((mass[:CORNER, :CORNER].sum() / mass.sum()).detach()))
    assert verdict.accuracy == np.mean(right)
    assert np.isclose(verdict.wrong_share, np.mean(shares), rtol=1e-4)
    assert verdict.marked == 10
    assert verdict.randomised < verdict.marked_accuracy


def test_without_marks_there_is_no_share(model, pictures):
    verdict = judge(model, XGradient(model), pictures, [0, 1], Marks((SIDE, SIDE)), quietly)
    assert (verdict.wrong_share, verdict.randomised, verdict.marked) == (None, None, 0)


def test_masks_come_back_as_they_were_written(tmp_path, pictures):
    marks = cornered([0, 5])
    marks.add({"do": "stroke", "image": 5, "kind": "right", "tool": "brush", "size": 3, "points": [[8, 8], [9, 12]]})
    files = write_masks(tmp_path / "out", pictures, marks)
    assert (read_mask(tmp_path / "out" / files[5]["here"]) == marks.masks(5)[1]).all()
    again = Marks.read(tmp_path / "session" / "marks.jsonl", (SIDE, SIDE))
    assert import_masks(tmp_path / "out", pictures, again, tmp_path / "session") == 3
    for image in (0, 5):
        for one, other in zip(marks.masks(image), again.masks(image), strict=True):
            assert (one is None) == (other is None)
            assert one is None or (one == other).all()
    again.undo()
    assert again.images() == []


def test_coco_run_lengths_decode_to_the_mask(tmp_path, pictures):
    random = np.random.default_rng(0)
    for _ in range(30):
        mask = random.random((5, 7)) > 0.5
        if not mask.any():
            continue
        one = annotation(1, 0, 1, mask)
        values = np.concatenate([np.full(count, at % 2) for at, count in enumerate(one["segmentation"]["counts"])])
        assert (mask == values.reshape(7, 5).T).all()
        x, y, w, h = one["bbox"]
        assert mask[y : y + h, x : x + w].sum() == mask.sum() == one["area"]
    write_masks(tmp_path, pictures, cornered([2]))
    coco = json.loads((tmp_path / "coco.json").read_text())
    assert [one["file_name"] for one in coco["images"]] == ["2"]
    assert coco["annotations"][0]["image_id"] == coco["images"][0]["id"]


def test_plain_folders_of_masks_are_read_by_the_names_of_the_images(tmp_path):
    for name in ("a/one.jpg", "a/two.jpg", "b/one.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), "grey").save(tmp_path / "images" / name)
    pictures = Pictures.of_folder(tmp_path / "images")
    (tmp_path / "masks" / "a").mkdir(parents=True)
    Image.new("L", (8, 8), 255).save(tmp_path / "masks" / "a" / "two.png")
    Image.new("L", (8, 8), 255).save(tmp_path / "masks" / "a" / "one.jpg.png")
    assert sorted((image, kind) for image, _, kind in find_masks(tmp_path / "masks", pictures)) == [
        (0, "wrong"),
        (1, "wrong"),
    ]
    Image.new("L", (9, 8), 255).save(tmp_path / "masks" / "a" / "two.png")
    with pytest.raises(InputError, match="9 × 8"):
        import_masks(tmp_path / "masks", pictures, Marks((8, 8)), tmp_path)
    with pytest.raises(DataMissingError, match="no folder"):
        find_masks(tmp_path / "nowhere", pictures)
    (tmp_path / "other").mkdir()
    Image.new("L", (8, 8), 255).save(tmp_path / "other" / "three.png")
    with pytest.raises(InputError, match=r"three\.png"):
        find_masks(tmp_path / "other", pictures)


def test_few_marked_images_are_seen_often(pictures):
    marks = cornered([0, 1])
    data = MarkedImages(pictures, range(100), marks.masks, [0, 1], size=40)
    assert len(data) == 40
    for epoch in (0, 1):
        data.set_epoch(epoch)
        drawn = data.drawn
        assert sorted(row for row in drawn if row < 2) == [0] * 5 + [1] * 5
        assert len(set(drawn)) == 32
    first = data.drawn
    data.set_epoch(0)
    assert data.drawn != first
    inputs, target, given = data[drawn.index(0)] if 0 in data.drawn else data[0]
    assert given["mask"].shape == (1, SIDE, SIDE)
    assert inputs.shape == (1, SIDE, SIDE)
    assert target.ndim == 0


def test_images_that_cannot_be_decoded_are_left_out_and_listed(tmp_path):
    (tmp_path / "a").mkdir()
    Image.new("RGB", (8, 8), "grey").save(tmp_path / "a" / "good.png")
    (tmp_path / "a" / "bad.png").write_bytes(b"no image")
    pictures = Pictures.of_folder(tmp_path)
    assert pictures.names == ("a/good.png",)
    assert "bad.png" in pictures.skipped[0]
    (tmp_path / "a" / "good.png").write_bytes(b"none either")
    with pytest.raises(DataMissingError, match="no image that can be decoded"):
        Pictures.of_folder(tmp_path)


def test_values_outside_of_a_picture_are_refused():
    data = squares(4)
    with pytest.raises(InputError, match="pixels in"):
        Pictures.of_tensors(type(data)(data.inputs * 300, data.targets, "bytes"))


def test_strokes_survive_json():
    marks = cornered()
    assert json.loads(json.dumps(as_dicts(marks.strokes(0))))[0]["points"] == [[0.0, 0.0], [2.0, 2.0]]
