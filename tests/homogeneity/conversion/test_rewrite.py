import pytest
import torch
import torch.nn.functional as F
from torch import nn

from axiograd.homogeneity import to_xdnn

W, C, V = torch.randn(6, 6), torch.randn(1, 4, 6), torch.randn(6)
IMAGE = (2, 4, 6)


def _augmented(x):
    y = x * 2
    y += 1
    y -= C
    return y


def _attention(x):
    logits = torch.einsum("bnd,bmd->bnm", x, x) / 6**0.5 + torch.ones(4, 4).triu()
    return torch.matmul(torch.softmax(logits, dim=-1), x)


def _filled(x):
    y = torch.zeros_like(x)
    y[:, 1:] = x[:, 1:] + 1.0
    return y


FUNCTIONS = {
    "linear": lambda x: F.linear(x, W, V),
    "conv": lambda x: F.conv1d(x, torch.ones(3, 4, 1), torch.ones(3)),
    "addmm": lambda x: torch.addmm(V, x[:, 0], W),
    "add": lambda x: x + C,
    "add number": lambda x: 1 + x,
    "subtract from number": lambda x: 1 - x,
    "add in place": lambda x: (2 * x).add_(C),
    "augmented": _augmented,
    "concatenate": lambda x: torch.cat([C.expand(2, -1, -1), x], dim=1),
    "where": lambda x: torch.where(x > 0, x, C),
    "masked fill": lambda x: x.masked_fill(x < 0, -3.0),
    "clamp": lambda x: x.clamp(-0.5, 2.0),
    "clamp from below": lambda x: x.clamp(min=0.1),
    "maximum": lambda x: torch.maximum(x, C),
    "gelu": F.gelu,
    "silu in place": lambda x: F.silu(2 * x, inplace=True),
    "tanh in place": lambda x: (2 * x).tanh_(),
    "swish by hand": lambda x: x * torch.sigmoid(x),
    "softplus": lambda x: F.softplus(x, 2.0),
    "layer norm": lambda x: F.layer_norm(x, (6,), V, V),
    "group norm": lambda x: F.group_norm(x, 2, torch.ones(4), torch.ones(4)),
    "instance norm": lambda x: F.instance_norm(x, weight=torch.ones(4), bias=torch.ones(4)),
    "rms norm": lambda x: F.rms_norm(x, (6,)),
    "batch norm": lambda x: F.batch_norm(x, torch.ones(4), torch.full((4,), 2.0), torch.ones(4), torch.ones(4)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x + C, x),
    "attention by hand": _attention,
    "cosine attention": lambda x: (F.normalize(x, dim=-1) @ F.normalize(x, dim=-1).transpose(1, 2)).softmax(-1) @ x,
    "softmax gate": lambda x: F.softmax(x, -1) * x,
    "set item": _filled,
    "residual of a polynomial": lambda x: x + 0.1 * x**3 - 0.5 * x.pow(2),
}


class Functional(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def _rewritten(function, x):
    return to_xdnn(Functional(function).eval(), x, how="strip").model


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    global W, C, V
    W, C, V = W.double(), C.double(), V.double()
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_becomes_homogeneous(name):
    x = torch.randn(IMAGE)
    model = _rewritten(FUNCTIONS[name], x)
    value = model(x)
    original = FUNCTIONS[name](3 * x)
    assert not torch.allclose(original, 3 * FUNCTIONS[name](x), atol=1e-4) or "cosine" in name
    torch.testing.assert_close(model(3 * x), 3 * value)
    torch.testing.assert_close(model(0.01 * x), 0.01 * value)


FITTED = {"gelu", "silu in place", "tanh in place", "softplus"}  # least squares: see test_layers
DROPPED = {"linear", "conv", "addmm", "batch norm", "group norm", "instance norm", "layer norm"}  # their bias or shift


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in FITTED | DROPPED])
def test_it_is_the_original_at_the_scale_of_its_data(name):
    x = torch.randn(1, *IMAGE[1:]).expand(IMAGE).clone()
    torch.testing.assert_close(_rewritten(FUNCTIONS[name], x)(x), FUNCTIONS[name](x))


def test_in_place_functions_still_change_their_argument():
    seen = []

    def function(x):
        y = x * 2
        F.silu(y, inplace=True)
        seen.append(y)
        return y

    x = torch.randn(IMAGE)
    model = _rewritten(function, x)
    output = model(x)
    torch.testing.assert_close(seen[-1], output)
    torch.testing.assert_close(model(3 * x), 3 * output)


def test_constants_among_themselves_are_left_alone():
    x = torch.randn(IMAGE)
    model = _rewritten(lambda x: x * (torch.sigmoid(V) + 1), x)
    torch.testing.assert_close(model(x), x * (torch.sigmoid(V) + 1))
    assert not list(model.buffers())


EPSILONS = {
    "by rsqrt": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "by sqrt": lambda x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "by reciprocal": lambda x: x * (x.norm(dim=-1, keepdim=True) + 1e-6).reciprocal(),
    "by one over": lambda x: x * (1 / (x.abs().mean(-1, keepdim=True) + 1e-6)),
    "by division": lambda x: x / (x.abs().amax(-1, keepdim=True) + 1e-6),
}


@pytest.mark.parametrize("name", EPSILONS)
def test_norms_by_hand_are_zero_and_smooth_at_zero(name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.last(x * x.abs().sum(1, keepdim=True) + EPSILONS[name](self.first(x)) * x)

    torch.manual_seed(0)
    x = torch.randn(8, 6)
    conversion = to_xdnn(Net(), x, how="strip")
    assert conversion.certificate.ok
    at_zero = torch.zeros(3, 6, requires_grad=True)
    outputs = conversion.model(torch.cat([x, at_zero]))
    assert torch.equal(outputs[8:], torch.zeros(3, 2))
    outputs.square().sum().backward()
    assert at_zero.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in conversion.model.parameters())
    torch.testing.assert_close(outputs[:8], conversion.model(x))
