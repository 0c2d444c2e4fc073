"""Models by name and from files, with what stands beside a user's own and what other libraries say of theirs."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import axiograd
from axiograd import export_pt2
from axiograd.datasets import SQUEEZENET, Preprocess
from axiograd.errors import ConfigurationError, InputError, StorageError
from axiograd.loading.prepared import Prepared
from support.torchvision import torchvision_models

SOURCE = """
from torch import nn

{}


def build(classes=2):
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, classes))
"""


def picture(size=(8, 6)):
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def own(folder, text):
    (folder / "net.py").write_text(SOURCE.format(text))
    return axiograd.load(f"{folder}/net.py:build")


def test_what_stands_beside_ones_own_factory(tmp_path):
    loaded = own(tmp_path, "preprocess = 'size=4,mean=0.5,std=0.25'\nclasses = ['cat', 'dog']")
    assert loaded.classes == ("cat", "dog")
    x = loaded.prepared()(picture())
    expected = axiograd.datasets.Preprocess(4, 4, (0.5,) * 3, (0.25,) * 3)(picture().convert("L"))[:1]
    torch.testing.assert_close(x, expected)
    loaded = own(tmp_path, "from axiograd.datasets import Preprocess\npreprocess = Preprocess(4, 4)")
    assert (loaded.pixels.grey, loaded.pixels.guessed, loaded.prepared()(picture()).shape) == (True, False, (1, 4, 4))
    loaded = own(tmp_path, "import torch\n\n\ndef preprocess(image):\n    return torch.ones(1, 3, 3)")
    assert torch.equal(loaded.prepared()(picture()), torch.ones(1, 3, 3))
    with pytest.raises(InputError, match="function of your own"):
        _ = loaded.prepared().preprocess
    for text, words in (
        ("preprocess = 3", "of type int"),
        ("classes = 'cat'", "names of the outputs"),
        ("schema = 1", "Schema"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            own(tmp_path, text)


def test_what_nobody_said_is_a_guess_by_the_models_size(tmp_path):
    assert str(axiograd.load("xsqueezenet1_1").prepared()).startswith("short side 256, centre crop 224, RGB")
    known = axiograd.load("xsqueezenet1_1").prepared("squeezenet")
    assert (known.transform, known.guessed) == (SQUEEZENET, False)
    guessed = own(tmp_path, "").prepared()
    assert (guessed.grey, guessed.guessed, guessed.zero) == (True, True, "zero, a black image")
    assert guessed.picture(guessed(picture())).shape == (3, 6, 8)


@pytest.mark.parametrize("preset", ["imagenet", "squeezenet", "caffe", "tiny-imagenet", "pixels"])
def test_pictures_are_what_was_seen(preset):
    chosen, plain = (Prepared.read(f"{name},size=6") for name in (preset, "pixels"))
    torch.testing.assert_close(chosen.picture(chosen(picture())), plain(picture()), atol=1e-5, rtol=0)


def test_torchvision_by_name():
    torchvision_models()
    loaded = axiograd.load("torchvision:squeezenet1_1", settings={"num_classes": 7})
    assert loaded.model(torch.zeros(1, 3, 64, 64)).shape == (1, 7)
    assert (loaded.pixels, loaded.classes, loaded.trained) == (None, (), False)
    with pytest.raises(ConfigurationError, match="did you mean squeezenet1_1"):
        axiograd.load("torchvision:squezenet1_1")


def test_timm_by_name():
    torchvision_models()
    pytest.importorskip("timm", reason="needs timm")
    loaded = axiograd.load("timm:resnet10t", settings={"num_classes": 5})
    assert (loaded.pixels.transform.crop, loaded.classes) == (176, ())


def test_a_folder_of_hugging_face(tmp_path):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    names = {0: "cat", 1: "dog", 2: "owl"}
    config = ViTConfig(**sizes, image_size=32, patch_size=8, id2label=names, label2id={v: k for k, v in names.items()})
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    said = {"do_resize": True, "size": {"shortest_edge": 36}, "do_center_crop": True, "crop_size": {"height": 32}}
    said |= {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(said))
    loaded = axiograd.load(f"hf:{tmp_path / 'vit'}")
    assert loaded.classes == ("cat", "dog", "owl")
    assert loaded.pixels == Prepared(Preprocess(36, 32, (0.5,) * 3, (0.25,) * 3))
    assert (loaded.trained, loaded.shape) == (True, (3, 32, 32))
    said |= {"size": {"height": 32, "width": 32}, "do_center_crop": False}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(said))
    assert axiograd.load(f"hf:{tmp_path / 'vit'}").pixels.guessed


def test_files_of_torch_export(tmp_path):
    layers = nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3, False)
    model, x = nn.Sequential(*layers).eval(), torch.randn(2, 3, 16, 16)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "two.pt2")
    loaded = axiograd.load(tmp_path / "two.pt2")
    torch.testing.assert_close(loaded.model(x), model(x))
    with pytest.raises(InputError, match="exported for 2 samples at a time, and is given 6"):
        loaded.model(torch.randn(6, 3, 16, 16))
    export_pt2(model, x, tmp_path / "ours.pt2")
    with pytest.raises(ConfigurationError, match="answers with its attributions already"):
        axiograd.load(tmp_path / "ours.pt2")
    (tmp_path / "bad.pt2").write_bytes(b"no")
    with pytest.raises(StorageError):
        axiograd.load(tmp_path / "bad.pt2")


def test_a_library_that_cannot_be_imported_says_so(monkeypatch):
    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("axiograd.loading._libraries.import_module", broken)
    with pytest.raises(ConfigurationError, match="come in pairs"):
        axiograd.load("torchvision:resnet18")
