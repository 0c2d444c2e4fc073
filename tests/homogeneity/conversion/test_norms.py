import copy

import pytest
import torch
from torch import nn

from axiograd.homogeneity.conversion.calibration import calibrate
from axiograd.homogeneity.conversion.example import ExampleCall
from axiograd.homogeneity.conversion.layers import UncentredBatchNorm
from axiograd.homogeneity.conversion.strip import ModuleStripper

NORMS = {
    "layer": (nn.LayerNorm(6), (3, 4, 6)),
    "rms": (nn.RMSNorm(6), (3, 4, 6)),
    "group": (nn.GroupNorm(2, 4), (3, 4, 5)),
    "response": (nn.LocalResponseNorm(2), (3, 4, 5, 5)),
    "instance": (nn.InstanceNorm2d(4, affine=True), (3, 4, 5, 5)),
}


def _stripped(norm: nn.Module, x: torch.Tensor) -> nn.Module:
    stripped, _ = ModuleStripper().strip(copy.deepcopy(norm))
    calibrate(stripped, ExampleCall.ensure(stripped, x))
    return stripped


@pytest.mark.parametrize("name", NORMS)
def test_scale_keeping_norm_has_degree_one(name, assert_degree):
    norm, shape = NORMS[name]
    x = torch.randn(shape) * 3
    assert_degree(_stripped(norm, x).eval(), x)


@pytest.mark.parametrize("name", NORMS)
def test_scale_keeping_norm_is_the_original_at_the_scale_of_its_data(name):
    norm, shape = NORMS[name]
    x = torch.randn(1, *shape[1:]) * 3
    torch.testing.assert_close(_stripped(norm, x).eval()(x), norm.eval()(x))


def test_running_scale_follows_in_train_mode_only():
    norm = _stripped(nn.LayerNorm(6), torch.randn(8, 6)).train()
    before = norm.radius.clone()
    norm(torch.randn(8, 6) * 100)
    assert norm.radius > before
    before = norm.radius.clone()
    norm.eval()(torch.randn(8, 6) * 100)
    assert norm.radius == before


def test_uncentred_batch_norm_keeps_keys_and_weights():
    norm = nn.BatchNorm2d(3)
    norm(torch.randn(4, 3, 5, 5) + 2)
    nn.init.uniform_(norm.weight)
    stripped, edits = ModuleStripper().strip(copy.deepcopy(norm))
    assert set(stripped.state_dict()) == {"weight", "running_var", "num_batches_tracked"}
    torch.testing.assert_close(stripped.weight, norm.weight)
    torch.testing.assert_close(stripped.running_var, norm.running_var + norm.running_mean**2)
    assert [(e.before, e.after) for e in edits] == [("BatchNorm2d", "UncentredBatchNorm")]


@pytest.mark.parametrize("mode", [True, False])
def test_uncentred_batch_norm_is_linear_in_both_modes(mode):
    norm, x = UncentredBatchNorm(3).double().train(mode), torch.randn(4, 3, 5, dtype=torch.float64)
    y = copy.deepcopy(norm)(x)
    torch.testing.assert_close(copy.deepcopy(norm)(7 * x), 7 * y)
    torch.testing.assert_close(copy.deepcopy(norm)(x - 1), y - copy.deepcopy(norm)(torch.ones_like(x)))


def test_uncentred_batch_norm_learns_the_second_moment():
    norm, x = UncentredBatchNorm(2), torch.randn(64, 2) * torch.tensor([3.0, 0.5]) + 1
    for _ in range(200):
        norm(x)
    torch.testing.assert_close(norm.running_var, x.square().mean(0), rtol=1e-4, atol=1e-4)
    mean = UncentredBatchNorm(2, momentum=None)
    mean(x), mean(2 * x)
    torch.testing.assert_close(mean.running_var, 2.5 * x.square().mean(0))


def test_update_after_use_does_not_disturb_the_backward_pass():
    norm, x = UncentredBatchNorm(2), torch.randn(8, 2, requires_grad=True)
    norm(x).square().sum().backward()
    assert torch.isfinite(norm.weight.grad).all()


def test_batch_norm_without_statistics_gets_them():
    x = torch.randn(32, 3) * 4
    stripped = _stripped(nn.BatchNorm1d(3, affine=False, track_running_stats=False), x)
    torch.testing.assert_close(stripped.running_var, x.square().mean(0))
