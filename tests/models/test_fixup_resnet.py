"""Fixup-ResNets: the published keys, forward pass and initialisation."""

import pytest
import torch
import torch.nn.functional as F

from axiograd.models import FixupResNet


def published_keys(blocks, convolutions, *, small):
    """The keys of the published code, written down independently of the model."""
    keys = ["conv1.weight", "bias1", "bias2", "fc.weight", "fc.bias"]
    for stage, repeats in enumerate(blocks, start=1):
        for block in range(repeats):
            prefix = f"layer{stage}.{block}."
            keys += [prefix + "scale"]
            for i in range(1, convolutions + 1):
                keys += [f"{prefix}bias{i}a", f"{prefix}conv{i}.weight", f"{prefix}bias{i}b"]
            widened = stage > 1 or convolutions == 3
            if block == 0 and widened and not small:
                keys += [prefix + "downsample.weight"]
    return set(keys)


@pytest.mark.parametrize(
    ("depth", "blocks", "convolutions"),
    [
        (18, (2, 2, 2, 2), 2),
        (34, (3, 4, 6, 3), 2),
        (50, (3, 4, 6, 3), 3),
        (101, (3, 4, 23, 3), 3),
        (152, (3, 8, 36, 3), 3),
    ],
)
def test_imagenet_keys_are_the_published_ones(depth, blocks, convolutions):
    with torch.device("meta"):
        model, x = FixupResNet.of_depth(depth), FixupResNet.of_depth(depth, homogeneous=True)
    expected = published_keys(blocks, convolutions, small=False)
    assert set(model.state_dict()) == expected
    assert set(x.state_dict()) == {key for key in expected if "bias" not in key and not key.endswith("scale")}


@pytest.mark.parametrize(("depth", "n"), [(20, 3), (32, 5), (44, 7), (56, 9), (110, 18)])
def test_cifar_keys_are_the_published_ones(depth, n):
    with torch.device("meta"):
        model = FixupResNet.of_depth(depth)
    assert set(model.state_dict()) == published_keys((n, n, n), 2, small=True)
    assert model.fc.out_features == 10
    # The depth counts the stem, the convolutions of the branches and the classifier.
    assert 2 + 2 * 3 * n == depth


def reference_forward(state, x, blocks, convolutions, *, small):
    """The published forward pass with functional calls on a state dict."""
    out = F.conv2d(x, state["conv1.weight"], stride=1 if small else 2, padding=1 if small else 3)
    out = F.relu(out + state["bias1"])
    if not small:
        out = F.max_pool2d(out, 3, 2, 1)
    for stage, repeats in enumerate(blocks, start=1):
        for block in range(repeats):
            p = {k.split(".", 2)[2]: v for k, v in state.items() if k.startswith(f"layer{stage}.{block}.")}
            stride = 2 if stage > 1 and block == 0 else 1
            identity = out
            if "downsample.weight" in p:
                identity = F.conv2d(out + p["bias1a"], p["downsample.weight"], stride=stride)
            elif stride == 2:
                identity = F.avg_pool2d(out + p["bias1a"], 1, stride)
                identity = torch.cat((identity, torch.zeros_like(identity)), 1)
            if convolutions == 2:
                y = F.relu(F.conv2d(out + p["bias1a"], p["conv1.weight"], stride=stride, padding=1) + p["bias1b"])
                y = F.conv2d(y + p["bias2a"], p["conv2.weight"], padding=1) * p["scale"] + p["bias2b"]
            else:
                y = F.relu(F.conv2d(out + p["bias1a"], p["conv1.weight"]) + p["bias1b"])
                y = F.relu(F.conv2d(y + p["bias2a"], p["conv2.weight"], stride=stride, padding=1) + p["bias2b"])
                y = F.conv2d(y + p["bias3a"], p["conv3.weight"]) * p["scale"] + p["bias3b"]
            out = F.relu(y + identity)
    return F.linear(out.mean((2, 3)) + state["bias2"], state["fc.weight"], state["fc.bias"])


@pytest.mark.parametrize(
    ("blocks", "convolutions", "small"), [((2, 1), 2, False), ((1, 2), 3, False), ((1, 2, 1), 2, True)]
)
def test_forward_pass_is_the_published_one(blocks, convolutions, small):
    torch.manual_seed(1)
    model = FixupResNet(blocks, convolutions, 5, small=small, width=0.25).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    x = torch.randn(2, 3, 32, 32, dtype=torch.double)
    expected = reference_forward(model.state_dict(), x, blocks, convolutions, small=small)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(("depth", "branches", "exponent"), [(18, 8, -1 / 2), (50, 16, -1 / 4), (20, 9, -1 / 2)])
def test_initialisation_is_the_published_one(depth, branches, exponent):
    torch.manual_seed(0)
    model = FixupResNet.of_depth(depth)
    block = model.layer3[0]
    weight = block.conv1.weight
    expected = (2 / (weight.shape[0] * weight[0, 0].numel())) ** 0.5 * branches**exponent
    assert weight.std().item() == pytest.approx(expected, rel=0.03)
    assert not getattr(block, f"conv{block.convolutions}").weight.count_nonzero()
    assert not model.fc.weight.count_nonzero()
    assert block.scale.item() == 1
    if depth != 20:
        shortcut = block.downsample.weight
        assert shortcut.std().item() == pytest.approx((2 / shortcut.shape[0]) ** 0.5, rel=0.03)


def test_x_variant_is_homogeneous():
    model = FixupResNet((1, 1), 3, 5, homogeneous=True, width=0.25).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    x = torch.randn(2, 3, 32, 32, dtype=torch.double)
    torch.testing.assert_close(model(2.5 * x), 2.5 * model(x))
