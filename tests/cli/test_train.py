import json

import pytest
import torch
import typer
from typer.testing import CliRunner

from axiograd._io import load_tensors
from axiograd.cli.train import train
from axiograd.errors import ConfigurationError

CONFIG = """
out = "{out}"
[model]
name = "xmlp"
options = {{ in_channels = 2, hidden = [8], num_classes = 2 }}
[data]
name = "support.tables:two_clouds"
train = {{ n = 64 }}
validation = {{ n = 32, seed = 1 }}
[loss]
prior = "Gini"
weight = 0.01
[recipe]
optimizer = "adam"
lr = 0.05
epochs = 3
batch_size = 16
[run]
metric = "accuracy"
accelerator = "cpu"
"""


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(train)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(CONFIG.format(out=tmp_path / "out"))
    return path


def test_trains_and_goes_on(run, config, tmp_path):
    first = run(config)
    assert first.exit_code == 0, first.output
    assert "12 steps" in first.output
    assert "Best validation" in first.output
    assert load_tensors(tmp_path / "out/model.safetensors").keys() == {"0.weight", "2.weight"}
    assert run(config).exit_code == 0
    other = run(config, "--out", tmp_path / "other", "--seed", 4)
    assert other.exit_code == 0
    settings = torch.load(tmp_path / "other" / "last.ckpt", weights_only=True)["axiograd"]["settings"]
    assert settings["seed"] == 4


def test_dry_run_only_looks(run, config, tmp_path):
    config.write_text(config.read_text().replace('"support.tables:two_clouds"', '"shapes"').replace(", seed = 1", ""))
    result = run(config, "--dry-run")
    assert "32 parameters; 64 samples to train on, 32 to validate with" in result.output
    assert not (tmp_path / "out").exists()


def test_dry_run_imports_nothing_of_the_users(run, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text("import os\nos.mkdir('ran')\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import os\nos.mkdir('ran')\n")
    (tmp_path / "package" / "inner.py").write_text("")
    for name in ("theirs:build", "theirs.py:build", "package.inner:build"):
        config.write_text(CONFIG.format(out=tmp_path / "out").replace('"xmlp"', f'"{name}"'))
        result = run(config, "--dry-run")
        assert result.exit_code == 0, result.output
        assert f"model.name = '{name}' is your own Python" in result.output
        assert not (tmp_path / "ran").exists()


def test_json_is_alone_on_stdout(run, config, tmp_path):
    planned = json.loads(run(config, "--dry-run", "--json").stdout)
    assert (planned["parameters"], planned["samples"], planned["epochs"]) == (32, None, 3)
    assert planned["code_not_run"] == {"data.name": "support.tables:two_clouds"}
    done = json.loads(run(config, "--json").stdout)
    assert done["steps"] == 12
    assert len(done["history"]) == 3
    assert done["weights"] == str(tmp_path / "out" / "model.safetensors")


def test_mistakes_are_named(run, config):
    config.write_text(config.read_text().replace("[recipe]", "[recipee]"))
    result = run(config)
    assert isinstance(result.exception, ConfigurationError)
    assert "did you mean 'recipe'" in str(result.exception)
