"""Backward operators written with forward ones, against PyTorch's autograd in float64."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from axiograd.export.backward import decompositions

IMAGE = (2, 6, 13, 11)
SIGNAL = (2, 6, 17)
VOLUME = (2, 6, 6, 7, 5)


def conv(dim, inner, outer, kernel, groups=1, **options):
    weight = torch.randn(outer, inner // groups, *kernel, dtype=torch.float64)
    return lambda x: getattr(F, f"conv{dim}d")(x, weight, groups=groups, **options)


def transposed(dim, inner, outer, kernel, groups=1, **options):
    weight = torch.randn(inner, outer // groups, *kernel, dtype=torch.float64)
    return lambda x: getattr(F, f"conv_transpose{dim}d")(x, weight, groups=groups, **options)


torch.manual_seed(0)
CASES = {
    "plain": (IMAGE, conv(2, 6, 4, (3, 3))),
    "padded": (IMAGE, conv(2, 6, 4, (3, 5), padding=(1, 2))),
    "strided": (IMAGE, conv(2, 6, 4, (3, 3), stride=2, padding=1)),
    "strided, with rows that no window reaches": (IMAGE, conv(2, 6, 4, (2, 3), stride=(5, 4))),
    "pointwise, strided": (IMAGE, conv(2, 6, 4, (1, 1), stride=2)),
    "pointwise": (IMAGE, conv(2, 6, 4, (1, 1))),
    "padding wider than the kernel": (IMAGE, conv(2, 6, 4, (2, 2), padding=3)),
    "dilated": (IMAGE, conv(2, 6, 4, (3, 2), dilation=(2, 3), padding=2)),
    "dilated and strided": (IMAGE, conv(2, 6, 4, (3, 2), dilation=(2, 3), stride=(3, 2), padding=1)),
    "grouped": (IMAGE, conv(2, 6, 9, (3, 3), groups=3, padding=1)),
    "grouped and strided": (IMAGE, conv(2, 6, 9, (3, 3), groups=3, stride=2, padding=1)),
    "depthwise": (IMAGE, conv(2, 6, 12, (3, 3), groups=6, padding=1)),
    "same": (IMAGE, conv(2, 6, 4, (5, 3), padding="same")),
    "signal": (SIGNAL, conv(1, 6, 4, (4,), stride=3, padding=1)),
    "volume": (VOLUME, conv(3, 6, 4, (2, 3, 2), stride=(1, 2, 1), padding=1)),
    "transposed": (IMAGE, transposed(2, 6, 4, (3, 3), stride=2, padding=1, output_padding=1)),
    "transposed, grouped, dilated": (IMAGE, transposed(2, 6, 4, (3, 2), groups=2, dilation=2, stride=2)),
    "transposed signal": (SIGNAL, transposed(1, 6, 4, (4,), stride=3, output_padding=2)),
    "maximum": (IMAGE, lambda x: F.max_pool2d(x, 3, 2, 1)),
    "maximum, ceiling": (IMAGE, lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True)),
    "maximum, overlapping and dilated": (IMAGE, lambda x: F.max_pool2d(x, 3, 1, dilation=2)),
    "maximum of a signal": (SIGNAL, lambda x: F.max_pool1d(x, 3, 2)),
    "maximum of a volume": (VOLUME, lambda x: F.max_pool3d(x, 2, 2, 1)),
    "adaptive maximum": (IMAGE, lambda x: F.adaptive_max_pool2d(x, (4, 3))),
    "adaptive maximum, finer than the image": (IMAGE, lambda x: F.adaptive_max_pool2d(x, (13, 15))),
    "adaptive maximum of a signal": (SIGNAL, lambda x: F.adaptive_max_pool1d(x, 5)),
    "adaptive maximum of equal values": (IMAGE, lambda x: F.adaptive_max_pool2d(x.relu(), (4, 3))),
    "mean": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "mean, pads not counted": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "mean, ceiling": (IMAGE, lambda x: F.avg_pool2d(x, (3, 4), 3, 1, ceil_mode=True)),
    "mean, ceiling, pads not counted": (IMAGE, lambda x: F.avg_pool2d(x, 4, 3, 2, True, False)),
    "mean by another number": (IMAGE, lambda x: F.avg_pool2d(x, 2, 2, divisor_override=3)),
    "mean of a volume": (VOLUME, lambda x: F.avg_pool3d(x, 2, 2, 1)),
    "mean of a signal": (SIGNAL, lambda x: F.avg_pool1d(x, 3, 2, 1)),
    "adaptive mean": (IMAGE, lambda x: F.adaptive_avg_pool2d(x, (4, 3))),
    "adaptive mean, finer than the image": (IMAGE, lambda x: F.adaptive_avg_pool2d(x, (16, 12))),
    "adaptive mean of a volume": (VOLUME, lambda x: F.adaptive_avg_pool3d(x, (4, 3, 2))),
    "adaptive mean of a signal": (SIGNAL, lambda x: F.adaptive_avg_pool1d(x, 5)),
    "nearest": (IMAGE, lambda x: F.interpolate(x, scale_factor=2)),
    "nearest, by a fraction": (IMAGE, lambda x: F.interpolate(x, scale_factor=1.7)),
    "nearest of a signal": (SIGNAL, lambda x: F.interpolate(x, 30)),
    "nearest, exact": (IMAGE, lambda x: F.interpolate(x, (7, 30), mode="nearest-exact")),
    "linear": (SIGNAL, lambda x: F.interpolate(x, 9, mode="linear")),
    "trilinear": (VOLUME, lambda x: F.interpolate(x, scale_factor=(2, 1.5, 1), mode="trilinear")),
    "bilinear, by a fraction": (IMAGE, lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear")),
    "bilinear": (IMAGE, lambda x: F.interpolate(x, (20, 30), mode="bilinear")),
    "bilinear, corners": (IMAGE, lambda x: F.interpolate(x, (20, 30), mode="bilinear", align_corners=True)),
    "reflected": (IMAGE, lambda x: F.pad(x, (2, 1, 3, 2), mode="reflect")),
    "replicated": (IMAGE, lambda x: F.pad(x, (2, 1, 3, 2), mode="replicate")),
    "replicated signal": (SIGNAL, lambda x: F.pad(x, (2, 1), mode="replicate")),
    "adaptive maximum of a volume": (VOLUME, lambda x: F.adaptive_max_pool3d(x, (4, 3, 2))),
    "PReLU": (IMAGE, lambda x: F.prelu(x, torch.linspace(-1, 1, 6, dtype=torch.float64))),
    "ReLU6": (IMAGE, lambda x: F.relu6(5 * x)),
    "hard swish": (IMAGE, F.hardswish),
    "GELU": (IMAGE, F.gelu),
    "SiLU": (IMAGE, F.silu),
    "ELU": (IMAGE, F.elu),
    "layer norm": (IMAGE, lambda x: F.layer_norm(x, (13, 11))),
    "group norm": (IMAGE, lambda x: F.group_norm(x, 3)),
    "instance norm": (IMAGE, F.instance_norm),
    "softmax": (IMAGE, lambda x: x.softmax(1)),
    "attention": ((2, 3, 5, 4), lambda x: F.scaled_dot_product_attention(x, x.flip(1), x)),
    "shuffle": ((2, 8, 4, 4), lambda x: F.pixel_shuffle(x, 2)),
    "slices": (IMAGE, lambda x: x[:, 1:5, ::2].roll(2, 1).repeat(1, 2, 1, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_autograds(name):
    shape, function = CASES[name]
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=torch.float64)
    weights = torch.randn_like(function(x))

    def gradient(x):
        x = x.detach().requires_grad_()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.autograd.grad((function(x) * weights).sum(), x)[0]

    graph = make_fx(gradient, decomposition_table=decompositions())(x)
    backward = {str(node.target) for node in graph.graph.nodes if "backward" in str(node.target)}
    assert not backward
    torch.testing.assert_close(graph(x), gradient(x), rtol=1e-12, atol=1e-12)
