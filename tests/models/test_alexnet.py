"""AlexNet and X-AlexNet are one definition with and without biases."""

import pytest
import torch

from axiograd.models import AlexNet

SETTINGS = {"num_classes": 4, "width": 0.125, "hidden": 16}


def test_x_variant_has_the_weights_of_the_regular_one_and_no_bias():
    regular, x = AlexNet(**SETTINGS).state_dict(), AlexNet(**SETTINGS, homogeneous=True).state_dict()
    assert set(x) == {key for key in regular if not key.endswith("bias")}
    assert all(x[key].shape == regular[key].shape for key in x)


def test_regular_with_zero_biases_equals_x():
    x_model = AlexNet(**SETTINGS, homogeneous=True).eval()
    regular = AlexNet(**SETTINGS).eval()
    regular.load_state_dict({k: torch.zeros_like(v) for k, v in regular.state_dict().items()} | x_model.state_dict())
    inputs = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(regular(inputs), x_model(inputs))


@pytest.mark.parametrize("size", [28, 32, 64])
def test_small_form_takes_small_images(size):
    assert AlexNet(**SETTINGS, small=True, pool=2)(torch.rand(2, 3, size, size)).shape == (2, 4)
