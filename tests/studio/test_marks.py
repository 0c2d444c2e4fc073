"""Strokes, what they cover, and how they are kept."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image, ImageDraw

from axiograd.errors import InputError, StorageError
from axiograd.studio.marks import Marks, Stroke, as_dicts, shifted

RECTANGLE = {"do": "stroke", "image": 3, "kind": "wrong", "tool": "rectangle", "size": 1, "points": [[1, 2], [4, 6]]}


def test_a_rectangle_covers_the_pixels_whose_centres_are_inside():
    mask = Stroke.ensure(RECTANGLE).raster(8, 8)
    expected = np.zeros((8, 8), dtype=bool)
    expected[2:6, 1:4] = True
    assert (mask == expected).all()


def test_a_brush_is_what_pillow_draws_give_or_take_its_edge():
    points = [(6.0, 7.0), (40.0, 30.0), (20.0, 55.0)]
    mask = Stroke("wrong", "brush", 9, tuple(points)).raster(64, 64)
    image = Image.new("L", (64 * 8, 64 * 8))
    pen = ImageDraw.Draw(image)
    pen.line([(8 * x, 8 * y) for x, y in points], fill=255, width=72, joint="curve")
    for x, y in points:
        pen.ellipse([8 * x - 36, 8 * y - 36, 8 * x + 36, 8 * y + 36], fill=255)
    drawn = np.asarray(image).reshape(64, 8, 64, 8).mean((1, 3)) / 255
    assert mask[drawn == 1].all()
    assert not mask[drawn == 0].any()


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
    radius = max(size / 2, 0.5)
    assert mask[distance < radius - 0.1].all()
    assert not mask[distance > radius + 0.75].any()


def test_what_is_painted_later_lies_on_top():
    marks = Marks((8, 8))
    marks.add(RECTANGLE)
    marks.add(RECTANGLE | {"kind": "right", "points": [[1, 2], [2, 6]]})
    marks.add(RECTANGLE | {"kind": "erase", "points": [[3, 2], [4, 6]]})
    wrong, right = marks.masks(3)
    assert (int(wrong.sum()), int(right.sum())) == (4, 4)
    assert not (wrong & right).any()


def test_undo_takes_back_one_action_at_a_time_and_a_spread_as_one(tmp_path):
    file = tmp_path / "marks.jsonl"
    marks = Marks.read(file, (8, 8))
    marks.add(RECTANGLE)
    marks.add({"do": "spread", "strokes": as_dicts(marks.strokes(3)), "to": [[5, 1, -1], [6, 0, 0]]})
    assert marks.images() == [3, 5, 6]
    assert (marks.masks(5)[0] == shifted(marks.masks(3)[0], 1, -1)).all()
    assert marks.undo()["do"] == "spread"
    assert marks.images() == [3]
    assert Marks.read(file, (8, 8)).images() == [3]
    marks.undo()
    assert marks.images() == []
    assert marks.undo() is None
    marks.add(RECTANGLE | {"image": 1})
    assert Marks.read(file, (8, 8)).painted() == [1]


def test_a_line_that_a_crash_has_cut_off_was_never_confirmed(tmp_path):
    file = tmp_path / "marks.jsonl"
    marks = Marks.read(file, (8, 8))
    marks.add(RECTANGLE)
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole + whole[:cut])
        again = Marks.read(file, (8, 8))
        assert len(again.actions) == 1
        again.add(RECTANGLE | {"image": 9})
        assert Marks.read(file, (8, 8)).painted() == [3, 9]


def test_damage_in_the_middle_is_said(tmp_path):
    file = tmp_path / "marks.jsonl"
    file.write_bytes(b"{nonsense\n" + json.dumps({"id": 2, **RECTANGLE}).encode() + b"\n")
    with pytest.raises(StorageError, match="line 1"):
        Marks.read(file, (8, 8))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "blue"},
        {"tool": "bucket"},
        {"points": []},
        {"points": [[0, float("nan")], [1, 1]]},
        {"points": [[0, 0]]},
        {"points": "everything"},
        {"points": [[1, 2]] * 30_000, "tool": "brush"},
        {"size": -1},
        {"size": float("inf")},
        {"size": None},
    ],
)
def test_what_is_not_a_stroke_is_refused(wrong):
    with pytest.raises(InputError, match=r"stroke|corners"):
        Stroke.ensure(RECTANGLE | wrong)
