"""Files that prepare images themselves, against Pillow and the model."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

import axiograd
from axiograd.datasets import Preprocess
from axiograd.errors import ConfigurationError, InputError
from axiograd.export.inside import _text

HOW = Preprocess(resize=18, crop=16, mean=(103.0, 116.0, 123.0), std=(1.0, 2.0, 1.5), white=255.0, bgr=True)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, 2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, 3, bias=False)
    return nn.Sequential(*layers).eval()


def prepared(image):
    """What the graph's first half makes of an image."""
    graph = onnx.parser.parse_graph(_text(HOW))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"image": np.asarray(image)[None]})[0]


def test_photos_of_any_size(net, tmp_path):
    path = tmp_path / "model.onnx"
    example = 50 * torch.randn(2, 3, 16, 16)
    card = axiograd.export_onnx(net, example, path, preprocessing=HOW, inside=True, classes=("a", "b", "c"))
    assert card.inputs[0] == ("image", "uint8", ("batch", "height", "width", 3))
    assert axiograd.export.read(path) == card
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(1)
    for height, width in ((40, 31), (18, 18), (25, 90), (9, 12)):
        coarse = generator.integers(0, 256, (5, 6, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height))
        output, attribution, gap = session.run(
            None, {"image": np.asarray(image)[None], "target": np.array([-1], np.int64)}
        )
        x = prepared(image)
        # Pillow and onnxruntime round a few bytes to different levels where they resize.
        levels = np.abs(x - HOW(image)[None].numpy()) * np.array(HOW.std)[:, None, None]
        assert levels.max() < 1.01
        assert (levels > 0.5).mean() < 0.05
        x = torch.from_numpy(x)
        expected = net(x).detach().numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(output, expected, atol=1e-5 * scale)
        np.testing.assert_allclose(attribution.sum(), output.max(), rtol=1e-4)
        assert np.abs(gap).max() < 1e-4 * scale


def test_sizes_are_named_as_what_they_are(tmp_path):
    """The image's height is not the attribution's, and a formula is no name."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    for crop, sides in ((18, (18, 18)), (None, ("rows", "columns"))):
        how, x = Preprocess(resize=20, crop=crop), torch.randn(2, 3, 18, 18)
        options = {"preprocessing": how, "inside": True, "sizes": True, "pool": 8}
        card = axiograd.export_onnx(model, x, tmp_path / "m.onnx", **options)
        shapes = {name: sizes for name, _, sizes in (*card.inputs, *card.outputs)}
        assert shapes["image"] == ("batch", "height", "width", 3)
        assert shapes["attribution"] == ("batch", 3, *sides)
        assert shapes["pooled"] == ("batch", "pooled_1", "pooled_2")


def test_what_does_not_fit(net, tmp_path):
    example = torch.randn(2, 3, 16, 16)
    with pytest.raises(ConfigurationError, match="needs preprocessing="):
        axiograd.export_onnx(net, example, tmp_path / "m.onnx", inside=True)
    with pytest.raises(InputError, match="crops to 224"):
        axiograd.export_onnx(net, example, tmp_path / "m.onnx", inside=True, preprocessing=Preprocess())
    assert not list(tmp_path.iterdir())
