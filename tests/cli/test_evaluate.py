import json

import pytest
import torch

from axiograd import InputXGradient
from axiograd.cli.evaluating import _localisation
from axiograd.loading.specs import load_model
from axiograd.metrics import masking_curves
from support.command import axiograd

SMALL = ("--size", "16", "--mean", "0.5", "--std", "0.25")


def test_the_numbers_are_the_librarys(mine, table, tmp_path):
    options = ("--label", "ill", "--drop", "id", "--missing", "mean", "--standardise", "--statistics", table)
    data = ("--data", table, *options, "-m", "x-gradient,input-x-gradient,random")
    done = axiograd("evaluate", f"{mine}:table", *data, "--json")
    assert done.code == 0, done.err
    stored = tmp_path / "o"
    axiograd("explain", f"{mine}:table", table, *options, "-o", stored, "--no-figures", "--no-report")
    from safetensors.torch import load_file

    x, y = load_file(stored / "attributions.safetensors")["inputs"], torch.tensor([0, 1, 1])
    model = load_model(f"{mine}:table")
    accuracy = 100 * (model(x).argmax(1) == y).float().mean()
    assert done.json["accuracy_percent"]["top-1"]["mean"] == pytest.approx(float(accuracy))
    curves = masking_curves(model, x, InputXGradient(model).attribute(x, y), y)
    by = {row["method"]: row for row in done.json["results"]}
    for metric, curve in curves.items():
        assert by["Input×Gradient"][metric]["mean"] == pytest.approx(curve.area)
        assert by["X-Gradient"][metric]["mean"] == pytest.approx(curve.area)
    assert by["X-Gradient"]["completeness_error"]["max"] < 1e-5
    assert "completeness_error" not in by["Random"]


def test_a_stopped_run_goes_on(mine, photos, tmp_path):
    out = tmp_path / "e.json"
    command = ("evaluate", f"{mine}:build", "--data", photos, *SMALL, "-m", "random,gradient", "--batch-size", "2")
    whole = axiograd(*command, "-o", out, "--json").json
    content = json.loads(out.read_text())
    assert content["done"] == 6
    content["done"] = 2
    for values in (content["model"], *content["methods"].values()):
        for name in values:
            values[name] = values[name][:2]
    out.write_text(json.dumps(content))
    done = axiograd(*command, "-o", out, "--json")
    assert "Resuming after 2 of 6" in done.err
    resumed = done.json
    for row in (*whole["results"], *resumed["results"]):
        del row["seconds_per_sample"]
    assert resumed == whole


def test_a_file_of_another_run_is_kept(mine, photos, tmp_path):
    out = tmp_path / "e.json"
    command = (
        "evaluate",
        f"{mine}:build",
        "--data",
        photos,
        *SMALL,
        "-m",
        "gradient",
        "--metrics",
        "accuracy",
        "-o",
        out,
    )
    assert axiograd(*command).code == 0
    before = out.read_bytes()
    done = axiograd(*command, "--seed", "4")
    assert done.code == 3
    assert "seed (there: 0, here: 4)" in " ".join(done.err.split())
    assert out.read_bytes() == before
    out.write_text("{")
    assert axiograd(*command).code == 3


def test_what_people_read(mine, photos):
    done = axiograd("evaluate", f"{mine}:build", "--data", photos, *SMALL, "-m", "gradient", "--limit", "4")
    assert done.code == 0, done.err
    for words in ("top-1", "KPM ↑", "RAM ↓", "4 samples", "baseline", "mean colour"):
        assert words in done.out


def test_boxes_are_half_open():
    attribution = torch.zeros(1, 1, 4, 4)
    attribution[0, 0, 2, 3] = 1.0
    found = _localisation(attribution, torch.tensor([[1, 1, 4, 3]]))
    assert float(found["energy inside"]) == 1
    assert float(found["pointing game"]) == 1
    assert float(found["best IoU"]) == pytest.approx(6 / 16)  # all 16 pixels have A ≥ 0


def test_folders_are_matched_to_outputs_by_number_or_by_name(mine, photos, tmp_path):
    (photos / "ant").mkdir()
    command = (
        "evaluate",
        f"{mine}:build",
        "--data",
        photos,
        *SMALL,
        "-m",
        "gradient",
        "--metrics",
        "accuracy",
        "--json",
    )
    done = axiograd(*command)
    assert done.code == 2
    assert "4 classes and the model 3 outputs" in done.err
    (photos / "ant").rmdir()
    by_number = axiograd(*command).json["accuracy_percent"]["top-1"]["mean"]
    (tmp_path / "names.txt").write_text("cat\ndog\nowl\n")
    by_name = (axiograd(*command, "--classes", tmp_path / "names.txt")).json["accuracy_percent"]["top-1"]["mean"]
    assert by_name == by_number
    shares = []
    for order in ("cat dog owl", "dog owl cat", "owl cat dog"):
        (tmp_path / "names.txt").write_text(order.replace(" ", "\n"))
        done = axiograd(*command, "--classes", tmp_path / "names.txt")
        shares.append(done.json["accuracy_percent"]["top-1"]["mean"])
    assert sum(shares) == pytest.approx(100)  # each sample is right in exactly one of the three orders
