"""Transformers built to be X-DNNs: certified, exact, blind to padding; and their regular twins, which are not."""

import pytest
import torch

import axiograd
from axiograd.errors import ConfigurationError
from axiograd.models import TextEncoder, ViT

IDS = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 0, 0, 0], [1, 2, 3, 0, 0]])
MASK = (IDS != 0).long()


def text(*, homogeneous):
    torch.manual_seed(0)
    model = TextEncoder(3, 20, homogeneous=homogeneous, dim=16, depth=2, heads=2, longest=8).eval()
    return randomised(model).double()


def image(*, homogeneous):
    torch.manual_seed(0)
    model = ViT(3, 1, homogeneous=homogeneous, image_size=12, patch=4, dim=16, depth=2, heads=2).eval()
    return randomised(model).double()


def randomised(model):
    """What starts at zero or one must not hide an error."""
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "norm.weight", "before.weight", "between.weight", "temperature")):
            torch.nn.init.normal_(parameter, 1.0 if "weight" in name else 0.0, 0.5)
    return model


def test_the_built_ones_are_certified_exactly():
    h = torch.randn(3, 5, 16, dtype=torch.double)
    for model, inputs in (
        (text(homogeneous=True), {"inputs_embeds": h, "attention_mask": MASK}),
        (image(homogeneous=True), torch.randn(2, 1, 12, 12, dtype=torch.double)),
    ):
        certificate = axiograd.certify(model, inputs)
        assert (certificate.ok, certificate.degree, certificate.exact) == (True, 1.0, True), certificate


def test_x_gradient_of_the_built_ones_is_integrated_gradients():
    model = text(homogeneous=True)
    call = {"input_ids": IDS, "attention_mask": MASK}
    ours = axiograd.XGradient(model, layer="embedding").attribute(call, 1)
    steps = axiograd.IntegratedGradients(model, 20, layer="embedding").attribute(
        call, 1, baselines=torch.zeros(1, 1, 16)
    )
    torch.testing.assert_close(ours, steps, rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(ours.sum((1, 2)), model(**call)[:, 1])
    assert not ours[MASK == 0].any()
    network, x = image(homogeneous=True), torch.randn(2, 1, 12, 12, dtype=torch.double)
    ours = axiograd.XGradient(network).attribute(x, 1)
    torch.testing.assert_close(ours, axiograd.IntegratedGradients(network, 20).attribute(x, 1), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("homogeneous", [True, False])
def test_padding_and_neighbours_do_not_matter(homogeneous):
    model = text(homogeneous=homogeneous)
    whole = model(IDS, MASK)
    for row, ids in enumerate(IDS):
        torch.testing.assert_close(model(ids[ids != 0][None])[0], whole[row])


@pytest.mark.parametrize("build", [text, image])
def test_zero_is_zero_with_a_finite_gradient(build):
    model = build(homogeneous=True)
    shape = (1, 5, 16) if build is text else (1, 1, 12, 12)
    x = torch.zeros(shape, dtype=torch.double, requires_grad=True)
    output = model(inputs_embeds=x) if build is text else model(x)
    assert not output.detach().any()
    assert torch.autograd.grad(output.sum(), x)[0].isfinite().all()


def test_the_order_of_tokens_counts_and_the_regular_ones_are_refused():
    for homogeneous in (True, False):
        model = text(homogeneous=homogeneous)
        assert (model(IDS[:1]) - model(IDS[:1].flip(1))).abs().max() > 1e-4
    x = torch.randn(2, 1, 12, 12, dtype=torch.double)
    assert not axiograd.certify(image(homogeneous=False), x).ok
    lifted = axiograd.to_xdnn(image(homogeneous=False), x, how="lift")
    assert (lifted.certificate.ok, lifted.certificate.exact) == (True, True)


def test_by_name():
    model = axiograd.models.get_model("xvit", num_classes=4, in_channels=1, image_size=8, dim=8, heads=2, depth=1)
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 4)
    assert not any("bias" in name for name, _ in model.named_parameters() if "attention.bias" not in name)
    with pytest.raises(ConfigurationError, match="must be a multiple of heads=3"):
        axiograd.models.get_model("text_encoder", dim=8, heads=3)
    with pytest.raises(ConfigurationError, match="must be a multiple of patch=3"):
        axiograd.models.get_model("vit", patch=3)
    with pytest.raises(ConfigurationError, match="either input_ids or inputs_embeds"):
        TextEncoder(dim=8, heads=2)()
