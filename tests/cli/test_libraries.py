"""Models of other libraries, and files of torch.export, by name."""

import json

import pytest
import torch
from torch import nn

import axiograd as library
from axiograd import export_pt2
from axiograd.datasets import Preprocess
from axiograd.loading import libraries
from axiograd.loading.libraries import about, build
from support.command import axiograd
from support.torchvision import torchvision_models


def test_torchvision_by_name():
    torchvision_models()
    model = build("torchvision:squeezenet1_1", {"num_classes": 7})
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 7)
    pixels, classes = about("torchvision:resnet50", model, "default")
    assert (pixels.transform.resize, pixels.transform.crop) == (232, 224)
    assert classes[360] == "otter"
    assert about("torchvision:resnet50", model, None) == (None, ())


def test_timm_by_name():
    torchvision_models()
    pytest.importorskip("timm", reason="needs timm")
    model = build("timm:resnet10t", {"num_classes": 5})
    pixels, classes = about("timm:resnet10t", model, None)
    assert pixels.transform.crop == 176
    assert classes == ()
    with pytest.raises(Exception, match="did you mean resnet18"):
        build("timm:resnet18x", {})


def test_a_folder_of_hugging_face(photos, tmp_path):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    names = {0: "cat", 1: "dog", 2: "owl"}
    config = ViTConfig(**sizes, image_size=32, patch_size=8, id2label=names, label2id={v: k for k, v in names.items()})
    torch.manual_seed(0)
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    said = {"do_resize": True, "size": {"shortest_edge": 36}, "do_center_crop": True, "crop_size": {"height": 32}}
    said |= {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(said))
    options = ("-m", "integrated-gradients", "--steps", "2", "-o", tmp_path / "o", "--no-figures", "--json")
    done = axiograd("explain", f"hf:{tmp_path / 'vit'}", photos, *options)
    assert done.code == 0, done.err
    assert done.json["preprocessing"].startswith("short side 36, centre crop 32, RGB")
    assert not done.json["preprocessing_is_a_guess"]
    assert done.json["trained"]
    assert {each["name"] for each in done.json["samples"][0]["top"]} == {"cat", "dog", "owl"}
    # A converted file says the same of itself.
    file = tmp_path / "x.safetensors"
    done = axiograd("convert", f"hf:{tmp_path / 'vit'}", "--how", "lift", "--examples", photos, "-o", file)
    assert done.code == 0, done.err
    loaded = library.load(f"hf:{tmp_path / 'vit'}", file)
    assert loaded.classes == ("cat", "dog", "owl")
    assert loaded.pixels.transform == Preprocess(36, 32, (0.5,) * 3, (0.25,) * 3)
    done = axiograd("explain", f"hf:{tmp_path / 'vit'}", "--weights", file, photos, *options)
    assert {each["name"] for each in done.json["samples"][0]["top"]} == {"cat", "dog", "owl"}
    assert not done.json["preprocessing_is_a_guess"]
    squashed = libraries._from_processor(said | {"size": {"height": 32, "width": 32}, "do_center_crop": False})
    assert squashed.guessed


def test_files_of_torch_export(photos, tmp_path):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3, bias=False)
    ).eval()
    batch = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(model, (torch.randn(2, 3, 16, 16),), dynamic_shapes=batch)
    torch.export.save(program, tmp_path / "m.pt2")
    assert axiograd("check", tmp_path / "m.pt2").code == 0  # it knows its shape
    torch.export.save(torch.export.export(model, (torch.randn(2, 3, 16, 16),)), tmp_path / "two.pt2")
    done = axiograd("explain", tmp_path / "two.pt2", photos, "--size", "16", "-o", tmp_path / "o")
    assert "exported for 2 samples at a time, and is given 6: export it with dynamic_shapes" in done.err
    done = axiograd(
        "explain", tmp_path / "m.pt2", photos, "--size", "16", "-o", tmp_path / "o", "--no-figures", "--json"
    )
    assert done.code == 0, done.err
    assert done.json["certified"]
    (tmp_path / "m.onnx").write_bytes(b"")
    done = axiograd("explain", tmp_path / "m.onnx", photos)
    assert done.code == 2
    assert "axiograd check" in done.err
    export_pt2(model, torch.rand(2, 3, 16, 16), tmp_path / "ours.pt2")
    done = axiograd("explain", tmp_path / "ours.pt2", photos)
    assert done.code == 2
    assert "answers with its attributions already" in done.err
    (tmp_path / "bad.pt2").write_bytes(b"no")
    assert axiograd("explain", tmp_path / "bad.pt2", photos).code == 3


def test_a_library_that_cannot_be_imported_says_so(monkeypatch, photos):
    import importlib

    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", broken)
    done = axiograd("check", "torchvision:resnet18")
    assert done.code == 2
    assert "come in pairs" in done.err
