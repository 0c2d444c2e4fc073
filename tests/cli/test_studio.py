"""`axiograd studio`: what it asks for, and what it says when that is missing."""

import pytest
from PIL import Image

from support.command import axiograd


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "or --demo"), (("xmlp", "--demo"), "not both"), (("xmlp",), "--data is missing")],
)
def test_one_of_a_model_and_the_demonstration(arguments, said):
    done = axiograd("studio", *arguments)
    assert done.code == 2
    assert said in done.err


def test_no_images_is_a_sentence(tmp_path):
    (tmp_path / "a").mkdir()
    done = axiograd("studio", "xalexnet", "--data", tmp_path, "--out", tmp_path / "out", "--no-browser")
    assert done.code == 3
    assert "no images" in done.err


def test_masks_of_other_images_are_a_sentence_and_leave_nothing(tmp_path):
    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.new("RGB", (16, 16), "grey").save(tmp_path / "images" / "a" / "one.png")
    (tmp_path / "masks").mkdir()
    given = ("--data", tmp_path / "images", "--masks", tmp_path / "masks", "--out", tmp_path / "out", "--no-browser")
    assert "no mask with the name of an image" in axiograd("studio", "xalexnet", *given).err
    assert not (tmp_path / "out" / "session.json").exists()
