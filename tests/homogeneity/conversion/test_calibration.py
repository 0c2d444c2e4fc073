import torch
import torch.nn.functional as F
from torch import nn

from axiograd.homogeneity.conversion.calibration import calibrate, owners_of_functions, patches
from axiograd.homogeneity.conversion.example import ExampleCall
from axiograd.homogeneity.conversion.strip import ModuleStripper


class Block(nn.Module):
    def forward(self, x):
        return F.gelu(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = Block(), nn.Sequential(nn.ReLU(), Block()), nn.BatchNorm1d(3)

    def forward(self, x):
        x = self.second(self.first(self.norm(x)))
        return F.dropout(x, 0.5, self.training)


def test_owners_are_found_and_nothing_is_left_behind():
    net, _ = ModuleStripper().strip(Net())
    call = ExampleCall.ensure(net, torch.randn(4, 3))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = torch.get_rng_state()
    assert owners_of_functions(net, call) == {"first", "second.1"}
    assert not patches(net)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not net._forward_hooks
    assert not net._forward_pre_hooks


def test_calibration_keeps_each_module_in_its_mode():
    net, _ = ModuleStripper().strip(Net())
    net.train()
    net.norm.eval()
    calibrate(net, ExampleCall.ensure(net, torch.randn(4, 3)))
    assert net.training
    assert not net.norm.training


def test_a_fresh_batch_norm_is_calibrated_and_a_trained_one_is_not():
    x = torch.randn(64, 3) * 5
    fresh, _ = ModuleStripper().strip(nn.BatchNorm1d(3))
    calibrate(fresh, ExampleCall.ensure(fresh, x))
    torch.testing.assert_close(fresh.running_var, x.square().mean(0))
    trained = nn.BatchNorm1d(3)
    trained(torch.randn(64, 3))
    stripped, _ = ModuleStripper().strip(trained)
    before = stripped.running_var.clone()
    calibrate(stripped, ExampleCall.ensure(stripped, x))
    assert torch.equal(stripped.running_var, before)
