"""`axiograd export`: a file from a SPEC, and what `check` says about it."""

import onnxruntime
import torch

from support.command import axiograd

SOURCE = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, 2, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16, 3, bias=False))


def regular():
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
"""


def test_a_file_with_everything_in_it(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    (tmp_path / "names.txt").write_text("cat\ndog\nowl\n")
    spec, file = f"{tmp_path}/net.py:build", tmp_path / "model.onnx"
    inside = ("--preprocessing", "inside", "--size", 16, "--preprocess", "imagenet", "--pool", 8)
    done = axiograd(
        "export", spec, "-o", file, "--shape", "3,16,16", "--classes", tmp_path / "names.txt", *inside, "--json"
    )
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
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "changed.onnx").write_bytes(content)
    assert axiograd("check", tmp_path / "changed.onnx").code in {1, 3}


def test_wrong_use(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    (tmp_path / "two.txt").write_text("cat\ndog\n")
    spec = f"{tmp_path}/net.py:build"
    named = (spec, "-o", tmp_path / "m.onnx", "--shape", "3,16,16", "--classes", tmp_path / "two.txt")
    for arguments, code, message in [
        ((f"{tmp_path}/net.py:regular", "-o", tmp_path / "m.onnx", "--shape", "3,4,4"), 1, "axiograd convert"),
        ((spec, "-o", tmp_path / "m.txt"), 2, "ends in .onnx or .pt2"),
        ((spec,), 2, "-o FILE.onnx, -o FILE.pt2, or --page FOLDER"),
        ((spec, "-o", tmp_path / "m.onnx", "--onnxruntime-web", tmp_path), 2, "--page FOLDER too"),
        ((spec, "-o", tmp_path / "m.pt2", "--preprocessing", "inside"), 2, "ONNX files only"),
        ((spec, "-o", tmp_path / "m.onnx", "--preprocessing", "above"), 2, "inside or outside"),
        ((spec, "-o", tmp_path / "net.py" / "m.onnx", "--shape", "3,16,16"), 3, "is a file"),
        ((spec, "-o", tmp_path / "m.onnx", "--shape", "3,16,16", "--target", "both"), 2, "choose one of"),
        (named, 2, "has 2 names, and the model 3 outputs"),
    ]:
        done = axiograd("export", *arguments)
        assert (done.code, message in done.err) == (code, True), done.err
    assert axiograd("check", tmp_path / "none.onnx").code == 3
    assert not list(tmp_path.glob("*.onnx"))
