"""`axiograd studio`: what it asks for, and what it says when that is missing."""

import pytest
from PIL import Image

from axiograd.cli.studio import _named
from axiograd.errors import ConfigurationError
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


def test_folders_are_matched_to_outputs_by_name(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), "grey").save(tmp_path / "images" / name / "one.png")
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\nclasses = ['owl', 'dog', 'cat']\n\n\n"
        "def build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))\n"
    )
    pictures, _ = _named(f"{tmp_path / 'net.py'}:build", None, None, "size=8", str(tmp_path / "images"))
    assert [pictures.classes[label] for label in pictures.targets] == ["cat", "dog"]
    assert pictures.targets.tolist() == [2, 1]
    (tmp_path / "images" / "dog").rename(tmp_path / "images" / "fox")
    with pytest.raises(ConfigurationError, match="names of the model's classes"):
        _named(f"{tmp_path / 'net.py'}:build", None, None, "size=8", str(tmp_path / "images"))
