"""Attributions from the command are those of the library, and every output states the baseline."""

import re
import shlex

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

import axiograd as library
from axiograd.loading.specs import load_model
from support.command import axiograd

SMALL = ("--size", "16", "--mean", "0.5", "--std", "0.25")


@pytest.fixture
def xdnn(mine, tmp_path):
    """SPEC and weights of a stripped model for images."""
    file = tmp_path / "x.safetensors"
    assert axiograd("convert", f"{mine}:build", "-o", file, "--shape", "3,16,16", "--how", "strip").code == 0
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
    assert "--skip-damaged" in done.err
    options = ("--skip-damaged", "--json", "--no-figures", "--no-report", "-o", tmp_path / "o")
    done = axiograd("explain", *xdnn, photos, *SMALL, *options)
    assert sorted(done.json["skipped"]) == ["cat/bad.png", "dog/cut.png"]
    assert len(done.json["samples"]) == 6


TRAIN = "steps,pulse,weight,age,name\n100,60,70,20,a\n300,80,90,60,b\n,70,80,70,c\n"


@pytest.fixture
def prepared(tmp_path):
    """Options of a table, and mean and standard deviation of the training data by hand."""
    (tmp_path / "train.csv").write_text(TRAIN)
    columns = np.array(
        [[20, 60, 70], [70, 90, 80], [60, 80, 70], [100, 300, 200]], dtype=float
    ).T  # steps: 200 is filled
    options = ("--label", "ill", "--drop", "id", "--missing", "mean", "--standardise")
    return options, columns.mean(0), columns.std(0)


def test_a_table_with_names(mine, table, tmp_path, prepared):
    options, mean, std = prepared
    more = (*options, "--statistics", tmp_path / "train.csv", "-o", tmp_path / "o")
    done = axiograd("explain", f"{mine}:table", table, *more, "--target", "label", "--json")
    assert done.code == 0, done.err
    assert done.json["baseline"] == "zero, every feature at its mean"
    assert "train.csv" in done.json["preprocessing"]
    assert [sample["target"] for sample in done.json["samples"]] == [0, 1, 1]
    inputs = load_file(tmp_path / "o" / "attributions.safetensors")["inputs"].double()
    rows = np.array([[30, 70, 60, 200], [50, 80, 70, 200], [70, 60, 90, 400]], dtype=float)  # 200: the mean
    torch.testing.assert_close(inputs, torch.from_numpy(((rows - mean) / std)[:, ::-1].copy()), rtol=1e-5, atol=1e-6)
    assert "training data's order" in done.json["preprocessing"]
    assert "pulse" in (tmp_path / "o" / "report.html").read_text()


def test_one_row_is_what_it_is_among_others(mine, table, tmp_path, prepared):
    more = (*prepared[0], "--statistics", tmp_path / "train.csv", "-m", "gradient", "--no-figures", "--no-report")
    lines = table.read_text().splitlines()
    (tmp_path / "one.csv").write_text("\n".join([lines[0], lines[2]]))
    found = []
    for file in (table, tmp_path / "one.csv"):
        assert axiograd("explain", f"{mine}:table", file, *more, "-o", tmp_path / "o").code == 0
        found.append(load_file(tmp_path / "o" / "attributions.safetensors")["inputs"])
    assert torch.equal(found[0][1], found[1][0])


@pytest.mark.parametrize("options", [("--missing", "mean"), ("--standardise", "--missing", "zero")])
def test_statistics_of_what_is_explained_are_not_used(mine, table, tmp_path, options):
    command = ("explain", f"{mine}:table", table, "--label", "ill", "--drop", "id", *options, "-o", tmp_path / "o")
    done = axiograd(*command)
    assert done.code == 2
    assert "--statistics train.csv" in done.err
    (tmp_path / "train.csv").write_text("age,weight,pulse\n1,2,3\n4,5,6\n")
    done = axiograd(*command, "--statistics", tmp_path / "train.csv")
    assert done.code == 2
    assert "no values in a column 'steps'" in done.err


def test_statistics_are_stored_with_the_model(mine, table, tmp_path, prepared):
    options, mean, std = prepared
    spec, file = f"{mine}:table", tmp_path / "x.safetensors"
    train = ("--statistics", tmp_path / "train.csv")
    assert axiograd("convert", spec, "-o", file, "--examples", table, *options, *train).code == 0
    done = axiograd(
        "explain", spec, table, "--weights", file, "--label", "ill", "--drop", "id", "-o", tmp_path / "o", "--json"
    )
    assert done.code == 0, done.err
    assert "the data that the model was made with" in done.json["preprocessing"]
    inputs = load_file(tmp_path / "o" / "attributions.safetensors")["inputs"].double()
    expected = ((np.array([50, 80, 70, 200]) - mean) / std)[::-1].copy()  # the training data's order
    torch.testing.assert_close(inputs[1], torch.from_numpy(expected), rtol=1e-5, atol=1e-6)
    header, *lines = (line.split(",") for line in table.read_text().splitlines())
    order = sorted(range(len(header)), key=header.__getitem__)
    (tmp_path / "other.csv").write_text("\n".join(",".join(line[i] for i in order) for line in (header, *lines)))
    command = ("explain", spec, tmp_path / "other.csv", "--weights", file, "--label", "ill", "--drop", "id")
    assert axiograd(*command, "-o", tmp_path / "p").code == 0
    again = load_file(tmp_path / "p" / "attributions.safetensors")["inputs"].double()
    assert torch.equal(again, inputs)


def test_untrained_networks_are_called_so(photos, tmp_path):
    size = ("--size", "64", "--set", "num_classes=3", "--set", "width=0.125", "--set", "hidden=16")
    done = axiograd("explain", "xalexnet", photos, *size, "-o", tmp_path / "o", "--json", "--no-figures")
    assert done.code == 0, done.err
    assert done.json["trained"] is False
    assert "random weights" in done.json["warning"]
    assert "Untrained" in done.err
    assert "random weights" in (tmp_path / "o" / "report.html").read_text()
    said = axiograd("explain", "xalexnet", photos, *size, "-o", tmp_path / "o", "--no-figures", "--no-report")
    assert "Untrained: xalexnet has random weights" in said.out
    command = ("--data", photos, *size, "-m", "gradient", "--metrics", "accuracy")
    assert "Untrained" in axiograd("evaluate", "xalexnet", *command).out
    file = tmp_path / "stripped.safetensors"
    assert axiograd("convert", "alexnet", "-o", file, *size[2:], "--shape", "3,64,64", "--how", "strip").code == 0
    assert axiograd("explain", file, photos, "--size", "64", "-o", tmp_path / "o", "--json").json["trained"] is False


def test_a_guess_is_called_a_guess(xdnn, photos, tmp_path):
    options = ("-o", tmp_path / "o", "--no-figures", "--no-report", "--json")
    guessed = axiograd("explain", *xdnn, photos, "--size", "16", *options).json
    assert guessed["preprocessing_is_a_guess"]
    assert "a guess" in guessed["preprocessing"]
    said = axiograd("explain", *xdnn, photos, *SMALL, *options).json
    assert not said["preprocessing_is_a_guess"]
    assert "guess" not in said["preprocessing"]


def test_a_suggestion_can_be_run_as_it_stands(mine, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights = tmp_path / "my weights.pt"
    torch.save(load_model(f"{mine}:build", settings={"classes": 5}).state_dict(), weights)
    asked = (f"{mine}:build", "--weights", weights, "--set", "classes=5", *SMALL)
    done = axiograd("explain", *asked, photos, "-o", tmp_path / "o")
    assert done.code == 1
    convert, check = re.search(r"convert it: (axiograd convert .*?)\. `(axiograd check .*?)` lists", done.err).groups()
    assert axiograd(*shlex.split(check)[1:]).code == 1
    done = axiograd(*shlex.split(convert)[1:], "--how", "strip")  # six photos cannot tell what is kept
    assert done.code == 0, done.err
    (explain,) = re.findall(r"in the command: (axiograd explain .*) INPUT…", done.out)
    assert axiograd(*shlex.split(explain)[1:], photos, "-o", tmp_path / "o").code == 0
    done = axiograd("check", *asked[:5], "--shape", "3,16,16")
    (convert,) = re.findall(r"Make it one: (.*)", done.err)
    filled = [str(photos) if word == "FOLDER" else word for word in shlex.split(convert)]
    assert axiograd(*filled[1:], "--how", "strip").code == 0


def test_a_class_by_its_name(xdnn, photos, tmp_path):
    options = (*SMALL, "-o", tmp_path / "o", "--no-figures", "--no-report", "--json")
    found = axiograd("explain", *xdnn, photos, *options, "--target", "Dog").json
    assert [sample["target"] for sample in found["samples"]] == [1] * 6
    done = axiograd("explain", *xdnn, photos, *options, "--target", "dgo")
    assert done.code == 2
    assert "did you mean 'dog'" in done.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,x\n", "column 'b' holds 'x', which is not a number"),
        ("a,b\n1,2,3\n", "more cells in a row than the 2 names"),
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
