"""Models that toss a coin in Python: the proof would be about one side of it."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from axiograd import certify

X = torch.randn(3, 4)


def _python(x):
    return x if random.random() < 0.5 else x + 1


def _numpy(x):
    return x if np.random.rand() < 0.5 else x + 1  # noqa: NPY002 - what is refused


@pytest.mark.parametrize(("model", "name"), [(_python, "random"), (_numpy, "numpy.random")])
@pytest.mark.parametrize("seed", range(4))
def test_a_coin_is_refused_whatever_side_it_falls_on(model, name, seed):
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    states = random.getstate(), np.random.get_state()[1:3]  # noqa: NPY002
    certificate = certify(model, X)
    assert not certificate.ok
    violation = next(v for v in certificate.violations if v.kind == "random")
    assert violation.op == name
    assert f"draws from {name}" in violation.reason
    after = random.getstate(), np.random.get_state()[1:3]  # noqa: NPY002
    assert after[0] == states[0]
    assert np.array_equal(after[1][0], states[1][0])
    assert after[1][1] == states[1][1]


def test_draws_of_torch_are_held_fixed_as_before():
    certificate = certify(nn.Sequential(nn.Linear(4, 4, bias=False), nn.Dropout()).train(), X)
    assert certificate.ok
    assert any("random draws" in text for text in certificate.assumptions)


def test_a_generator_of_the_models_own_is_named():
    generator = torch.Generator().manual_seed(0)
    certificate = certify(lambda x: x @ torch.randn(4, 3, generator=generator), X)
    assert not certificate.ok
    [violation] = certificate.violations
    assert "Generator" in f"{violation.op} {violation.reason}"  # before torch 2.13 it is the export that names it
