import torch
from torch import nn

from axiograd.homogeneity.conversion.counterparts import Counterpart
from axiograd.homogeneity.conversion.strip import ModuleStripper


def test_every_kind_of_bias_goes_and_weights_stay():
    net = nn.Sequential(
        nn.Conv1d(2, 2, 1), nn.Conv2d(2, 2, 1), nn.ConvTranspose3d(2, 2, 1), nn.Linear(2, 2), nn.Bilinear(2, 2, 2)
    )
    weights = {k: v.clone() for k, v in net.state_dict().items() if k.endswith("weight")}
    stripped, edits = ModuleStripper().strip(net)
    assert set(stripped.state_dict()) == set(weights)
    assert all(torch.equal(v, weights[k]) for k, v in stripped.state_dict().items())
    assert [e.module for e in edits] == ["0", "1", "2", "3", "4"]


def test_a_shared_module_is_exchanged_everywhere_and_listed_once():
    act = nn.GELU()
    net = nn.Sequential(nn.Linear(2, 2, bias=False), act, nn.Sequential(act), act)
    stripped, edits = ModuleStripper().strip(net)
    assert stripped[1] is stripped[2][0] is stripped[3]
    assert isinstance(stripped[1], Counterpart)
    assert len(edits) == 1


def test_the_root_itself_can_be_exchanged():
    stripped, edits = ModuleStripper().strip(nn.Tanh())
    assert isinstance(stripped, Counterpart)
    assert edits[0].module == ""


def test_stripping_twice_changes_nothing_more():
    net = nn.Sequential(nn.Linear(2, 2), nn.SiLU(), nn.LayerNorm(2), nn.Sigmoid(), nn.BatchNorm1d(2))
    stripped, _ = ModuleStripper().strip(net)
    assert ModuleStripper().strip(stripped)[1] == []


def test_what_is_homogeneous_already_is_left_alone():
    net = nn.Sequential(
        nn.Linear(2, 2, bias=False), nn.ReLU(), nn.PReLU(), nn.LeakyReLU(), nn.MaxPool1d(1), nn.Dropout()
    )
    assert ModuleStripper().strip(net)[1] == []


def test_mode_dtype_and_requires_grad_are_kept():
    net = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.BatchNorm1d(2)).double().eval()
    net[0].weight.requires_grad_(requires_grad=False)
    stripped, _ = ModuleStripper().strip(net)
    assert not any(m.training for m in stripped.modules())
    assert not stripped[0].weight.requires_grad
    assert stripped(torch.randn(3, 2).double()).dtype == torch.float64
