"""Models by name: the list, torchvision's keys, the certificate of every X model, errors."""

import hashlib

import pytest
import torch
from torch import nn

from axiograd.errors import ConfigurationError, DataMissingError
from axiograd.homogeneity import certify
from axiograd.models import get_model, list_models

#: Parameters, and a digest of sorted "key shape" lines, both taken from torchvision 0.29.
TORCHVISION = {
    "alexnet": ("935c1ea73a7869ee", 61_100_840),
    "vgg11": ("b11acd4f90d9643f", 132_863_336),
    "vgg13": ("79ca8fd7a1480aa7", 133_047_848),
    "vgg16": ("ba63c2556d912509", 138_357_544),
    "vgg19": ("393fac8b08b63fbe", 143_667_240),
    "squeezenet1_0": ("142983e4c19c76ad", 1_248_424),
    "squeezenet1_1": ("3fbd2a746421cada", 1_235_496),
    "mobilenet_v2": ("e3eb10f890f74c6e", 3_504_872),
    "resnet18": ("5191d63ec3989592", 11_689_512),
    "resnet50": ("a87e91cd6bd1f939", 25_557_032),
}
#: One X model per family, small enough for every run.
SMALL = {
    "xalexnet": ({"num_classes": 4, "width": 0.125, "hidden": 16}, (2, 3, 64, 64)),
    "xvgg11": ({"num_classes": 4, "width": 0.0625, "hidden": 8, "pool": 1}, (2, 3, 32, 32)),
    "xfixup_resnet18": ({"num_classes": 4, "width": 0.125}, (2, 3, 32, 32)),
    "xfixup_resnet20": ({"num_classes": 4}, (2, 3, 16, 16)),
    "xsqueezenet1_1": ({"num_classes": 4}, (2, 3, 63, 63)),
    "xdncnn": ({"depth": 4, "width": 4}, (2, 1, 8, 8)),
    "xmlp": ({}, (2, 118)),
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_keys_shapes_and_size_are_torchvisions(name):
    with torch.device("meta"):
        model = get_model(name)
    lines = [f"{key} {tuple(value.shape)}" for key, value in sorted(model.state_dict().items())]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    assert (digest, sum(p.numel() for p in model.parameters())) == TORCHVISION[name]


def test_every_model_is_built_without_memory():
    with torch.device("meta"):
        for name in list_models():
            assert all(parameter.is_meta for parameter in get_model(name).parameters())


@pytest.mark.parametrize("name", SMALL)
def test_one_x_model_per_family_is_certified(name):
    config, shape = SMALL[name]
    certificate = certify(get_model(name, **config).eval(), torch.randn(shape))
    assert certificate.ok, str(certificate)
    assert certificate.degree == 1
    assert certificate.exact


@pytest.mark.parametrize("name", ["xfixup_resnet20", "xdncnn", "xmlp"])
def test_its_regular_twin_is_not(name):
    config, shape = SMALL[name]
    model = get_model(name[1:], **config).eval()
    for parameter in model.parameters():
        # Away from initial zeros, which a certificate rightly accepts as long as they are zero.
        nn.init.normal_(parameter, 0, 0.1)
    assert not certify(model, torch.randn(shape)).ok


@pytest.mark.long
@pytest.mark.parametrize("name", list_models("x*"))
def test_every_x_model_is_certified(name):
    shape = {"xmlp": (2, 118), "xdncnn": (1, 1, 16, 16)}.get(name, (1, 3, 64, 64))
    certificate = certify(get_model(name).eval(), torch.randn(shape))
    assert certificate.ok, str(certificate)
    assert certificate.degree == 1


def test_num_classes_and_in_channels():
    model = get_model("xfixup_resnet20", num_classes=7, in_channels=1)
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "xalexnet2"}, "no model 'xalexnet2': did you mean 'xalexnet'"),
        ({"name": "xvgg16", "depth_": 3}, "no setting 'depth_': choose from .*width"),
        ({"name": "xvgg16", "weights": "imagenet21k"}, "no weights 'imagenet21k' for 'xvgg16'.*'paper'"),
        ({"name": "dncnn", "num_classes": 3}, "num_classes"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        get_model(**arguments)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataMissingError, match=r"no weights at .*mine\.pth"):
        get_model("xmlp", weights=tmp_path / "mine.pth")
