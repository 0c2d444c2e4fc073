"""`axiograd convert`: a converted model comes back from its file, and the file says everything about it."""

import re
import shlex

import torch

import axiograd as library
from axiograd.models.recipe import BuildRecipe
from support.command import axiograd


def test_a_network_that_a_new_user_trained_keeps_its_accuracy(tmp_path, monkeypatch):
    """`check` prints a command; run word for word, with the folder's name in it, it loses nothing."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\npreprocess = 'pixels'\nclasses = ['disc', 'square', 'triangle', 'cross']\n\n\n"
        "def build():\n    return nn.Sequential(\n"
        "        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),\n"
        "        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),\n"
        "        nn.Flatten(), nn.Linear(1152, 32), nn.ReLU(), nn.Linear(32, 4),\n    )\n"
    )
    torch.manual_seed(0)
    network = library.load("net.py:build").model.train()
    train, test = (library.datasets.shapes(split, n, size=24) for split, n in (("train", 3000), ("test", 1000)))
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    for _ in range(3):
        for batch in torch.randperm(len(train)).split(64):
            loss = torch.nn.functional.cross_entropy(network(train.inputs[batch]), train.targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.save(network.state_dict(), "net.pt")
    (tmp_path / "photos").mkdir()
    for i, image in enumerate(train.inputs[:200]):
        Image.fromarray((255 * image).byte().permute(1, 2, 0).numpy()).save(tmp_path / "photos" / f"{i:03}.png")

    checked = axiograd("check", "net.py:build", "--weights", "net.pt", "--shape", "3,24,24")
    assert checked.code == 1
    command = checked.err.partition("or more: axiograd ")[2].splitlines()[0]
    done = axiograd(*shlex.split(command.replace("FOLDER", "photos")))
    assert done.code == 0, done.err
    kept = re.match(r"Sequential by (\w+), answers kept: (\d+) of 50 held out\n", done.out)
    assert int(kept[2]) >= 48
    loaded = library.load("net.py:build", "x.safetensors")
    assert loaded.classes == ("disc", "square", "triangle", "cross")
    with torch.no_grad():
        before, after = (
            float((model.eval()(test.inputs).argmax(1) == test.targets).float().mean())
            for model in (network, loaded.model)
        )
    assert before > 0.8
    assert after >= before - 0.01
    # The command that is printed at the end explains the examples.
    command = done.out.partition("use it in the command: axiograd ")[2].splitlines()[0]
    done = axiograd(*shlex.split(command), "--limit", "2", "--json")
    assert done.code == 0, done.err
    assert (done.json["certified"], done.json["trained"]) == (True, True)
    assert done.json["samples"][0]["top"][0]["name"] in loaded.classes


def test_a_file_of_ours_says_everything(photos, tmp_path):
    small = ("--set", "num_classes=3", "--set", "width=0.05", "--set", "hidden=8", "--set", "pool=2")
    small = (*small, "--set", "small=true")
    torch.manual_seed(0)
    trained = library.models.get_model("alexnet", num_classes=3, width=0.05, hidden=8, pool=2, small=True)
    torch.save(trained.state_dict(), tmp_path / "a.pth")
    file = tmp_path / "x.safetensors"
    how = ("--how", "lift", "--examples", photos, "--preprocess", "imagenet,size=32", "-o", file)
    done = axiograd("convert", "alexnet", *small, "--weights", tmp_path / "a.pth", *how, "--json")
    assert done.code == 0, done.err
    assert done.json["after"]["ok"]
    assert done.json["python"] == f'import axiograd\n\nmodel = axiograd.load("{file}").model'
    recipe = BuildRecipe.read(file)
    assert (recipe.shape, recipe.pixels["crop"], recipe.how) == ((3, 32, 32), 32, "lift")
    names = {}
    exec(done.json["python"], names)
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(names["model"](x), library.load(file).model(x))
    # Read without its prose: nothing but the three numbers of the proof's outcome.
    assert axiograd("check", file).code == 0
    again = axiograd("convert", file, "-o", tmp_path / "y.safetensors", "--how", "strip")
    assert (again.code, "converted by lift already" in again.err) == (2, True)


def test_without_examples_a_trained_network_is_not_converted(mine, tmp_path):
    file = tmp_path / "x.safetensors"
    done = axiograd("convert", f"{mine}:normalised", "-o", file)
    assert done.code == 2
    assert "--examples TABLE.csv" in done.err
    assert "--how carry or --how strip" in done.err
    assert not file.exists()
    # Nothing can be lost of what is an X-DNN already, or what is trained afterwards.
    assert axiograd("convert", f"{mine}:table", "-o", file).code == 0
    assert axiograd("convert", f"{mine}:normalised", "-o", file, "--how", "carry").code == 0
    assert axiograd("check", f"{mine}:normalised", "--weights", file).code == 0


def test_a_file_runs_nobodys_python(mine, tmp_path):
    file = tmp_path / "x.safetensors"
    assert axiograd("convert", f"{mine}:table", "--set", "features=4", "-o", file).code == 0
    done = axiograd("explain", file, tmp_path)
    assert done.code == 2
    assert f"--weights {file}" in done.err
    done = axiograd("check", f"{mine}:table", "--weights", file)
    assert "--set features=4" in done.err
