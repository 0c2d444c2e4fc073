"""`axiograd export`: a file from a SPEC, and what `check` says about it."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from axiograd.datasets import Preprocess, Schema
from support.command import axiograd

SOURCE = """
import torch
from torch import nn

preprocess = "imagenet,size=20"
classes = ["cat", "dog", "owl"]


def build():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, 2, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16, 3, bias=False))


def regular():
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
"""


def test_a_file_with_everything_in_it(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    spec, file = f"{tmp_path}/net.py:build", tmp_path / "model.onnx"
    inside = ("--preprocessing", "inside", "--preprocess", "imagenet,size=16", "--pool", 8)
    done = axiograd("export", spec, "-o", file, "--shape", "3,16,16", *inside, "--json")
    assert done.code == 0, done.err
    assert done.json["classes"] == ["cat", "dog", "owl"]
    assert [name for name, *_ in done.json["outputs"]] == ["output", "attribution", "pooled", "gap"]
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    image = torch.randint(256, (1, 30, 20, 3), dtype=torch.uint8).numpy()
    output, attribution, pooled, gap = session.run(None, {"image": image, "target": torch.tensor([1]).numpy()})
    assert (output.shape, attribution.shape) == ((1, 3), (1, 3, 16, 16))
    assert abs(pooled.sum() - output[0, 1]) < 1e-5
    assert abs(gap[0]) < 1e-5
    said = axiograd("check", file)
    assert said.code == 0
    assert "degree 1, exact" in said.out
    assert "'cat' to 'owl'" in said.out


def test_the_file_takes_images_of_the_size_that_its_card_names(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    done = axiograd("export", f"{tmp_path}/net.py:build", "-o", tmp_path / "model.onnx", "--json")
    assert done.code == 0, done.err
    assert "crop 20" in done.json["preprocessing"]
    assert done.json["inputs"][0] == ["input", "float32", ["batch", 3, 20, 20]]


def test_wrong_use(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    spec = f"{tmp_path}/net.py:build"
    for arguments, code, message in [
        ((f"{tmp_path}/net.py:regular", "-o", tmp_path / "m.onnx", "--shape", "3,4,4"), 1, "axiograd convert"),
        ((spec, "-o", tmp_path / "m.txt"), 2, "ends in .onnx or .pt2"),
        ((spec,), 2, "-o FILE.onnx, -o FILE.pt2, or --page FOLDER"),
        ((spec, "-o", tmp_path / "m.onnx", "--onnxruntime-web", tmp_path), 2, "--page FOLDER too"),
        ((spec, "-o", tmp_path / "m.pt2", "--preprocessing", "inside"), 2, "ONNX files only"),
        ((spec, "-o", tmp_path / "m.onnx", "--preprocessing", "above"), 2, "--preprocessing"),
        ((spec, "-o", tmp_path / "net.py" / "m.onnx", "--shape", "3,16,16"), 3, "is not a writable folder"),
        ((spec, "-o", tmp_path / "m.onnx", "--shape", "3,16,16", "--target", "both"), 2, "--target"),
    ]:
        done = axiograd("export", *arguments)
        assert (done.code, message in done.err) == (code, True), done.err
    assert axiograd("check", tmp_path / "none.onnx").code == 3
    assert not list(tmp_path.glob("*.onnx"))


TRAINING = """
out = "{folder}/run"
[model]
name = "{model}"
options = {options}
{data}
[recipe]
epochs = 1
batch_size = 8
optimizer = "adam"
"""


def trained(folder, **chosen):
    """The file that `axiograd train` writes."""
    (folder / "run.toml").write_text(TRAINING.format(folder=folder, **chosen))
    done = axiograd("train", folder / "run.toml", "--json")
    assert done.code == 0, done.err
    return folder / "run" / "model.safetensors"


def test_a_model_trained_on_a_table_knows_its_columns_and_classes(tmp_path):
    rows = [f"{i},{'fm'[i % 2]},{['ill', 'well'][i % 3 > 0]}" for i in range(24)]
    (tmp_path / "people.csv").write_text("\n".join(["age,sex,outcome", *rows]))
    data = f'[data]\nname = "{tmp_path}/people.csv"\noptions = {{ label = "outcome" }}'
    file = trained(tmp_path, model="xmlp", options="{ hidden = [8] }", data=data)
    done = axiograd("export", file, "-o", tmp_path / "model.onnx", "--json")
    assert done.code == 0, done.err
    assert done.json["classes"] == ["ill", "well"]
    schema = Schema.from_dict(json.loads(done.json["preprocessing"]))  # all that a server needs besides the file
    inputs = schema.encode({"age": [3.0, 40.0], "sex": ["f", "m"]}).numpy()
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    output, attribution, gap = session.run(None, {"input": inputs, "target": np.array([0, 1])})
    assert attribution.shape == (2, len(schema.encoded_names))
    assert np.abs(gap).max() < 1e-5
    assert output.shape == (2, 2)


@pytest.mark.long
def test_a_model_trained_on_photos_takes_them_as_they_are(tmp_path):
    """Preprocessing, image size and class names are in the weights' header; the command is told none of them."""
    draw = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(draw.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(
                tmp_path / "photos" / kind / f"{i}.png"
            )
    file = trained(
        tmp_path,
        model="xfixup_resnet20",
        options="{ num_classes = 2 }",
        data='[data]\nname = "image_folder"\noptions = { size = 32, mean = [0.5, 0.4, 0.3], std = [0.2, 0.2, 0.2] }\n'
        f'train = {{ root = "{tmp_path}/photos" }}\nvalidation = {{ root = "{tmp_path}/photos" }}',
    )
    done = axiograd("export", file, "-o", tmp_path / "model.onnx", "--preprocessing", "inside", "--json")
    assert done.code == 0, done.err
    assert done.json["classes"] == ["cat", "dog"]
    photo = Image.open(tmp_path / "photos" / "cat" / "1.png")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    output, attribution, gap = session.run(None, {"image": np.asarray(photo)[None], "target": np.array([1])})
    assert abs(gap[0]) < 1e-4 * np.abs(attribution).sum()
    how = Preprocess(resize=32, crop=32, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))
    outside = axiograd("export", file, "-o", tmp_path / "outside.onnx", "--json")
    assert outside.code == 0, outside.err
    assert "minus (0.5, 0.4, 0.3), divided by 0.2" in outside.json["preprocessing"]
    session = onnxruntime.InferenceSession(tmp_path / "outside.onnx", providers=["CPUExecutionProvider"])
    expected, *_ = session.run(None, {"input": how(photo)[None].numpy(), "target": np.array([1])})
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
