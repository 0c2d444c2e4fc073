"""One line per rule: a function, and its degree or None where it has none."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_G = torch.Generator().manual_seed(1)
INF = math.inf


def rand(*shape):
    return torch.rand(shape, generator=_G, dtype=torch.float64) + 0.2


def signed(*shape):
    return torch.randn(shape, generator=_G, dtype=torch.float64)


W = signed(6, 6)
B = signed(6)
ZERO = torch.zeros(6, dtype=torch.float64)
K = signed(3, 3, 3, 3)
K1 = signed(3, 3, 3)
KB = signed(3)
POSITIVE = rand(6)
MASK = torch.tensor([True, False, True, False, True, True])
HOLES = torch.tensor([0.0, -INF, 0.0, -INF, 0.0, 0.0], dtype=torch.float64)
INDEX = torch.tensor([0, 2, 1, 3, 5, 4])
EPS = 1e-13


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable[[Tensor, Tensor], Tensor]
    degree: float | None
    #: Violations that the oracle cannot refute: the function has a degree that no rule claims.
    conservative: bool = False


def inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (4, 6), (2, 3, 8, 8)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)


def unit(v):
    """A degree-0 version of v."""
    n = torch.linalg.vector_norm(v)
    return v / n


def case(name, function, degree, **more):
    return Case(name, function, degree, **more)


def _grid(i):
    return i[:, :2].permute(0, 2, 3, 1)


ELEMENTWISE = [
    case("add", lambda x, i: x + 2 * x, 1),
    case("add constant", lambda x, i: x + B, None),
    case("add zero constant", lambda x, i: x + ZERO, 1),
    case("add number", lambda x, i: x + 1.0, None),
    case("add mixed", lambda x, i: x + x**2, None),
    case("add degree 0", lambda x, i: x + unit(x), None),
    case("add -inf mask", lambda x, i: (x + HOLES).amax(1), 1),
    case("add alpha", lambda x, i: torch.add(x, x * x, alpha=0), 1 ),
    case("sub", lambda x, i: x - x.mean(), 1),
    case("rsub", lambda x, i: 1 - x, None),
    case("mul", lambda x, i: x * x.sum(), 2),
    case("mul constant", lambda x, i: x * B, 1),
    case("mul zero", lambda x, i: x + (x * x) * 0.0, 1),
    case("div", lambda x, i: x / x.abs().sum(), 0),
    case("div constant", lambda x, i: x / POSITIVE, 1),
    case("constant over x", lambda x, i: B / x, -1),
    case("div floor", lambda x, i: torch.div(x, x.std(), rounding_mode="floor"), 0),
    case("div floor constant", lambda x, i: torch.div(x, 0.1, rounding_mode="floor"), None),
    case("floor_divide", lambda x, i: x.abs() // x.std(), 0),
    case("remainder", lambda x, i: x % x.abs().mean(), 1),
    case("remainder constant", lambda x, i: x % 0.3, None),
    case("fmod", lambda x, i: torch.fmod(x, x.abs().mean()), 1),
    case("hypot", lambda x, i: torch.hypot(x, x.flip(0)), 1),
    case("hypot constant", lambda x, i: torch.hypot(x, B), None),
    case("polar of constants", lambda x, i: torch.view_as_real(x * torch.polar(B.abs(), B)), 1),
    case("maximum", lambda x, i: torch.maximum(x, x.mean()), 1),
    case("maximum constant", lambda x, i: torch.maximum(x, B), None),
    case("minimum zero", lambda x, i: torch.minimum(x, ZERO), 1),
    case("fmax", lambda x, i: torch.fmax(x, -x), 1),
    case("atan2", lambda x, i: torch.atan2(x, x.flip(1)), 0),
    case("atan2 constant", lambda x, i: torch.atan2(x, B), None),
    case("copysign", lambda x, i: torch.copysign(x, x.flip(0)), 1),
    case("neg abs", lambda x, i: -x.abs(), 1),
    case("relu", lambda x, i: x.relu(), 1),
    case("leaky_relu", lambda x, i: F.leaky_relu(x, 0.1), 1),
    case("prelu", lambda x, i: F.prelu(x, POSITIVE), 1),
    case("prelu moving slope", lambda x, i: F.prelu(x, x.abs().mean(0)), None),
    case("rrelu train", lambda x, i: F.rrelu(x, training=True), 1),
    case("rrelu eval", lambda x, i: F.rrelu(x, training=False), 1),
    case("square", lambda x, i: x.square(), 2),
    case("sqrt", lambda x, i: x.abs().sqrt(), 0.5),
    case("rsqrt", lambda x, i: x.abs().rsqrt(), -0.5),
    case("reciprocal", lambda x, i: x.reciprocal(), -1),
    case("pow", lambda x, i: x**3, 3),
    case("pow fraction", lambda x, i: x.abs() ** 1.5, 1.5),
    case("pow zero", lambda x, i: x**0, 0),
    case("pow negative", lambda x, i: x**-2.0, -2),
    case("pow tensor uniform", lambda x, i: x.abs() ** torch.full((6,), 2.5, dtype=torch.float64), 2.5),
    case("pow tensor", lambda x, i: x.abs() ** POSITIVE, None),
    case("power of infinity", lambda x, i: x.abs() ** HOLES.abs().max(), None),
    case("number to the x", lambda x, i: 2.0**x, None),
    case("x to the x", lambda x, i: x.abs() ** x, None),
    case("float_power", lambda x, i: torch.float_power(x, 2), 2),
    case("sign", lambda x, i: x.sign(), 0),
    case("isfinite", lambda x, i: torch.isfinite(x) * x, 1),
    case("clamp zero", lambda x, i: x.clamp(min=0), 1),
    case("clamp max", lambda x, i: x.clamp(max=0.3), None),
    case("clamp tensor", lambda x, i: x.clamp(x.mean() - x.std(), x.mean()), 1),
    case("clamp inf", lambda x, i: x.clamp(-INF, 0.0), 1),
    case("clamp degree 0", lambda x, i: unit(x).clamp(-0.1, 0.1) * x, 1),
    case("hardtanh", lambda x, i: F.hardtanh(x), None),
    case("relu6", lambda x, i: F.relu6(x * 9), None),
    case("threshold zero", lambda x, i: F.threshold(x, 0.0, 0.0), 1),
    case("threshold", lambda x, i: F.threshold(x, 0.1, 0.0), None),
    case("nan_to_num", lambda x, i: torch.nan_to_num(x * 1.0, nan=1.0), None, conservative=True),
    case("nan_to_num free", lambda x, i: torch.nan_to_num(x, 0.0, INF, -INF), 1),
    case("lerp", lambda x, i: torch.lerp(x, x.flip(0), 0.3), 1),
    case("lerp constant end", lambda x, i: torch.lerp(x, B.expand_as(x), 0.3), None),
    case("lerp moving weight", lambda x, i: torch.lerp(x, x.flip(0), x), None),
    case("addcmul", lambda x, i: torch.addcmul(x**2, x, x.flip(0)), 2),
    case("addcmul mixed", lambda x, i: torch.addcmul(x, x, x), None),
    case("addcdiv", lambda x, i: torch.addcdiv(x, x**2, x.flip(0)), 1),
    case("round", lambda x, i: x.round(), None),
    case("round degree 0", lambda x, i: (unit(x) * 9).round() * x, 1),
    case("floor", lambda x, i: (x * 3).floor(), None),
    case("heaviside", lambda x, i: torch.heaviside(x, ZERO + 0.5), 0),
    case("lift", lambda x, i: torch.linalg.vector_norm(x) * torch.sigmoid(unit(x) @ W + B), 1),
    case("complex", lambda x, i: torch.complex(x, x.flip(0)).abs(), 1),
]  # fmt: skip

SMOOTH = {
    **{
        name: getattr(F, name)
        for name in ["gelu", "silu", "elu", "selu", "celu", "mish", "hardswish", "softplus", "hardshrink"]
    },
    **{name: getattr(F, name) for name in ("softshrink", "logsigmoid", "softsign", "hardsigmoid", "glu")},
    **{name: getattr(torch, name) for name in ("tanh", "sigmoid", "exp", "expm1", "sin", "erf", "atan")},
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "log": lambda x: x.abs().log(),
    "log1p": lambda x: x.abs().log1p(),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
}
ACTIVATIONS = [case(name, lambda x, i, f=f: f(x), None) for name, f in SMOOTH.items()] + [
    case(f"{name} degree 0", lambda x, i, f=f: f(unit(x)) * x.norm(), 1) for name, f in SMOOTH.items()
]

SHAPES = [
    case("reshape", lambda x, i: x.reshape(6, 4).t().flatten(), 1),
    case("unfold", lambda x, i: F.unfold(i, 3), 1),
    case("fold", lambda x, i: F.fold(F.unfold(i, 2, stride=2), (8, 8), 2, stride=2), 1),
    case("index", lambda x, i: x[:, INDEX], 1),
    case("index by argmax", lambda x, i: x[x.argmax(0)], 1),
    case("mask", lambda x, i: x[:, MASK], 1),
    case("gather", lambda x, i: x.gather(1, x.argsort(1)), 1),
    case("embedding", lambda x, i: F.embedding(x.argmax(1), W) * x, 1),
    case("table by argmax", lambda x, i: x + ZERO[x.argmax(1)][:, None], None, conservative=True),
    case("cat", lambda x, i: torch.cat([x, 2 * x]), 1),
    case("cat zeros", lambda x, i: torch.cat([x, torch.zeros_like(x)]), 1),
    case("cat constant", lambda x, i: torch.cat([x, W[:2]]), None),
    case("stack mixed", lambda x, i: torch.stack([x, x * x]), None),
    case("where", lambda x, i: torch.where(x > 0, x, -2 * x), 1),
    case("where constant", lambda x, i: torch.where(x > 0, x, 1.0), None),
    case("where zero", lambda x, i: torch.where(x > 0, x, 0.0), 1),
    case("where inf", lambda x, i: torch.where(x > 0, x, -INF).amax(), 1),
    case("where two free", lambda x, i: (torch.where(x > 0, 0.0, INF) + x).amin(1), 1),
    case("where on another constant", lambda x, i: torch.where(x > 0.1, x, -x), None),
    case("masked_fill", lambda x, i: x.masked_fill(MASK, 0.0), 1),
    case("masked_fill constant", lambda x, i: x.masked_fill(MASK, 3.0), None),
    case("scatter", lambda x, i: torch.zeros_like(x).scatter(1, INDEX.expand(4, 6), x), 1),
    case("scatter value", lambda x, i: x.scatter(1, INDEX[:2].expand(4, 2), 1.0), None),
    case("scatter_add", lambda x, i: x.scatter_add(1, INDEX.expand(4, 6), x), 1),
    case("scatter_reduce prod", lambda x, i: x.scatter_reduce(1, INDEX[:2].expand(4, 2), x, "prod"), None),
    case("scatter_reduce amax", lambda x, i: x.scatter_reduce(1, INDEX.expand(4, 6), x, "amax"), 1),
    case("index_add", lambda x, i: x.index_add(1, INDEX, x), 1),
    case("pad", lambda x, i: F.pad(x, (1, 2)), 1),
    case("pad constant", lambda x, i: F.pad(x, (1, 2), value=1.0), None),
    case("pad reflect", lambda x, i: F.pad(i, (1, 2, 1, 1), mode="reflect"), 1),
    case("pad circular", lambda x, i: F.pad(i, (1, 2, 1, 1), mode="circular"), 1),
    case("interpolate", lambda x, i: F.interpolate(i, scale_factor=2, mode="bilinear"), 1),
    case("bicubic", lambda x, i: F.interpolate(i, size=5, mode="bicubic", antialias=True), 1),
    case("nearest", lambda x, i: F.interpolate(i, size=(3, 9)), 1),
    case("pixel_shuffle", lambda x, i: F.pixel_unshuffle(i, 2), 1),
    case("grid_sample", lambda x, i: F.grid_sample(i, unit(_grid(i)), align_corners=True), 1),
    case("grid_sample moving", lambda x, i: F.grid_sample(i, _grid(i), align_corners=False), None),
    case("roll flip", lambda x, i: x.roll(1, 0).flip(1).repeat(2, 1), 1),
    case("tril", lambda x, i: x.tril(), 1),
    case("to float32", lambda x, i: x.to(torch.float32).to(torch.float64), 1 ),
    case("to integer", lambda x, i: (x * 5).long() * 1.0, None),
    case("bits", lambda x, i: x.view(torch.float32) * 1.0, None),
    case("to bool", lambda x, i: x.bool() * x, 1),
    case("full_like", lambda x, i: x + torch.full_like(x, 2.0), None),
    case("new_zeros", lambda x, i: x + x.new_zeros(6), 1),
    case("ones_like", lambda x, i: x + torch.ones_like(x), None),
    case("fft", lambda x, i: torch.fft.rfft(x), 1),
    case("fft length", lambda x, i: torch.fft.rfft(x).abs(), 1),
    case("fft direction", lambda x, i: torch.fft.rfft(x).sgn().real, 0),
    case("fft power", lambda x, i: torch.fft.fft2(i).abs() ** 2, 2),
    case("diff", lambda x, i: torch.diff(x), 1),
    case("diff append", lambda x, i: torch.diff(x, append=torch.ones(4, 1, dtype=torch.float64)), None),
    case("quantile", lambda x, i: torch.quantile(x, 0.3, dim=1), 1),
    case("chunk", lambda x, i: x.chunk(2, 1)[0] * x.chunk(2, 1)[1], 2),
    case("split unbind", lambda x, i: x.split(2)[0].unbind(1)[0], 1),
    case("meshgrid", lambda x, i: torch.meshgrid(x[0], x[1], indexing="ij")[0], 1),
]  # fmt: skip
