"""What biases carry, against central differences in float64, and what conversions cost."""

import copy

import pytest
import torch
from torch import nn

from axiograd.errors import InputError
from axiograd.homogeneity import bias_report


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    model = nn.Sequential(*layers).double().eval()
    with torch.no_grad():
        model[1].running_mean.normal_()
        model[1].running_var.uniform_(0.5, 2)
        model[1].bias.normal_()
    return model


def slope(model: nn.Module, name: str, x: torch.Tensor, chosen: torch.Tensor) -> float:
    """d/dt of the chosen scores where a module's constants are multiplied by t, at t = 1, by central differences."""
    step, values = 1e-6, []
    for t in (1 + step, 1 - step):
        scaled = copy.deepcopy(model)
        module = scaled.get_submodule(name)
        with torch.no_grad():
            module.bias.mul_(t)
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.mul_(t)
        values.append(float(scaled(x).detach().gather(1, chosen[:, None]).sum()))
    return (values[0] - values[1]) / (2 * step)


def test_parts_are_derivatives_and_add_up():
    model, x = network(), torch.randn(40, 2, 6, 6, dtype=torch.float64)
    report = bias_report(model, x)
    scores, chosen = model(x).detach().max(1)
    parts = dict(report.layers)
    assert parts.keys() == {"0", "1", "5"}
    for name, part in parts.items():
        assert part * float(scores.abs().sum()) == pytest.approx(slope(model, name, x, chosen), rel=1e-6)
    assert report.rest < 1e-12
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).max(1).values.sum(), x)
    carried = (scores - (x.detach() * gradient).flatten(1).sum(1)).abs()
    assert report.share == pytest.approx(float(carried.sum() / scores.abs().sum()))
    assert sum(n for _, _, n in report.classes) == 40
    index, share, n = report.classes[0]
    here = chosen == index
    assert n == int(here.sum())
    assert share == pytest.approx(float(carried[here].sum() / scores[here].abs().sum()))


def test_what_conversions_keep_is_judged_on_other_samples():
    model, x = network().float(), torch.randn(64, 2, 6, 6)
    labels = model(x).argmax(1)
    report = bias_report(model, x, labels)
    assert report.accuracy == 1
    kept = {cost.how: cost.kept for cost in report.costs}
    assert kept.keys() == {"strip", "carry", "calibrate", "lift"}
    assert all(cost.kept == cost.accuracy for cost in report.costs)
    assert kept["lift"] > kept["strip"]
    assert "constants carry" in report.recommendation
    assert report.recommendation in str(report)


def test_a_network_without_constants():
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False))
    report = bias_report(model, torch.randn(32, 4))
    assert report.share < 1e-5
    assert report.layers == ()
    assert {cost.how: cost.kept for cost in report.costs}["strip"] == 1
    assert "costs little" in report.recommendation


def test_curvature_is_told_from_biases():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).double()
    report = bias_report(model, torch.randn(32, 4, dtype=torch.float64))
    assert report.rest > 0.01
    assert "curvature" in str(report)


def test_a_conversion_that_is_refused_says_why():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)).double()
    report = bias_report(model, torch.randn(32, 4, dtype=torch.float64))
    (calibrated,) = (cost for cost in report.costs if cost.how == "calibrate")
    assert calibrated.kept is None
    assert "layer_norm" in calibrated.why


def test_the_model_stays_as_it_was():
    model = network().float().train()
    before = copy.deepcopy(model.state_dict())
    bias_report(model, torch.randn(16, 2, 6, 6))
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("samples", "labels", "said"),
    [
        (torch.randn(2, 4), None, "at least four samples"),
        (torch.randn(8, 4), torch.zeros(3), "3 labels for 8 samples"),
        (torch.zeros(8, 4), None, "returns zero"),
    ],
)
def test_bad_samples(samples, labels, said):
    with pytest.raises(InputError, match=said):
        bias_report(nn.Linear(4, 2, bias=False), samples, labels)
