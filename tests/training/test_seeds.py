import random

import numpy as np
import torch

from axiograd.training.seeds import generator, kept_rng, seed_everything


def draws():
    return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002 - the global one is meant


def test_a_place_decides_about_all_generators():
    with kept_rng():
        seed_everything(0, "step", 3)
        first = draws()
        seed_everything(0, "step", 3)
        assert draws() == first
        seed_everything(0, "step", 4)
        assert all(a != b for a, b in zip(draws(), first, strict=True))


def test_the_callers_generators_are_given_back():
    seed_everything(1)
    expected = draws()
    seed_everything(1)
    with kept_rng():
        seed_everything(2)
        draws()
    assert draws() == expected


def test_own_generators_do_not_touch_the_global_one():
    before = torch.random.get_rng_state()
    torch.rand(3, generator=generator(0, "order", 1))
    assert torch.equal(torch.random.get_rng_state(), before)
