"""A converted model comes back from its file to the last bit, without anything in the file being run."""

import hashlib
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import axiograd as library
from axiograd.errors import ConfigurationError
from axiograd.loading.converted import KEY, BuildRecipe
from axiograd.loading.specs import load_model
from support.command import axiograd

SMALL = ("--set", "in_channels=5", "--set", "hidden=[4]")


@pytest.mark.parametrize("how", ["strip", "lift"])
def test_a_users_model(mine, tmp_path, how):
    file = tmp_path / "x.safetensors"
    done = axiograd("convert", f"{mine}:normalised", "-o", file, "--how", how)
    assert done.code == 0, done.err
    assert "not certified" in done.out
    assert "of degree 1, exactly" in done.out
    assert "Calibrated on random inputs" in done.err
    assert "--out" not in done.out.partition("or use it in the command:")[2]
    loaded = load_model(f"{mine}:normalised", str(file))
    expected = library.to_xdnn(load_model(f"{mine}:normalised"), _randn(4), how=how).model.eval()
    x = torch.randn(3, 4)
    torch.testing.assert_close(loaded(x), expected(x))
    assert axiograd("check", f"{mine}:normalised", "--weights", file).code == 0


def _randn(*sizes):
    return torch.randn(2, *sizes, generator=torch.Generator().manual_seed(0))


def test_the_printed_python_loads_it(mine, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "x.safetensors"
    done = axiograd("convert", f"{mine}:normalised", "-o", file, "--json")
    names = {}
    exec(done.json["python"], names)
    x = torch.randn(3, 4)
    torch.testing.assert_close(names["model"](x), load_model(f"{mine}:normalised", str(file))(x))


def test_a_stripped_model_of_ours_is_the_x_model(tmp_path):
    file = tmp_path / "x.safetensors"
    trained = library.models.get_model("mlp", in_channels=5, hidden=[4])
    torch.save(trained.state_dict(), tmp_path / "mlp.pt")
    done = axiograd("convert", "mlp", *SMALL, "--weights", tmp_path / "mlp.pt", "-o", file, "--json")
    assert done.json["removed"] == ["0.bias", "2.bias"]
    assert done.json["python"] == f'import axiograd\n\nmodel = axiograd.load("{file}").model'
    names = {}
    exec(done.json["python"], names)
    x = torch.randn(3, 5)
    for loaded in (names["model"], load_model(str(file)), load_model("mlp", str(file)), load_model("xmlp", str(file))):
        torch.testing.assert_close(loaded(x), names["model"](x))
    assert torch.equal(load_file(file)["0.weight"], trained[0].weight)
    assert axiograd("check", file).code == 0


def test_examples_set_the_scale(mine, table, tmp_path):
    file = tmp_path / "x.safetensors"
    options = ("--examples", table, "--drop", "id,ill", "--missing", "zero")
    done = axiograd("convert", f"{mine}:normalised", "-o", file, "--how", "lift", *options)
    assert done.code == 0, done.err
    assert "Calibrated on random inputs" not in done.err
    assert "top class as before for 100% of these examples" in " ".join(done.out.split())
    rows = torch.tensor([[30, 70, 60, 0], [50, 80, 70, 200], [70, 60, 90, 400.0]])
    assert float(load_file(file)["radius"]) == pytest.approx(float(rows.square().mean().sqrt()))


def test_a_strip_is_fitted_to_its_examples(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    file, rows, x = tmp_path / "x.safetensors", torch.randn(60, 5), torch.randn(30, 5)
    rows[:, 0] = x[:, 0] = 3  # from which biases can be read
    trained = library.models.get_model("mlp", in_channels=5, hidden=[4])
    torch.save(trained.state_dict(), tmp_path / "mlp.pt")
    lines = [",".join(f"{value:.5f}" for value in row) for row in rows.tolist()]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d,e", *lines]))
    call = ("mlp", *SMALL, "--weights", tmp_path / "mlp.pt", "-o", file, "--examples", tmp_path / "rows.csv", "--json")
    done = axiograd("convert", *call)
    assert done.code == 0, done.err
    assert done.json["fitted"]
    names = {}
    exec(done.json["python"], names)
    for loaded in (names["model"], load_model(str(file))):
        outputs = loaded(x)
        assert (outputs - trained(x)).norm() < 0.2 * (trained(x) - trained(x).mean(0)).norm()
        torch.testing.assert_close(loaded(3 * x), 3 * outputs)
    one, two = (loaded.state_dict() for loaded in (names["model"], load_model(str(file))))
    assert all(torch.equal(one[name], two[name]) for name in {**one, **two})
    assert torch.equal(names["model"](x), load_model(str(file))(x))
    card = file.with_suffix(".md").read_text()
    assert hashlib.sha256(file.read_bytes()).hexdigest() in card
    assert "degree 1, exact" in card
    assert "| layer | calibration | held out |" in card
    assert axiograd("check", file).code == 0


@pytest.mark.parametrize("with_examples", [True, False])
def test_preprocessing_is_kept_in_the_file(mine, photos, tmp_path, with_examples):
    file = tmp_path / "x.safetensors"
    options = ("--preprocess", "squeezenet", "--size", "16")
    examples = ("--examples", photos) if with_examples else ("--shape", "3,16,16")
    done = axiograd("convert", f"{mine}:build", "--how", "lift", "-o", file, *options, *examples)
    assert done.code == 0, done.err
    said = "short side 16, centre crop 16, BGR, values 0 to 255, minus (103.939, 116.779, 123.68)"
    assert str(library.load(f"{mine}:build", file).pixels) == said
    call = (f"{mine}:build", "--weights", file, photos, "--no-figures", "--json")
    for size in ("16", "18"):
        done = axiograd("explain", *call, "-o", tmp_path / size, *(() if size == "16" else ("--size", size)))
        assert done.json["preprocessing"] == said.replace(" 16,", f" {size},")
    assert axiograd("check", f"{mine}:build", "--weights", file).code == 0


def test_a_strip_that_is_not_fitted_says_why(tmp_path):
    code = "from torch import nn\nbuild = lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))\n"
    (tmp_path / "smooth.py").write_text(code)
    rows = "\n".join(["a,b,c,d,e", *(f"{i},1,2,3,{i * i}" for i in range(40))])
    (tmp_path / "rows.csv").write_text(rows)
    call = (
        f"{tmp_path}/smooth.py:build",
        "-o",
        tmp_path / "x.safetensors",
        "--examples",
        tmp_path / "rows.csv",
        "--json",
    )
    done = axiograd("convert", *call)
    assert done.code == 0, done.err
    assert not done.json["fitted"]
    assert "layer_norm" in done.json["not_fitted_because"]
    assert "not fitted to the examples" in " ".join(done.err.split())


def test_what_cannot_be_stripped_is_1_and_leaves_no_file(tmp_path):
    (tmp_path / "squash.py").write_text(
        "import torch\nclass Squash(torch.nn.Module):\n    def forward(self, x):\n        return torch.round(x)\n"
    )
    done = axiograd("convert", f"{tmp_path / 'squash.py'}:Squash", "-o", tmp_path / "x.safetensors", "--shape", "4")
    assert done.code == 1
    assert "lift" in done.err
    assert not (tmp_path / "x.safetensors").exists()


def test_a_factory_that_makes_something_else_each_time_is_caught(tmp_path):
    (tmp_path / "moody.py").write_text(
        "from torch import nn\nimport itertools\ncount = itertools.count(2)\n"
        "import builtins\nbuiltins.moods = getattr(builtins, 'moods', itertools.count(2))\n"
        "def build():\n    return nn.Sequential(nn.Linear(4, next(builtins.moods)))\n"
    )
    done = axiograd("convert", f"{tmp_path / 'moody.py'}:build", "-o", tmp_path / "x.safetensors")
    assert done.code == 2
    assert "0.weight differ" in done.err


def test_a_file_of_weights_names_no_python_to_run(mine, tmp_path):
    """The recipe of a user's model has the SPEC in it, and only the SPEC on the command line is run."""
    marker = tmp_path / "executed"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    file = tmp_path / "x.safetensors"
    recipe = {"spec": f"{tmp_path / 'evil.py'}:build", "how": "strip", "shape": [4]}
    save_file({"a": torch.ones(1)}, file, metadata={KEY: json.dumps(recipe)})
    for command in ("check", "explain"):
        done = axiograd(command, file, *([tmp_path] if command == "explain" else []))
        assert done.code == 2
        assert "runs nobody's Python" in done.err
    assert not marker.exists()


def test_recipes_are_read_with_suspicion(tmp_path):
    file = tmp_path / "x.safetensors"
    for recipe in ("not json", "{}", '{"spec": "mlp", "how": "magic", "shape": [4]}', "[1]"):
        save_file({"a": torch.ones(1)}, file, metadata={KEY: recipe})
        assert axiograd("check", file).code == 3
    file.write_bytes(b"no tensors here")
    assert axiograd("check", file).code == 3
    save_file({"a": torch.ones(1)}, file)
    done = axiograd("check", file)
    assert done.code == 2
    assert "does not say of which model" in done.err


def test_the_recipe_is_in_the_header(tmp_path):
    file = tmp_path / "x.safetensors"
    axiograd("convert", "mlp", *SMALL, "-o", file, "--how", "lift")
    recipe = BuildRecipe.read(file)
    assert (recipe.spec, recipe.how, recipe.shape) == ("mlp", "lift", (5,))
    assert recipe.settings == {"in_channels": 5, "hidden": [4]}
    with safe_open(file, framework="pt") as opened:
        assert set(opened.keys()) == {"radius", "model.0.weight", "model.0.bias", "model.2.weight", "model.2.bias"}
    with pytest.raises(ConfigurationError, match="was converted from mlp, not from alexnet"):
        load_model("alexnet", str(file))
