"""DnCNN: the bias-free weights load, denoise, and are homogeneous."""

import pytest
import torch

from axiograd.datasets import PIXELS, imagenet_sample
from axiograd.errors import ConfigurationError, DataMissingError
from axiograd.models import DnCNN, get_model
from axiograd.models.dncnn import ScaleNorm2d


def test_trained_denoiser_denoises_and_is_homogeneous():
    try:
        model = get_model("xdncnn", weights="denoising").eval()
        photo = imagenet_sample(transform=PIXELS)[3][0]
    except DataMissingError as error:
        pytest.skip(str(error))
    clean = photo.mean(0)[None, None, 40:136, 40:136]
    noisy = clean + 25 / 255 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        denoised = model(noisy)
        scaled = model(0.1 * noisy)
    before, after = (-10 * torch.log10((image - clean).square().mean()) for image in (noisy, denoised))
    assert after > before + 3
    torch.testing.assert_close(scaled, 0.1 * denoised, rtol=0, atol=1e-5 * denoised.abs().max().item())


def test_running_deviation_follows_the_batches():
    norm = ScaleNorm2d(2, momentum=1.0)
    x = torch.randn(4, 2, 5, 5, dtype=torch.double)
    norm.double()(x)
    torch.testing.assert_close(norm.running_var, x.transpose(0, 1).flatten(1).var(1, correction=0))


def test_in_training_the_scale_is_the_batchs_own():
    x = torch.randn(4, 2, 5, 5, dtype=torch.double) + 3
    out = ScaleNorm2d(2).double()(x)
    torch.testing.assert_close(out, x / x.std((0, 2, 3), correction=0, keepdim=True), rtol=1e-4, atol=1e-4)


def test_batchnorm_state_with_zero_shift_loads_and_with_another_does_not(tmp_path):
    regular = DnCNN(depth=3, width=4)
    state = {k: v for k, v in regular.state_dict().items() if not k.endswith("layer.bias")}
    torch.save(state, tmp_path / "zero.pth")
    get_model("xdncnn", depth=3, width=4, weights=tmp_path / "zero.pth")
    state["bn_layer_list.0.running_mean"] = torch.ones(4)
    torch.save(state, tmp_path / "shifted.pth")
    with pytest.raises(ConfigurationError, match=r"unexpected bn_layer_list\.0\.running_mean;"):
        get_model("xdncnn", depth=3, width=4, weights=tmp_path / "shifted.pth")
