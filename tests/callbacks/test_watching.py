"""What is watched while others train: the numbers by hand, the network left as it was, what does not fit refused."""

import pytest
import torch
from torch import nn

import axiograd
from axiograd.callbacks import AttributionWatch
from axiograd.errors import ConfigurationError, InputError, NotHomogeneousError


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 8, bias=False), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2, bias=False)
    )


def test_share_and_gap_by_hand():
    model, x = network(), torch.randn(3, 1, 4, 4)
    masks = torch.zeros(3, 4, 4)
    masks[:, 0] = 1
    look = AttributionWatch(x, 1, masks=masks).look(model)
    assert all(module.training for module in model.modules())
    inputs = x.clone().requires_grad_()
    model.eval()
    (gradient,) = torch.autograd.grad(model(inputs)[:, 1].sum(), inputs)
    mass = (x * gradient).abs()
    assert look.share == pytest.approx(float((mass[:, :, 0].sum((1, 2)) / mass.flatten(1).sum(1)).mean()), rel=1e-5)
    assert look.gap < 1e-5
    assert set(look.numbers("val_")) == {"val_share_in_masks", "val_completeness_gap"}
    assert len(look.figure("step 3").axes) >= 3


def test_the_gap_is_that_of_the_method():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    x = torch.randn(3, 1, 4, 4)
    look = AttributionWatch(x, 1, method=axiograd.InputXGradient).look(model)
    assert look.share is None
    assert look.gap == pytest.approx(float(axiograd.InputXGradient(model).completeness(x, 1).relative.mean()))
    with pytest.raises(NotHomogeneousError, match="not certified"):
        AttributionWatch(x, 1).look(model)


def test_masks_that_do_not_fit():
    model, x = network(), torch.randn(3, 1, 4, 4)
    for shape in [(3, 5, 5), (3,), (2, 4, 4), (4, 4)]:
        with pytest.raises(InputError, match="do not fit"):
            AttributionWatch(x, 1, masks=torch.ones(shape)).look(model)

    class Two(nn.Module):
        def forward(self, a, b):
            return (a + b).sum(1)

    with pytest.raises(ConfigurationError, match="several"):
        AttributionWatch((torch.ones(1, 2), torch.ones(1, 2)), masks=torch.ones(1, 2)).look(Two())


def test_an_input_by_name_is_one():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = network()

        def forward(self, pixel_values):
            return {"logits": self.inside(pixel_values)}

    x = torch.randn(3, 1, 4, 4)
    look = AttributionWatch({"pixel_values": x}, 1, masks=torch.ones(3, 4, 4)).look(Named())
    assert look.share == pytest.approx(1)
    assert look.figure() is not None
