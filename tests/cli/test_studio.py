"""The studio's command: what it asks for, and what it says when that is missing."""

import pytest
from PIL import Image
from typer.testing import CliRunner

from axiograd.cli.app import app
from axiograd.errors import ConfigurationError, DataMissingError


def run(*arguments):
    return CliRunner().invoke(app, ["studio", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "or --demo"), (("xmlp", "--demo"), "not both"), (("xmlp",), "--data is missing")],
)
def test_one_of_a_model_and_the_demonstration(arguments, said):
    error = run(*arguments).exception
    assert isinstance(error, ConfigurationError)
    assert said in str(error)


def test_no_images_is_a_sentence(tmp_path):
    (tmp_path / "a").mkdir()
    error = run("xmlp", "--data", tmp_path, "--out", tmp_path / "out", "--no-browser").exception
    assert isinstance(error, DataMissingError)
    assert "no images" in str(error)


def test_masks_of_other_images_are_a_sentence_and_leave_nothing(tmp_path):
    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.new("RGB", (16, 16), "grey").save(tmp_path / "images" / "a" / "one.png")
    (tmp_path / "masks").mkdir()
    error = run(
        "xalexnet",
        "--data",
        tmp_path / "images",
        "--masks",
        tmp_path / "masks",
        "--out",
        tmp_path / "out",
        "--no-browser",
    ).exception
    assert "no mask with the name of an image" in str(error)
    assert not (tmp_path / "out" / "session.json").exists()
