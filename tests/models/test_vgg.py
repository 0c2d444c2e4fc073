"""VGG of four depths, regular and X."""

import pytest
import torch

from axiograd.models import VGG

SETTINGS = {"num_classes": 4, "width": 0.0625, "hidden": 8, "pool": 1}


@pytest.mark.parametrize("depth", [11, 13, 16, 19])
def test_depth_is_the_number_of_layers_with_weights(depth):
    model = VGG(depth, **SETTINGS, homogeneous=True)
    assert len(list(model.parameters())) == depth
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 4)


def test_small_form_leaves_out_the_last_pool():
    model = VGG(11, **SETTINGS, small=True)
    assert model.features(torch.rand(1, 3, 28, 28)).shape[-2:] == (1, 1)


def test_initialisation_is_torchvisions():
    torch.manual_seed(0)
    model = VGG(11, num_classes=10, hidden=256, pool=1)
    conv = model.features[6].weight
    assert conv.std().item() == pytest.approx((2 / (conv.shape[0] * 9)) ** 0.5, rel=0.02)
    assert model.classifier[0].weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert not any(p.count_nonzero() for name, p in model.named_parameters() if name.endswith("bias"))
