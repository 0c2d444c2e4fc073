"""A certificate lives as long as what the proof looked at."""

import gc
import weakref
from functools import partial

import pytest
import torch
from torch import nn

from axiograd.homogeneity import certification, certify, rule
from support.certificates.models import MLP, ResNet

X = torch.randn(4, 6)


@pytest.fixture
def proofs(monkeypatch):
    """Counts the proofs that were really made."""
    made = []
    original = certification._certify

    def counting(*args):
        made.append(1)
        return original(*args)

    monkeypatch.setattr(certification, "_certify", counting)
    return made


def _zero_bias():
    model = MLP(bias=True)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def test_second_call_is_free(proofs):
    model = MLP(bias=False)
    assert certify(model, X) is certify(model, X + 1)
    assert len(proofs) == 1


def test_training_weights_does_not_invalidate(proofs):
    model = MLP(bias=False)
    certify(model, X)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(X).sum().backward()
    optimizer.step()
    certify(model, X)
    assert len(proofs) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda m: nn.init.ones_(m.out.bias),
        lambda m: m.out.bias.data.fill_(1.0),
        lambda m: setattr(m.out.bias, "data", torch.ones(3)),
        lambda m: setattr(m.out, "bias", nn.Parameter(torch.ones(3))),
        lambda m: setattr(m, "out", nn.Linear(8, 3)),
        lambda m: m.load_state_dict({k: torch.ones_like(v) for k, v in m.state_dict().items()}),
        lambda m: m.register_forward_hook(lambda module, args, out: out + 1),
    ],
    ids=["init", "data.fill_", "data", "parameter", "module", "load_state_dict", "hook"],
)
def test_a_bias_that_was_zero(change, proofs):
    model = _zero_bias()
    assert certify(model, X).ok
    change(model)
    assert not certify(model, X).ok
    assert len(proofs) == 2


def test_a_bias_that_becomes_zero():
    model = nn.Linear(6, 3)
    assert not certify(model, X).ok
    nn.init.zeros_(model.bias)
    assert certify(model, X).ok


def test_mode_shape_dtype_and_choice_are_told_apart(proofs):
    model = ResNet(1, bias=False).eval()
    image = torch.randn(2, 3, 8, 8)
    assert certify(model, image).degree == 1
    assert certify(model.train(), image).degree == 0
    assert certify(model.eval(), image).degree == 1
    assert len(proofs) == 2
    certify(model, image[:, :, :6])
    certify(model.double(), image.double())
    assert len(proofs) == 4


def test_attribute_change_is_seen():
    class Switch(nn.Module):
        shift = 0.0

        def __init__(self):
            super().__init__()
            self.extra = 0.0

        def forward(self, x):
            return x + self.extra

    model = Switch()
    assert certify(model, X).ok
    model.extra = 1.0
    assert not certify(model, X).ok


def test_new_rule_is_seen():
    @torch.library.custom_op("axiograd_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    twice.register_fake(torch.empty_like)

    class Custom(nn.Module):
        def forward(self, x):
            return twice(x)

    model = Custom()
    refused = certify(model, X)
    assert refused.violations[0].kind == "rule"
    assert 'rule("axiograd_test::twice")' in refused.violations[0].fix

    @rule("axiograd_test::twice")
    def _(call):
        return call["x"]

    assert certify(model, X).degree == 1


def test_the_cache_keeps_no_model_alive():
    model = MLP(bias=True)
    certify(model, X)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


class Adjustable(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = [0.0]
        self.pair = (0.0, 0.0)
        self.tensor = torch.zeros(6)
        self.activation = torch.relu
        self.options = Options()

    def forward(self, x):
        return self.activation(x) + self.shift[0] + self.pair[1] + self.tensor + self.options.shift


class Options:
    shift: float = 0.0


class Shifted(Adjustable):
    def forward(self, x):
        return x + 1


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.shift.__setitem__(0, 1.0),
        lambda m: setattr(m, "pair", (0.0, 1.0)),
        lambda m: setattr(m, "tensor", torch.ones(6)),
        lambda m: setattr(m, "activation", torch.tanh),
        lambda m: setattr(m.options, "shift", 1.0),
        lambda m: setattr(m, "forward", lambda x: x + 1),
        lambda m: setattr(m, "__class__", Shifted),
    ],
    ids=["list", "tuple", "tensor", "function", "object", "forward", "class"],
)
def test_attributes_of_any_kind(change):
    model = Adjustable()
    held = model.tensor
    assert certify(model, X).ok
    change(model)
    assert not certify(model, X).ok
    del held


def test_a_parameter_replaced_while_the_old_one_lives():
    model = _zero_bias()
    held = model.out.bias
    assert certify(model, X).ok
    model.out.bias = nn.Parameter(torch.ones(3))
    assert not certify(model, X).ok
    del held


def test_equal_buffers_need_no_new_proof(proofs):
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.BatchNorm1d(6)).eval()
    certify(model, X)
    model[1].running_mean = model[1].running_mean.clone()
    certify(model, X)
    assert len(proofs) == 1


FACTORS, SETTINGS = {0: 1}, {"power": 1}


def _helper(x):
    return x ** SETTINGS["power"]


class Power:
    def __init__(self):
        self.power = 1

    def __call__(self, x):
        return x.relu() ** self.power

    def method(self, x):
        return x.relu() ** self.power


def _closure(box):
    return lambda x: x.relu() ** box[0]


def _default(box):
    return lambda x, box=box: x.relu() ** box[0]


def _attribute(box):
    def function(x):
        return x.relu() ** function.box[0]

    function.box = box
    return function


class Applies(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    "make", [_closure, _default, _attribute, lambda box: partial(lambda b, x: x.relu() ** b[0], box)]
)
def test_what_a_function_holds_is_seen(make, proofs):
    box = [1]
    model = Applies(make(box))
    assert certify(model, X).degree == 1
    box[0] = 2
    assert certify(model, X).degree == 2
    model.function = make([2])
    assert certify(model, X).degree == 2
    assert len(proofs) == 2


@pytest.mark.parametrize("name", ["method", "__call__"])
def test_the_owner_of_a_method_is_seen(name):
    power = Power()
    model = Applies(getattr(power, name))
    assert certify(model, X).degree == 1
    power.power = 2
    assert certify(model, X).degree == 2


def test_globals_of_a_function_and_of_those_it_calls_are_seen(monkeypatch, proofs):
    model = Applies(lambda x: _helper(x.relu()) ** FACTORS[0])
    assert certify(model, X).degree == 1
    monkeypatch.setitem(FACTORS, 0, 2)
    assert certify(model, X).degree == 2
    monkeypatch.setitem(SETTINGS, "power", 2)
    assert certify(model, X).degree == 4
    certify(model, X)
    assert len(proofs) == 3


def test_a_module_in_a_closure_is_looked_into(proofs):
    head = nn.Sequential(nn.Linear(6, 6, bias=False), nn.LeakyReLU(0.1))
    model = Applies(lambda x: head(2 * x))
    assert certify(model, X).ok
    assert certify(model, X).ok
    assert len(proofs) == 1
    head[1] = nn.GELU()
    assert not certify(model, X).ok


def test_functions_that_know_each_other_or_their_model():
    model = Applies(lambda x: x.relu() if model.training else x.abs())
    assert certify(model, X).ok
    assert certify(model.eval(), X).ok
