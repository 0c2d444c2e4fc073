import copy

import pytest
import torch
from torch import nn

from axiograd.errors import ConfigurationError, ConversionError
from axiograd.homogeneity.conversion import to_xdnn


def _net():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(), nn.BatchNorm1d(8), nn.Linear(8, 2))


@pytest.mark.parametrize("how", ["strip", "lift"])
def test_the_argument_is_never_modified(how):
    net, x = _net().train(), torch.randn(6, 4)
    net[3].eval()
    net[0].weight.grad = torch.ones_like(net[0].weight)
    before, text = copy.deepcopy(net.state_dict()), str(net)
    state, modes = torch.get_rng_state(), [m.training for m in net.modules()]
    to_xdnn(net, x, how=how)
    assert str(net) == text
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in net.modules()] == modes
    assert net[0].weight.grad.unique().item() == 1


@pytest.mark.parametrize("how", ["strip", "lift"])
def test_mode_is_that_of_the_argument(how):
    net = _net().eval()
    assert not any(m.training for m in to_xdnn(net, torch.randn(6, 4), how=how).model.modules())


def test_unknown_ways_and_misplaced_options_are_refused():
    with pytest.raises(ConfigurationError, match="choose 'auto', 'strip', 'carry', 'calibrate' or 'lift'"):
        to_xdnn(_net(), torch.randn(6, 4), how="squash")
    with pytest.raises(ConfigurationError, match="belong to how='lift'"):
        to_xdnn(_net(), torch.randn(6, 4), radius=1.0, how="strip")


def test_a_model_that_cannot_be_copied_says_so():
    net = _net()
    net.generator = (i for i in range(3))
    with pytest.raises(ConversionError, match="cannot be deep-copied"):
        to_xdnn(net, torch.randn(6, 4), how="strip")


def test_additional_arguments_are_constants():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x, factor, flag):
            return self.linear(x) * factor if flag else x

    x = torch.randn(4, 3)
    conversion = to_xdnn(Scaled(), x, additional_forward_args=(torch.tensor(2.0), True), how="strip")
    assert conversion.certificate.degree == 1.0
    torch.testing.assert_close(conversion.model(3 * x, 2.0, True), 3 * conversion.model(x, 2.0, True))


def test_the_summary_groups_what_is_alike():
    net = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3), nn.Linear(3, 3))
    conversion = to_xdnn(net, torch.randn(2, 3), how="strip")
    lines = str(conversion).splitlines()
    assert lines[0] == "Sequential by strip, answers kept: not measured (2 examples; 32 or more are needed)"
    assert lines[1] == "X-DNN of degree 1, exact"
    assert lines[2] == "state dict: 3 entries removed, 1 added, the others unchanged"
    assert lines[3] == "4 edits:"
    assert [" ".join(line.split()) for line in lines[4:]] == [
        "3× Linear with bias → Linear without bias 0 … 3",
        "1× GELU → two slopes 1",
    ]
    assert str(conversion.edits[0]) == "0: Linear with bias → Linear without bias"
