"""Strokes, what they cover, how they are kept, and masks as files."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from axiograd.datasets.pictures import Pictures, read_mask
from axiograd.errors import DataMissingError, InputError, StorageError
from axiograd.studio.marks import Marks, Stroke, as_dicts, shifted
from axiograd.studio.masks import find_masks, import_masks, write_masks

RECTANGLE = {"do": "stroke", "image": 3, "kind": "wrong", "tool": "rectangle", "size": 1, "points": [[1, 2], [4, 6]]}


def test_a_rectangle_covers_the_pixels_whose_centres_are_inside():
    mask = Stroke.of(RECTANGLE | {"points": [[4.2, 5.8], [0.9, 2.2]]}).raster(8, 8)
    expected = np.zeros((8, 8), dtype=bool)
    expected[2:6, 1:4] = True
    assert (mask == expected).all()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 25), st.floats(-5, 25)), min_size=1, max_size=4),
    st.floats(0.1, 12),
)
def test_a_brush_covers_what_is_near_its_line(points, size):
    mask = Stroke("wrong", "brush", size, tuple(points)).raster(20, 20)
    # Brute force: many points along the line, and the distance to the nearest.
    along = np.linspace(0, 1, 400)[:, None]
    pairs = list(itertools.pairwise(points)) or [(points[0], points[0])]
    line = np.concatenate([np.array(a) + along * (np.array(b) - np.array(a)) for a, b in pairs])
    centres = np.stack(np.meshgrid(np.arange(20) + 0.5, np.arange(20) + 0.5), -1)
    distance = np.sqrt(((centres[:, :, None] - line) ** 2).sum(-1)).min(-1)
    radius = max(size, 1) / 2
    assert mask[distance < radius - 0.75].all()
    assert not mask[distance > radius + 0.75].any()
    for x, y in points:
        if 0 <= x < 20 and 0 <= y < 20:
            assert mask[int(y), int(x)]


def test_what_is_painted_later_lies_on_top():
    marks = Marks((8, 8))
    marks.add(RECTANGLE)
    marks.add(RECTANGLE | {"kind": "right", "points": [[1, 2], [2, 6]]})
    marks.add(RECTANGLE | {"kind": "erase", "points": [[3, 2], [4, 6]]})
    wrong, right = marks.masks(3)
    assert (int(wrong.sum()), int(right.sum())) == (4, 4)
    assert not (wrong & right).any()


def test_undo_takes_back_what_was_done_last_on_that_image_and_a_spread_as_one(tmp_path):
    file = tmp_path / "marks.jsonl"
    marks = Marks.read(file, (8, 8))
    marks.add(RECTANGLE)
    marks.add({"do": "spread", "image": 3, "strokes": as_dicts(marks.strokes(3)), "to": [[5, 1, -1], [6, 0, 0]]})
    marks.add(RECTANGLE | {"image": 7})
    assert (marks.masks(5)[0] == shifted(marks.masks(3)[0], 1, -1)).all()
    assert marks.undo(5) is None  # painted on 3, and spread from there
    assert marks.undo(3)["do"] == "spread"
    assert marks.images() == [3, 7]
    assert marks.undo(3)["do"] == "stroke"
    assert Marks.read(file, (8, 8)).images() == [7]
    assert marks.undo(3) is None
    assert marks.after(2).images() == [3, 5, 6]


def test_a_line_that_a_crash_has_cut_off_was_never_confirmed(tmp_path):
    file = tmp_path / "marks.jsonl"
    Marks.read(file, (8, 8)).add(RECTANGLE)
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole + whole[:cut])
        again = Marks.read(file, (8, 8))
        assert len(again.actions) == 1
        again.add(RECTANGLE | {"image": 9})
        assert Marks.read(file, (8, 8)).painted() == [3, 9]
    file.write_bytes(b"{nonsense\n" + json.dumps({"id": 2, **RECTANGLE}).encode() + b"\n")
    with pytest.raises(StorageError, match="line 1"):
        Marks.read(file, (8, 8))


@pytest.fixture
def photos(tmp_path) -> Pictures:
    for name in ("a/one.jpg", "a/two.jpg", "b/one.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), "grey").save(tmp_path / "images" / name)
    return Pictures.of_folder(tmp_path / "images")


def test_masks_come_back_as_they_were_written_and_are_copied_once(tmp_path, photos):
    marks = Marks((8, 8))
    marks.add(RECTANGLE | {"image": 0})
    marks.add(RECTANGLE | {"image": 2})
    marks.add({"do": "stroke", "image": 2, "kind": "right", "tool": "brush", "size": 3, "points": [[6, 1], [7, 7]]})
    files = write_masks(tmp_path / "out", photos, marks)
    assert (read_mask(tmp_path / "out" / files[2]["here"]) == marks.masks(2)[1]).all()
    again = Marks.read(tmp_path / "session" / "marks.jsonl", (8, 8))
    again.add(RECTANGLE | {"image": 1})  # a session that is resumed
    assert import_masks(tmp_path / "out", photos, again, tmp_path / "session") == 3
    assert again.images() == [0, 1, 2]
    for image in (0, 2):
        for one, other in zip(marks.masks(image), again.masks(image), strict=True):
            assert (one is None) == (other is None)
            assert one is None or (one == other).all()
    assert import_masks(tmp_path / "out", photos, again, tmp_path / "session") == 0


def test_plain_folders_of_masks_are_read_by_the_names_of_the_images(tmp_path, photos):
    (tmp_path / "masks" / "a").mkdir(parents=True)
    Image.new("L", (8, 8), 255).save(tmp_path / "masks" / "a" / "two.png")
    Image.new("L", (8, 8), 255).save(tmp_path / "masks" / "a" / "one.jpg.png")
    found = find_masks(tmp_path / "masks", photos)
    assert sorted((image, kind) for image, _, kind in found) == [(0, "wrong"), (1, "wrong")]
    Image.new("L", (9, 8), 255).save(tmp_path / "masks" / "a" / "two.png")
    with pytest.raises(InputError, match="9 × 8"):
        import_masks(tmp_path / "masks", photos, Marks((8, 8)), tmp_path)
    with pytest.raises(DataMissingError, match="no folder"):
        find_masks(tmp_path / "nowhere", photos)
    (tmp_path / "other").mkdir()
    Image.new("L", (8, 8), 255).save(tmp_path / "other" / "three.png")
    with pytest.raises(InputError, match=r"three\.png"):
        find_masks(tmp_path / "other", photos)
