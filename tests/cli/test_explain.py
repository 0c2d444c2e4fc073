"""Attributions from the command are those of the library, and every output states the baseline."""

import math

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

import axiograd as library
from axiograd.cli.spec import load_model
from support.command import axiograd

SMALL = ("--size", "16", "--mean", "0.5", "--std", "0.25")


@pytest.fixture
def xdnn(mine, tmp_path):
    """SPEC and weights of a stripped model for images."""
    file = tmp_path / "x.safetensors"
    assert axiograd("convert", f"{mine}:build", "-o", file, "--shape", "3,16,16").code == 0
    return f"{mine}:build", "--weights", file


def test_images_methods_side_by_side(xdnn, photos, tmp_path):
    out = tmp_path / "out"
    methods = "x-gradient,integrated-gradients,gradient"
    done = axiograd("explain", *xdnn, photos, *SMALL, "-m", methods, "--steps", "8", "-o", out, "--json")
    assert done.code == 0, done.err
    found = done.json
    assert found["baseline"] == "zero, an image of the mean colour"
    assert found["preprocessing"] == "short side 16, centre crop 16, RGB, values 0 to 1, minus 0.5, divided by 0.25"
    assert found["certified"]
    assert [s["name"] for s in found["samples"]][:3] == ["cat/cat0.png", "cat/cat1.png", "dog/dog0.png"]
    assert [s["label"] for s in found["samples"]] == [0, 0, 1, 1, 2, 2]
    assert [s["top"][0]["name"] for s in found["samples"]] == [s["target_name"] for s in found["samples"]]
    costs = {cost["method"]: cost for cost in found["costs"]}
    assert costs["X-Gradient"]["backward_passes_per_sample"] == 1
    assert costs["Integrated Gradients (8)"]["backward_passes_per_sample"] == 8
    for sample in found["samples"]:
        by = sample["methods"]
        assert by["x-gradient"]["completeness_error"] < 1e-5
        assert by["x-gradient"]["sum"] == pytest.approx(sample["difference_to_baseline"], rel=1e-4, abs=1e-5)
        assert by["gradient"]["completeness_error"] is None

    stored = load_file(out / "attributions.safetensors")
    assert stored["x-gradient"].shape == (6, 3, 16, 16)
    model = load_model(xdnn[0], str(xdnn[2]))
    expected = library.XGradient(model).attribute(stored["inputs"], stored["targets"])
    torch.testing.assert_close(stored["x-gradient"], expected)
    with Image.open(photos / "cat" / "cat0.png") as image:
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    assert stored["inputs"][0].mean() == pytest.approx(float((pixels.float() / 255 - 0.5).mean() / 0.25), abs=0.15)
    with safe_open(out / "attributions.safetensors", framework="pt") as opened:
        assert opened.metadata()["baseline"] == found["baseline"]
    page = (out / "report.html").read_text()
    assert "zero, an image of the mean colour" in page
    assert "X-Gradient" in page
    figures = sorted(path.name for path in out.glob("*.png"))
    assert len(figures) == 6
    with Image.open(out / figures[0]) as figure:
        assert figure.size[0] > 400


def test_what_people_read(xdnn, photos, tmp_path):
    done = axiograd("explain", *xdnn, photos / "cat" / "cat0.png", *SMALL, "-o", tmp_path / "o", "--no-figures")
    assert done.code == 0
    for words in ("baseline", "zero, an image of the mean colour", "X-Gradient", "cat0.png", "report.html"):
        assert words in done.out
    assert not list((tmp_path / "o").glob("*.png"))


def test_x_gradient_is_refused_where_it_is_not_exact(mine, photos, tmp_path):
    done = axiograd("explain", f"{mine}:build", photos, *SMALL, "-o", tmp_path / "o")
    assert (done.code, done.out) == (1, "")
    for words in ("is not one: 2 violations", "0.bias", "input-x-gradient", "axiograd convert"):
        assert words in done.err
    assert not (tmp_path / "o").exists()
    assert (
        axiograd(
            "explain", f"{mine}:build", photos, *SMALL, "-m", "input-x-gradient", "--no-figures", "-o", tmp_path / "o"
        ).code
        == 0
    )


def test_damaged_images(xdnn, photos, tmp_path):
    (photos / "cat" / "bad.png").write_bytes(b"no image")
    whole = (photos / "dog" / "dog0.png").read_bytes()
    (photos / "dog" / "cut.png").write_bytes(whole[: len(whole) // 2])
    done = axiograd("explain", *xdnn, photos, *SMALL, "-o", tmp_path / "o")
    assert done.code == 3
    assert "bad.png cannot be decoded" in done.err
    assert "--skip-damaged leaves it out" in done.err
    options = ("--skip-damaged", "--json", "--no-figures", "--no-report", "-o", tmp_path / "o")
    done = axiograd("explain", *xdnn, photos, *SMALL, *options)
    assert sorted(done.json["skipped"]) == ["cat/bad.png", "dog/cut.png"]
    assert len(done.json["samples"]) == 6


def test_a_table_with_names(mine, table, tmp_path):
    options = ("--label", "ill", "--drop", "id", "--missing", "mean", "--standardise", "-o", tmp_path / "o")
    done = axiograd("explain", f"{mine}:table", table, *options, "--target", "label", "--json")
    assert done.code == 0, done.err
    assert done.json["baseline"] == "zero, every feature at its mean"
    assert [sample["target"] for sample in done.json["samples"]] == [0, 1, 1]
    inputs = load_file(tmp_path / "o" / "attributions.safetensors")["inputs"]
    # Age 30, 50, 70; the empty cell of steps is its mean, 300, and so zero.
    torch.testing.assert_close(inputs[:, 0], torch.tensor([-1.0, 0, 1]) * math.sqrt(1.5))
    assert inputs[0, 3] == 0
    assert "pulse" in (tmp_path / "o" / "report.html").read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,x\n", "'x' in column 'b' is no number"),
        ("a,b\n1\n", "line 2: 1 cells under 2 names"),
        ("a,b\n", "no rows"),
        ("a,b\n1,\n", "1 empty cells, for example in column 'b'"),
        ("a,b\n1,2\n", "the model takes 4"),
    ],
)
def test_tables_that_do_not_fit(mine, tmp_path, content, words):
    (tmp_path / "t.csv").write_text(content)
    done = axiograd("explain", f"{mine}:table", tmp_path / "t.csv")
    assert done.code in {2, 3}
    assert words in done.err


def test_outputs_that_are_no_scores(mine, photos):
    done = axiograd("explain", f"{mine}:Image", photos, *SMALL)
    assert done.code == 2
    assert "(6, 3, 16, 16)" in done.err


def test_class_names_and_hostile_file_names(xdnn, photos, tmp_path):
    (tmp_path / "names.txt").write_text("[red]cat[/]\n<b>dog\nowl\n")
    hostile = tmp_path / "<img src=x>[bold].png"
    (photos / "cat" / "cat0.png").rename(hostile)
    done = axiograd("explain", *xdnn, hostile, *SMALL, "--classes", tmp_path / "names.txt", "-o", tmp_path / "o")
    assert done.code == 0, done.err
    assert "<img src=x>[bold].png" in done.out.replace("\n", "")
    assert any(name in done.out for name in ("[red]cat[/]", "<b>dog", "owl"))
    assert "<img src=x>" not in (tmp_path / "o" / "report.html").read_text()
    assert [path.parent for path in (tmp_path / "o").rglob("*.png")] == [tmp_path / "o"]


def test_expected_gradients_draw_from_the_inputs(xdnn, photos, tmp_path):
    options = (*SMALL, "-m", "expected-gradients", "--steps", "2", "-o", tmp_path / "o", "--no-figures", "--no-report")
    first, second = (axiograd("explain", *xdnn, photos, *options, "--json").json for _ in range(2))
    assert first["samples"] == second["samples"]
    done = axiograd("explain", *xdnn, photos / "cat" / "cat0.png", *options)
    assert done.code == 2
    assert "at least two" in done.err


def test_a_folder_that_cannot_be_written_is_named_before_the_model_is_read(photos, tmp_path):
    (tmp_path / "file").write_text("in the way")
    out = tmp_path / "file" / "out"
    done = axiograd("explain", "nowhere.py:build", photos, "-o", out)
    assert done.code == 3
    assert "Cannot write to the folder" in done.err
    assert "nowhere" not in done.err
