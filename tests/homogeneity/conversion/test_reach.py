"""One small member of each kind of torchvision architecture; `python benchmarks/reach.py` does all of them."""

import pytest
import torch

from axiograd.homogeneity import verify
from axiograd.homogeneity.conversion import to_xdnn
from support.alive import lives
from support.torchvision import TorchvisionMissingError, torchvision_models


@pytest.fixture(scope="module")
def models():
    try:
        return torchvision_models()
    except TorchvisionMissingError as missing:
        pytest.skip(str(missing))


def _build(models, name):
    torch.manual_seed(0)
    if name.startswith("vit"):
        kind = models.VisionTransformer
        model = kind(image_size=32, patch_size=16, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5)
        torch.nn.init.normal_(model.heads.head.weight, std=0.1)
        return model.eval(), torch.randn(1, 3, 32, 32)
    if name.startswith("swin"):
        kind = models.SwinTransformer
        model = kind([4, 4], 8, [2], [2], [2, 2], stochastic_depth_prob=0.1, num_classes=5)
        return model.eval(), torch.randn(1, 3, 24, 24)
    if name.startswith("convnext"):
        setting = models.convnext.CNBlockConfig
        model = models.ConvNeXt([setting(8, 16, 1), setting(16, None, 1)], num_classes=5)
        return model.eval(), torch.randn(1, 3, 32, 32)
    size = 64 if name.startswith("squeezenet") else 32
    return models.get_model(name).eval(), torch.randn(1, 3, size, size)


def _long(*names):
    return [pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "convnext", "swin", *_long("squeezenet1_1", "resnet18", "vit")])
def test_strip_is_certified_verified_and_alive(models, name):
    model, x = _build(models, name)
    conversion = to_xdnn(model, x, how="strip")
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    assert verify(conversion.model, x).ok
    kept = set(model.state_dict()) - set(conversion.removed)
    assert kept
    assert lives(conversion.model, x)


@pytest.mark.parametrize("name", ["vit", *_long("squeezenet1_1", "swin")])
def test_lift_is_certified_and_verified(models, name):
    model, x = _build(models, name)
    conversion = to_xdnn(model, x, how="lift")
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    assert verify(conversion.model, x).ok
    with torch.no_grad():
        torch.testing.assert_close(conversion.model(x), model(x), rtol=1e-4, atol=1e-5)


def test_other_libraries_import_beside_it(models):
    assert models.__name__ == "torchvision.models"
    import transformers

    assert transformers.BertConfig().hidden_size == 768
