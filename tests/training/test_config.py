from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

import axiograd
from axiograd._io import load_tensors
from axiograd.errors import ConfigurationError
from axiograd.training import AttributionLoss, Recipe
from axiograd.training.config import build_data, build_loss, build_model, load_config, parse_config, train_from

LEAST = {"out": "runs/a", "model": {"name": "xmlp", "options": {"in_channels": 4}}, "data": {"name": "shapes"}}


def test_everything_can_be_said(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        """
        out = "runs/decoy"
        seed = 3
        [model]
        name = "xmlp"
        options = { in_channels = 4, hidden = [8] }
        [data]
        name = "decoy"
        train = { split = "train" }
        validation = { split = "test" }
        arguments = { mask = "shortcuts" }
        [loss]
        prior = "RightReasons"
        weight = 10
        method = "InputXGradient"
        outputs = "random"
        [recipe]
        preset = "fixup_resnet50"
        epochs = 4
        [run]
        metric = "accuracy"
        precision = "bf16-mixed"
        """
    )
    config = load_config(path)
    assert (config.out, config.seed, config.data.arguments) == (Path("runs/decoy"), 3, {"mask": "shortcuts"})
    assert config.recipe == Recipe(lr=0.1, schedule="cosine", mixup=0.7, scalar_lr_factor=0.1, epochs=4)
    assert config.run == {"metric": "accuracy", "precision": "bf16-mixed"}
    loss = build_loss(config)
    assert isinstance(loss, AttributionLoss)
    assert (loss.weight, loss.outputs, loss.method.__name__) == (10.0, "random", "InputXGradient")
    assert build_model(config)[0][0].weight.shape == (8, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modle": {}}, "'modle' is not known; did you mean 'model'"),
        ({"recipe": {"epoch": 3}}, r"'recipe\.epoch' is not known; did you mean 'epochs'"),
        ({"recipe": {"preset": "alexnett"}}, "did you mean 'alexnet'"),
        ({"run": "fast"}, "run is 'fast'; it must be a table"),
        ({"model": {"name": "xmlp", "convert": {"why": "auto"}}}, r"'model\.convert\.why' is not known"),
        ({"model": {"name": "xmlp", "convert": {"examples": True}}}, r"model\.convert\.examples is True"),
        ({"loss": {"outputs": "every"}}, r"loss\.outputs is 'every'; it must be one of 'target', 'all', 'random'"),
        ({"model": {"options": {}}}, "'model.name' is missing"),
        ({"model": "xmlp"}, r"model is 'xmlp'; it must be a table"),
        ({"seed": "x"}, "seed is 'x'"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_config({**LEAST, **change})


@pytest.mark.parametrize("missing", ["out", "model", "data"])
def test_what_is_missing_is_named(missing):
    with pytest.raises(ConfigurationError, match=f"'{missing}' is missing"):
        parse_config({key: value for key, value in LEAST.items() if key != missing})


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("model", {"name": "xmpl"}, r"model: no model 'xmpl': did you mean 'xmlp'"),
        ("model", {"name": "nowhere.at:all"}, r"model: nowhere\.at:all cannot be imported"),
        ("model", {"name": "math:sqrt", "options": {"x": 1}}, r"model: math:sqrt raised TypeError"),
        ("data", {"name": "shape"}, r"data\.name 'shape' is not known; did you mean 'shapes'"),
        (
            "data",
            {"name": "shapes", "train": {"colour": 1}},
            r"data\.train: got an unexpected keyword argument 'colour'",
        ),
        ("loss", {"prior": "Ginni"}, r"loss\.prior 'Ginni' is not known; did you mean 'Gini'"),
        ("loss", {"prior": "Gini", "method": "XGrad"}, r"loss\.method 'XGrad' is not known; did you mean"),
        ("loss", {"task": "cross_entrop"}, r"did you mean 'cross_entropy'"),
    ],
)
def test_names_that_do_not_exist(section, change, message):
    config = parse_config({**LEAST, section: change})
    with pytest.raises(ConfigurationError, match=message):
        {"model": build_model, "data": build_data, "loss": build_loss}[section](config)


def test_factories_of_ones_own():
    model = {"name": "torch.nn:Linear", "options": {"in_features": 2, "out_features": 1}}
    config = parse_config({**LEAST, "model": model, "data": {"name": "support.tables:two_clouds"}})
    assert isinstance(build_model(config)[0], nn.Linear)
    assert build_loss(config) is F.cross_entropy
    wrong = parse_config({**LEAST, "model": {"name": "support.tables:two_clouds", "options": {"n": 4}}})
    with pytest.raises(ConfigurationError, match=r"must make a torch\.nn\.Module, not TensorData"):
        build_model(wrong)


def test_a_configuration_fetches_nothing():
    config = parse_config({**LEAST, "model": {"name": "xalexnet", "options": {"weights": "paper", "download": True}}})
    with pytest.raises(ConfigurationError, match="say --weights"):
        build_model(config)


def test_unreadable_files(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("out = ")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        load_config(tmp_path / "bad.toml")


NETWORK = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, hidden=8):
        super().__init__(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, 2))
"""


def test_a_network_of_ones_own_is_loaded_converted_and_trained(tmp_path, monkeypatch):
    """Without a factory: its class, its weights and what makes it an X-DNN are named in the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK)
    torch.manual_seed(0)
    own = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    torch.save(own.state_dict(), tmp_path / "net.pt")
    model = {"name": "net.py:Net", "weights": "net.pt", "options": {"hidden": 16}}
    table = {"out": "run", "data": {"name": "support.tables:two_clouds", "train": {"n": 64}}, "seed": 1}
    table |= {"recipe": {"epochs": 1, "lr": 1e-9}, "run": {"accelerator": "cpu", "progress": False}}
    loss = {"prior": "Gini", "weight": 0.01}
    config = parse_config({**table, "model": {**model, "convert": {"how": "strip", "examples": 32}}, "loss": loss})
    train_from(config)
    found = load_tensors(tmp_path / "run" / "model.safetensors")
    assert found.keys() == {"0.weight", "2.weight"}
    torch.testing.assert_close(found["0.weight"], own[0].weight.detach())
    loaded = axiograd.load("net.py:Net", "run/model.safetensors", settings={"hidden": 16}).model
    x = torch.randn(3, 2)
    by_hand = (x @ own[0].weight.T).relu() @ own[2].weight.T
    torch.testing.assert_close(loaded(x), by_hand, rtol=1e-4, atol=1e-5)
    assert axiograd.certify(loaded, x).ok


def test_weights_that_are_not_there(tmp_path):
    config = parse_config({**LEAST, "model": {"name": "xmlp", "weights": str(tmp_path / "none.pt")}})
    with pytest.raises(ConfigurationError, match=r"model: .*none\.pt"):
        build_model(config)


def test_folders_with_the_names_of_the_models_classes_are_its_outputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for split in ("train", "val"):
        for number, name in enumerate(("cat", "dog")):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(4):
                Image.new("L", (8, 8), 50 + 150 * number + i).save(tmp_path / split / name / f"{i}.png")
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\nclasses = ['dog', 'cat']\n\n\n"
        "def build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2, bias=False))\n"
    )
    config = parse_config(
        {
            "out": "run",
            "model": {"name": "net.py:build"},
            "data": {
                "name": "image_folder",
                "options": {"size": 8, "grey": True},
                "train": {"root": "train"},
                "validation": {"root": "val"},
            },
            "recipe": {"epochs": 30, "batch_size": 4, "lr": 0.05},
        }
    )
    train_from(config, progress=False)
    loaded = axiograd.load("net.py:build", "run/model.safetensors")
    assert loaded.classes == ("dog", "cat")
    bright = torch.full((1, 1, 8, 8), 0.8)
    assert loaded.classes[int(loaded.model(bright).argmax())] == "dog"
