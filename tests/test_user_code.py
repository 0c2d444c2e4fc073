"""A name leads to Python of the user's own."""

import sys

import pytest
from torch import nn

from axiograd import datasets, models
from axiograd._user_code import load, locate
from axiograd.errors import AxiogradError, ConfigurationError


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_here.py").write_text(
        "from functools import partial\n"
        "from torch import nn\n"
        "from torch.nn import Linear\n"
        "made = partial(nn.Linear, 2)\n"
        "number = 3\n"
        "net = nn.Linear(2, 1)\n"
        "class Net(nn.Linear): pass\n"
        "def build(): return nn.Linear(2, 1)\n"
    )
    yield tmp_path
    sys.modules.pop("mine_here", None)


@pytest.mark.parametrize("source", ["mine_here", "mine_here.py"])
def test_ones_own_is_found(mine, source):
    assert isinstance(load(f"{source}:build")(), nn.Linear)
    assert isinstance(load(f"{source}:net"), nn.Linear)
    assert isinstance(load(f"{source}:Net")(2, 1), nn.Linear)
    assert isinstance(load(f"{source}:made")(1), nn.Linear)
    assert load("torch.nn:Linear") is load(f"{source}:Linear") is nn.Linear
    assert load("axiograd.models:MLP") is models.MLP
    assert load("axiograd.datasets:shapes") is datasets.shapes
    for attribute, message in (("number", "is of type int"), ("nothing", "has no 'nothing'")):
        with pytest.raises(ConfigurationError, match=message):
            load(f"{source}:{attribute}")


@pytest.mark.parametrize(
    "name", ["no:", ":f", "a:b.c", "a:b c", "a:", "mine.py", "no_such_module.at:all", "x.py:f", "..:f"]
)
def test_what_is_not_a_name_is_one_sentence(name):
    with pytest.raises(AxiogradError, match=r"\.$"):
        locate(name)


def test_a_name_that_is_nearly_one(tmp_path):
    (tmp_path / "net.py").write_text("from torch import nn\n\n\ndef build():\n    return nn.ReLU()\n")
    with pytest.raises(ConfigurationError, match=r"did you mean 'build'\? Choose from build\."):
        load(f"{tmp_path / 'net.py'}:biuld")
