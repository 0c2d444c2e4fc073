"""Procedural shapes."""

import pytest
import torch

from axiograd.datasets import shapes
from axiograd.datasets.synthetic import TAGS
from axiograd.errors import ConfigurationError


def test_same_seed_same_images_and_splits_differ():
    first, again, other, test = shapes(n=20), shapes(n=20), shapes(n=20, seed=1), shapes("test", n=20)
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs, other.inputs)
    assert not torch.equal(first.inputs, test.inputs)


def test_values_classes_and_names():
    data = shapes(n=200)
    assert data.inputs.min() >= 0
    assert data.inputs.max() <= 1
    assert data.targets.bincount().tolist() == [50] * 4
    assert len(data.names) == 4
    assert not data.shortcuts.any()


def test_mask_is_where_the_image_is_lighter():
    data = shapes(n=200)
    grey = data.inputs.mean(1, keepdim=True)
    inside = (grey * data.masks).sum((1, 2, 3)) / data.masks.sum((1, 2, 3))
    outside = (grey * ~data.masks).sum((1, 2, 3)) / (~data.masks).sum((1, 2, 3))
    assert (inside > outside + 0.1).float().mean() > 0.98


def test_class_tag_is_perfectly_correlated_and_random_tag_is_not():
    colours = torch.tensor(TAGS)
    agreement = {}
    for kind in ("class", "random"):
        data = shapes(n=400, shortcut=kind)
        assert data.shortcuts.sum((1, 2, 3)).unique().tolist() == [16]
        assert not (data.masks & data.shortcuts).any()
        tag = (data.inputs * data.shortcuts).sum((2, 3)) / 16
        nearest = torch.cdist(tag, colours).argmin(1)
        agreement[kind] = (nearest == data.targets).float().mean().item()
    assert agreement["class"] == 1
    assert 0.15 < agreement["random"] < 0.35


def test_the_tag_is_all_that_differs():
    plain, tagged = shapes(n=50), shapes(n=50, shortcut="class")
    outside = ~tagged.shortcuts.expand_as(plain.inputs)
    assert torch.equal(plain.inputs[outside], tagged.inputs[outside])
    assert torch.equal(plain.targets, tagged.targets)


def test_other_sizes():
    assert shapes(n=500, size=48).inputs.shape == (500, 3, 48, 48)


def test_a_linear_model_learns_the_tag_but_not_the_shape():
    def accuracy(shortcut):
        train, test = shapes(n=600, shortcut=shortcut), shapes("test", n=300, shortcut=shortcut)
        answers = torch.nn.functional.one_hot(train.targets, 4).float()
        features = [torch.cat([d.inputs.flatten(1), torch.ones(len(d), 1)], 1) for d in (train, test)]
        gram = features[0] @ features[0].T + 30 * torch.eye(600)
        scores = features[1] @ (features[0].T @ torch.linalg.solve(gram, answers))
        return (scores.argmax(1) == test.targets).float().mean().item()

    assert accuracy("class") > 0.8
    assert accuracy("none") < 0.6


@pytest.mark.parametrize("arguments", [{"split": "validation"}, {"shortcut": "colour"}])
def test_choices_are_checked(arguments):
    with pytest.raises(ConfigurationError, match="choose one of"):
        shapes(**arguments)
