"""Decoy patches and class-coded colours."""

import pytest
import torch

from axiograd.datasets import TensorData, add_colour, add_decoy, color_mnist, decoy, fashion_mnist
from axiograd.datasets.synthetic import palette
from axiograd.errors import ConfigurationError, DataMissingError


def images(n=600):
    generator = torch.Generator().manual_seed(0)
    return TensorData(torch.rand(n, 1, 28, 28, generator=generator), torch.arange(n) % 10, "noise")


@pytest.mark.parametrize("informative", [True, False])
def test_decoy_by_hand(informative):
    plain = images()
    marked = add_decoy(plain, informative=informative, seed=3)
    corners = {(0, 0): 0, (0, 24): 0, (24, 0): 0, (24, 24): 0}
    agreements = 0
    for before, after, mask, label in zip(plain.inputs, marked.inputs, marked.shortcuts, plain.targets, strict=True):
        (top, left) = mask[0].nonzero()[0].tolist()
        corners[top, left] += 1
        expected = torch.zeros(28, 28, dtype=torch.bool)
        expected[top : top + 4, left : left + 4] = True
        assert torch.equal(mask[0], expected)
        assert torch.equal(before[~mask], after[~mask])
        value = round(after[mask].unique().item() * 255)
        assert (255 - value) % 25 == 0
        assert 30 <= value <= 255
        agreements += value == 255 - 25 * label
    assert min(corners.values()) > 100
    assert agreements == 600 if informative else 20 < agreements < 110


def test_seed_decides():
    first, again, other = (add_decoy(images(), informative=False, seed=s).inputs for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_decoy_fashion_mnist():
    try:
        plain, marked = fashion_mnist("test"), decoy("test")
    except DataMissingError as error:
        pytest.skip(str(error))
    assert marked.name == "Decoy Fashion-MNIST test"
    assert ((plain.inputs != marked.inputs) <= marked.shortcuts).all()


def test_too_many_classes():
    with pytest.raises(ConfigurationError, match="at most 11 classes"):
        add_decoy(TensorData(torch.zeros(1, 1, 8, 8), torch.tensor([12]), "many"), informative=True)


def test_colours_are_the_classs_or_the_opposite_ones():
    plain = images(20)
    train, test = add_colour(plain), add_colour(plain, inverted=True)
    colours = palette(10)
    for i, label in enumerate(plain.targets.tolist()):
        torch.testing.assert_close(train.inputs[i], plain.inputs[i] * colours[label][:, None, None])
        torch.testing.assert_close(test.inputs[i], plain.inputs[i] * colours[9 - label][:, None, None])
    # Purple is half of red plus half of blue.
    torch.testing.assert_close(colours[9], torch.tensor([0.5, 0.0, 0.5]))
    assert len(colours.unique(dim=0)) == 10


def test_color_mnist():
    try:
        data = color_mnist("test")
    except DataMissingError as error:
        pytest.skip(str(error))
    assert data.inputs.shape == (10_000, 3, 28, 28)
