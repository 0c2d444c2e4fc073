"""Random networks over the rule set: every operation maps tensors of shape 1×4×4 to one of the same shape."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from support.certificates.guarded import GUARDED

SIZE = 4
INF = math.inf
#: Far below rounding: what an epsilon does to values near zero is stated by the certificate, not refuted here.
EPS = 1e-300
#: Enlarges inputs until the epsilons that people write are as far below; a divisor that is zero stays zero.
ENLARGED = 2.0**20
_G = torch.Generator().manual_seed(7)


def _randn(*shape):
    return torch.randn(shape, generator=_G, dtype=torch.float64)


def _rand(*shape):
    return torch.rand(shape, generator=_G, dtype=torch.float64) + 0.25


def _module(module):
    """A module with weights of its own, in float64, that stays as it is."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(_randn(*parameter.shape))
    return module


W, V = _randn(SIZE, SIZE), _randn(SIZE, SIZE)
BIAS, ZERO, POSITIVE = _randn(SIZE), torch.zeros(SIZE, dtype=torch.float64), _rand(SIZE)
HOLES = torch.tensor([0.0, -INF, 0.0, 0.0], dtype=torch.float64)
ORDER = torch.tensor([2, 0, 3, 1])
MASK = torch.tensor([True, False, True, True])
KERNEL = _randn(1, 1, 3, 3)

LINEAR = _module(nn.Linear(SIZE, SIZE, bias=False))
AFFINE = _module(nn.Linear(SIZE, SIZE))
UNBIASED = _module(nn.Linear(SIZE, SIZE))
nn.init.zeros_(UNBIASED.bias)
CONV = _module(nn.Conv1d(SIZE, SIZE, 3, padding=1, bias=False))
NORM = nn.BatchNorm1d(SIZE).double().eval()
SHIFTED = nn.BatchNorm1d(SIZE).double().eval()
SHIFTED.running_mean.copy_(_randn(SIZE))
LAYER_NORM = _module(nn.LayerNorm(SIZE, eps=EPS))
RNN = _module(nn.RNN(SIZE, SIZE, nonlinearity="relu", bias=False))
GRU = _module(nn.GRU(SIZE, SIZE))
PRELU = _module(nn.PReLU(SIZE))
#: Constants that a network may pick as operands besides its inputs.
CONSTANTS = tuple(c.expand(1, SIZE, SIZE).contiguous() for c in (W, ZERO.expand(SIZE, SIZE), HOLES.expand(SIZE, SIZE)))


def _wide(x):
    return x.expand(1, SIZE, SIZE)


def _divide(a, b):
    return a / b.masked_fill(b == 0, INF)


def _norm(x):
    n = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return n.masked_fill(n == 0, INF)


def _assign(a, b):
    y = a.clone()
    y[..., 0] = b[..., 1]
    return y


def _view_mul(a, b):
    y = (a * 1.0).contiguous()
    y.view(-1)[:SIZE].mul_(b.reshape(-1)[:SIZE])
    return y


def _view_add(a, b):
    y = a * 1.0
    view = y.transpose(1, 2)
    y.add_(b)
    return view * 1.0


def _alias(a, b):
    y = a * 1.0
    z = F.dropout(y, training=False)
    z.mul_(b)
    return y


def _fill(a, value):
    y = a.clone()
    y[:, 1:3] = value
    return y


def _relu_in_place(a):
    y = a + a
    return y.relu_()


def _into_integers(a):
    return torch.zeros(1, SIZE, SIZE, dtype=torch.long).copy_(a).double()


def _attend(a, b, c):
    return F.scaled_dot_product_attention(a, b, c)


def _scatter(a, b):
    return a.scatter(2, ORDER.expand(1, SIZE, SIZE)[..., :2], b[..., :2])


OPERATIONS = {
    # sums and products
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "div": lambda a, b, c: _divide(a, b),
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.5),
    "addcdiv": torch.addcdiv,
    "lerp": torch.lerp,
    "lerp number": lambda a, b, c: torch.lerp(a, b, 0.25),
    "scale": lambda a, b, c: 0.5 * a,
    "add number": lambda a, b, c: a + 0.5,
    "add bias": lambda a, b, c: a + BIAS,
    "add zeros": lambda a, b, c: a + ZERO,
    "add holes": lambda a, b, c: (a + HOLES).amax(-1, keepdim=True).expand(1, SIZE, SIZE),
    "times zero": lambda a, b, c: a * 0.0,
    "matmul": lambda a, b, c: a @ b,
    "matmul constant": lambda a, b, c: a @ W,
    "einsum": lambda a, b, c: torch.einsum("bij,bkj->bik", a, b),
    "baddbmm": lambda a, b, c: torch.baddbmm(a, b, c, beta=2.0),
    "functional linear": lambda a, b, c: F.linear(a, b[0], c[0, 0]),
    "conv": lambda a, b, c: F.conv2d(a[None], KERNEL, padding=1)[0],
    "bilinear": lambda a, b, c: F.bilinear(a, b, W.expand(SIZE, SIZE, SIZE).contiguous()),
    # elementwise
    "relu": lambda a, b, c: a.relu(),
    "leaky": lambda a, b, c: F.leaky_relu(a, 0.25),
    "prelu": lambda a, b, c: F.prelu(a, b[0, 0]),
    "abs": lambda a, b, c: a.abs(),
    "square": lambda a, b, c: a.square(),
    "cube": lambda a, b, c: a**3,
    "sqrt": lambda a, b, c: a.abs().sqrt(),
    "rsqrt": lambda a, b, c: a.abs().rsqrt(),
    "power": lambda a, b, c: a.abs() ** b,
    "sign": lambda a, b, c: a.sign(),
    "maximum": lambda a, b, c: torch.maximum(a, b),
    "minimum": lambda a, b, c: torch.minimum(a, b),
    "clamp": lambda a, b, c: torch.clamp(a, -b.abs(), b.abs()),
    "clamp zero": lambda a, b, c: a.clamp(min=0.0),
    "clamp number": lambda a, b, c: a.clamp(-0.5, 0.75),
    "relu6": lambda a, b, c: F.relu6(a),
    "remainder": lambda a, b, c: torch.remainder(a, b),
    "hypot": lambda a, b, c: torch.hypot(a, b),
    "atan2": lambda a, b, c: torch.atan2(a, b),
    "copysign": lambda a, b, c: torch.copysign(a, b),
    "floor_divide": lambda a, b, c: torch.floor_divide(a, b),
    "round": lambda a, b, c: a.round(),
    "threshold": lambda a, b, c: F.threshold(a, 0.0, 0.0),
    "threshold number": lambda a, b, c: F.threshold(a, 0.25, 0.0),
    "integer": lambda a, b, c: a.long().double(),
    "bool": lambda a, b, c: a.bool().double(),
    "float32": lambda a, b, c: a.float().double(),
    "nan_to_num": lambda a, b, c: torch.nan_to_num(a, 0.0, INF, -INF),
    # squashing
    "gelu": lambda a, b, c: F.gelu(a),
    "sigmoid": lambda a, b, c: torch.sigmoid(a),
    "exp": lambda a, b, c: torch.exp(-a.abs()),
    "softmax": lambda a, b, c: a.softmax(-1),
    "tanh": lambda a, b, c: torch.tanh(a),
    "logsumexp": lambda a, b, c: _wide(a.logsumexp(-1, keepdim=True)),
    # comparisons and choices
    "greater": lambda a, b, c: (a > b).double(),
    "greater zero": lambda a, b, c: (a > 0).double(),
    "greater number": lambda a, b, c: (a > 0.25).double(),
    "where": lambda a, b, c: torch.where(a > 0, b, c),
    "where compare": lambda a, b, c: torch.where(a > b, c, 0.0),
    "where inf": lambda a, b, c: torch.where(a > 0, b, -INF).amax(-1, keepdim=True).expand(1, SIZE, SIZE),
    "isclose": lambda a, b, c: torch.isclose(a, b, rtol=0.5, atol=0.0).double(),
    # reductions
    "sum": lambda a, b, c: _wide(a.sum(-1, keepdim=True)),
    "mean": lambda a, b, c: _wide(a.mean(1, keepdim=True)),
    "amax": lambda a, b, c: _wide(a.amax(-1, keepdim=True)),
    "var": lambda a, b, c: _wide(a.var(-1, keepdim=True)),
    "std": lambda a, b, c: _wide(a.std(1, keepdim=True)),
    "norm": lambda a, b, c: _wide(torch.linalg.vector_norm(a, dim=-1, keepdim=True)),
    "norm 3": lambda a, b, c: _wide(torch.linalg.vector_norm(a, 3, dim=-1, keepdim=True)),
    "norm 0": lambda a, b, c: _wide(torch.linalg.vector_norm(a, 0, dim=-1, keepdim=True)),
    "prod": lambda a, b, c: _wide(a.prod(-1, keepdim=True)),
    "cumsum": lambda a, b, c: a.cumsum(-1),
    "cumprod": lambda a, b, c: a.cumprod(-1),
    "cdist": lambda a, b, c: torch.cdist(a, b),
    "sort": lambda a, b, c: a.sort(-1).values,
    "topk": lambda a, b, c: a.topk(SIZE, -1).values,
    # PyTorch 2.13 reads wild memory in the median of an expanded tensor.
    "median": lambda a, b, c: _wide(a.contiguous().median(-1, keepdim=True).values),
    "argmax": lambda a, b, c: _wide(a.argmax(-1, keepdim=True).double()),
    "cummax": lambda a, b, c: a.cummax(-1).values,
    # places
    "transpose": lambda a, b, c: a.transpose(1, 2),
    "flip": lambda a, b, c: a.flip(-1),
    "roll": lambda a, b, c: a.roll(1, 1),
    "chunk": lambda a, b, c: torch.cat(a.chunk(2, 1)[::-1], 1),
    "cat": lambda a, b, c: torch.cat([a[:, :2], b[:, :2]], 1),
    "stack": lambda a, b, c: torch.stack([a, b])[:, 0].sum(0, keepdim=True),
    "index": lambda a, b, c: a[:, ORDER],
    "index by order": lambda a, b, c: a.gather(2, b.argsort(-1)),
    "masked_fill": lambda a, b, c: a.masked_fill(MASK, 0.0),
    "masked_fill number": lambda a, b, c: a.masked_fill(MASK, 1.0),
    "scatter": lambda a, b, c: _scatter(a, b),
    "index_add": lambda a, b, c: a.index_add(2, ORDER, b),
    "pad": lambda a, b, c: F.pad(a, (1, -1)),
    "pad number": lambda a, b, c: F.pad(a, (1, -1), value=0.5),
    "interpolate": lambda a, b, c: F.interpolate(a, scale_factor=2, mode="linear")[..., ::2],
    "max_pool": lambda a, b, c: F.max_pool1d(a, 3, stride=1, padding=1),
    "avg_pool": lambda a, b, c: F.avg_pool1d(a, 3, stride=1, padding=1),
    "fft": lambda a, b, c: torch.fft.fft(a).real,
    "tril": lambda a, b, c: a.tril(),
    # in place
    "assign": lambda a, b, c: _assign(a, b),
    "fill zero": lambda a, b, c: _fill(a, 0.0),
    "fill number": lambda a, b, c: _fill(a, 2.0),
    "relu_": lambda a, b, c: _relu_in_place(a),
    "mul_ on a view": lambda a, b, c: _view_mul(a, b),
    "add_ under a view": lambda a, b, c: _view_add(a, b),
    "mul_ through dropout": lambda a, b, c: _alias(a, b),
    "copy_ into integers": lambda a, b, c: _into_integers(a),
    # normalisations and attention
    "unit": lambda a, b, c: a / _norm(a),
    "unit of another": lambda a, b, c: a / _norm(b),
    "normalize": lambda a, b, c: F.normalize(a, dim=-1, eps=EPS),
    "layer_norm": lambda a, b, c: F.layer_norm(a @ V, (SIZE,), b[0, 0], c[0, 0], eps=EPS),
    "rms by hand": lambda a, b, c: a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + EPS),
    "batch_norm train": lambda a, b, c: F.batch_norm(a @ V, None, None, training=True, eps=EPS),
    "group_norm": lambda a, b, c: F.group_norm(a @ V, 2, eps=EPS),
    "attention": _attend,
    "relu attention": lambda a, b, c: (a @ b.transpose(1, 2)).relu() @ c,
    "dropout": lambda a, b, c: F.dropout(a, 0.5, training=True),
    "noise": lambda a, b, c: a * torch.rand_like(b),
    "added noise": lambda a, b, c: a + torch.rand_like(a),
    # modules
    "nn.Linear": lambda a, b, c: LINEAR(a),
    "nn.Linear bias": lambda a, b, c: AFFINE(a),
    "nn.Linear zero bias": lambda a, b, c: UNBIASED(a),
    "nn.Conv1d": lambda a, b, c: CONV(a),
    "nn.BatchNorm1d": lambda a, b, c: NORM(a),
    "nn.BatchNorm1d shifted": lambda a, b, c: SHIFTED(a),
    "nn.LayerNorm": lambda a, b, c: LAYER_NORM(a @ V),
    "nn.PReLU": lambda a, b, c: PRELU(a),
    "nn.RNN": lambda a, b, c: RNN(a)[0],
    "nn.GRU": lambda a, b, c: GRU(a)[0],
    **GUARDED,
}
NAMES = tuple(OPERATIONS)
#: Operations that often lose the degree are drawn less often, or no network would be certified.
RARE = frozenset(
    {
        *(
            "add number",
            "add bias",
            "clamp number",
            "relu6",
            "round",
            "threshold number",
            "integer",
            "gelu",
            "tanh",
        ),
        *("greater number", "masked_fill number", "pad number", "added noise", "nn.Linear bias", "logsumexp"),
        *("nn.BatchNorm1d shifted", "nn.GRU", "cumprod", "power", "addcdiv", "lerp"),
    }
)
#: In-place changes that other names see; they cost a second export, so they have networks of their own.
IN_PLACE = (
    *(
        "assign",
        "fill zero",
        "fill number",
        "relu_",
        "mul_ on a view",
        "add_ under a view",
        "mul_ through dropout",
    ),
    "copy_ into integers",
)
FREQUENT = tuple(name for name in NAMES if name not in RARE and name not in IN_PLACE)

#: A network: (operation, operand, operand, operand) per step; operands count back from the newest value.
Network = tuple[tuple[str, int, int, int], ...]


def run(network, x, y):
    """The last value of a network on two inputs."""
    return trail(network, x, y)[-1]


def trail(network, x, y):
    """The value after each step: every beginning of a network is a network, too."""
    pool = [*CONSTANTS, y, x]
    for name, *operands in network:
        a, b, c = (pool[-1 - o % len(pool)] for o in operands)
        pool.append(OPERATIONS[name](a, b, c))
    return pool[len(CONSTANTS) + 2 :]


def points(seed=0, kind="any"):
    """Two inputs: of any sign, all negative (where a ReLU is zero on a whole region), or half of them zero.

    Sparse rows are zero or have two entries that are not: a norm of a single one is that entry up to rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(1, SIZE, SIZE, generator=generator, dtype=torch.float64) for _ in range(2)]
    if kind == "negative":
        return tuple(-x.abs() for x in drawn)
    if kind == "sparse":
        entries = [torch.rand(x.shape, generator=generator).argsort(-1) < SIZE // 2 for x in drawn]
        rows = [torch.rand(1, SIZE, 1, generator=generator) < 0.75 for _ in drawn]
        return tuple(x * e * r for x, e, r in zip(drawn, entries, rows, strict=True))
    return tuple(drawn)
