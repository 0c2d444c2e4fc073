"""Oracle: torch's own schedulers and the paper's appendix B.1."""

import pytest
import torch
from torch import nn

from axiograd.errors import ConfigurationError
from axiograd.training import Recipe

WEIGHT = nn.Parameter(torch.zeros(2))


@pytest.mark.parametrize("name", ["alexnet", "vgg16"])
def test_presets_of_the_paper(name):
    recipe = Recipe.preset(name)
    assert (recipe.optimizer, recipe.lr, recipe.momentum, recipe.weight_decay) == ("sgd", 0.01, 0.9, 1e-4)
    assert (recipe.epochs, recipe.batch_size, recipe.mixup) == (100, 256, 0.0)
    assert [recipe.lr * recipe.lr_factor(e) for e in (0, 29.9, 30, 60, 90)] == pytest.approx(
        [1e-2, 1e-2, 1e-3, 1e-4, 1e-5]
    )


def test_fixup_preset_has_a_tenth_of_the_rate_for_biases_and_scales():
    recipe = Recipe.preset("fixup_resnet50")
    assert (recipe.lr, recipe.schedule, recipe.mixup, recipe.epochs) == (0.1, "cosine", 0.7, 100)
    names = ["conv.weight", "layer1.0.bias1a", "layer1.0.scale", "fc.bias", "scaled.weight"]
    optimizer = recipe.build_optimizer((name, nn.Parameter(torch.zeros(1))) for name in names)
    assert [(len(group["params"]), group["lr"]) for group in optimizer.param_groups] == [
        (2, 0.1),
        (3, pytest.approx(0.01)),
    ]


@pytest.mark.parametrize("schedule", ["step", "cosine", "constant"])
def test_schedules_equal_torchs(schedule):
    recipe = Recipe(lr=0.3, schedule=schedule, epochs=12, step_epochs=4, step_factor=0.5)
    optimizer = torch.optim.SGD([WEIGHT], lr=0.3)
    oracle = {
        "step": torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5),
        "cosine": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12),
        "constant": torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0),
    }[schedule]
    optimizer.param_groups[0]["lr"] = 0.3
    for epoch in range(12):
        assert 0.3 * recipe.lr_factor(epoch) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        oracle.step()


def test_optimizers():
    adam = Recipe(optimizer="adam", weight_decay=0.5).build_optimizer([("w", WEIGHT)])
    assert type(adam) is torch.optim.Adam
    assert adam.param_groups[0]["weight_decay"] == 0.5
    sgd = Recipe(momentum=0.3).build_optimizer([("w", WEIGHT)])
    assert sgd.param_groups[0]["momentum"] == 0.3
    with pytest.raises(ConfigurationError, match="nothing to train"):
        Recipe().build_optimizer([("w", torch.zeros(2))])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "sdg"}, "did you mean 'sgd'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        Recipe(**settings)


def test_wrong_preset():
    with pytest.raises(ConfigurationError, match="did you mean 'alexnet'"):
        Recipe.preset("alexnett")
