import json

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from axiograd.cli.app import app
from axiograd.errors import ConfigurationError, DataMissingError, InputError
from axiograd.loading.specs import example_input, load_model

run = CliRunner().invoke


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from torch import nn\ndef build():\n    return nn.Sequential(nn.Linear(3, 2), nn.ReLU())\n")
    return path


def test_yes_is_0_and_no_is_1(file):
    yes = run(app, ["check", "xmlp"])
    assert yes.exit_code == 0
    assert "homogeneous in x of degree 1, exactly" in yes.stdout
    no = run(app, ["check", f"{file}:build"])
    assert no.exit_code == 1
    assert "0.bias" in no.stdout


def test_json():
    done = run(app, ["check", "mlp", "--json"], catch_exceptions=False)
    certificate = json.loads(done.stdout)
    assert not certificate["ok"]
    assert [v["parameters"] for v in certificate["violations"]] == [[f"{i}.bias"] for i in (0, 2, 4, 6)]


def test_conversion_is_not_suggested_for_a_wrong_gradient(file, tmp_path):
    (tmp_path / "wrong.py").write_text(
        "import torch\n\n\nclass Twice(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return 2 * x\n\n"
        "    @staticmethod\n    def backward(ctx, gradient):\n        return gradient\n\n\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return Twice.apply(x)\n"
    )
    done = run(app, ["check", f"{tmp_path / 'wrong.py'}:Model", "--shape", "4"])
    assert done.exit_code == 1
    assert "is not that of its forward pass" in done.stdout
    assert "convert" not in done.stderr
    assert "axiograd convert" in run(app, ["check", f"{file}:build"]).stderr


def test_a_shape_that_was_guessed(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\nmodel = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))\n"
    )
    with pytest.raises(InputError, match=r"224, 224\).*That shape is a guess: say --shape"):
        run(app, ["check", f"{tmp_path / 'net.py'}:model"], catch_exceptions=False)
    done = run(app, ["check", f"{tmp_path / 'net.py'}:model", "--shape", "1,8,8"])
    assert "--examples FOLDER --size 8" in done.stderr


def test_biases_that_start_at_zero_do_not_count_as_none():
    """SqueezeNet's biases are initialised with zero: the question is about the architecture."""
    no = run(app, ["check", "squeezenet1_1", "--shape", "3,63,63", "--json"])
    assert no.exit_code == 1
    assert len(json.loads(no.stdout)["violations"]) == 26


def test_a_users_zero_biases_are_pointed_out(tmp_path):
    source = "from torch import nn\nmodel = nn.Linear(3, 2)\nnn.init.zeros_(model.bias)\n"
    (tmp_path / "zero.py").write_text(source)
    yes = run(app, ["check", f"{tmp_path / 'zero.py'}:model"])
    assert yes.exit_code == 0
    assert "Biases that are zero now: 1, as bias" in yes.stderr


def test_a_part_that_is_called_module_is_loaded(tmp_path):
    source = "from torch import nn\ndef build():\n    return nn.ModuleDict({'module': nn.Linear(3, 2)})\n"
    (tmp_path / "named.py").write_text(source)
    state = {"module.weight": torch.ones(2, 3), "module.bias": torch.zeros(2)}
    torch.save(state, tmp_path / "w.pt")
    loaded = load_model(f"{tmp_path / 'named.py'}:build", str(tmp_path / "w.pt"))
    assert torch.equal(loaded["module"].weight, torch.ones(2, 3))


def test_weights_of_a_users_model(file, tmp_path):
    state = {"0.weight": torch.ones(2, 3), "0.bias": torch.zeros(2)}
    torch.save(state, tmp_path / "w.pt")
    assert torch.equal(load_model(f"{file}:build", str(tmp_path / "w.pt"))[0].weight, torch.ones(2, 3))
    assert run(app, ["check", f"{file}:build", "--weights", str(tmp_path / "w.pt")]).exit_code == 0


def test_models_that_are_not_there(file):
    with pytest.raises(ConfigurationError, match="no model 'xmpl'"):
        load_model("xmpl")
    with pytest.raises(ConfigurationError, match="has no 'make'"):
        load_model(f"{file}:make")
    with pytest.raises(DataMissingError, match="no file"):
        load_model("nowhere.py:build")
    with pytest.raises(ConfigurationError, match="cannot be imported"):
        load_model("no_such_package.models:build")


def test_shapes_of_example_inputs():
    assert example_input(nn.Conv2d(3, 4, 3), "3x8x8").shape == (2, 3, 8, 8)
    assert example_input(nn.Conv2d(5, 4, 3).double(), None).dtype == torch.float64
    with pytest.raises(ConfigurationError, match="--shape a,b"):
        example_input(nn.Linear(1, 1), "a,b")
    with pytest.raises(ConfigurationError, match="give --shape"):
        example_input(nn.ReLU(), None)


def test_bias_before_any_training(file, tmp_path):
    table = tmp_path / "rows.csv"
    rows = torch.randn(40, 3).tolist()
    table.write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    words = ["check", f"{file}:build", "--bias", "--examples", str(table), "--json"]
    found = json.loads(run(app, words, catch_exceptions=False).stdout)
    assert [name for name, _ in found["layers"]] == ["0"]
    assert {cost["how"] for cost in found["costs"]} == {"strip", "carry", "calibrate", "lift"}
    assert found["recommendation"].startswith("The constants carry")
    with pytest.raises(ConfigurationError, match="give both or neither"):
        run(app, ["check", f"{file}:build", "--bias"], catch_exceptions=False)
