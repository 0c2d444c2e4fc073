import torch
from torch import nn

from axiograd.homogeneity.conversion import Edit, to_xdnn


def test_the_summary_groups_what_is_alike():
    net = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3), nn.Linear(3, 3))
    conversion = to_xdnn(net, torch.randn(2, 3))
    lines = str(conversion).splitlines()
    assert lines[0] == "Sequential by strip: X-DNN of degree 1, exact"
    assert lines[1] == "state dict: 3 entries taken out, 1 new, the others as they were"
    assert lines[2] == "4 edits:"
    assert [" ".join(line.split()) for line in lines[3:]] == [
        "3× Linear with bias → Linear without bias 0 … 3",
        "1× GELU → TwoSlopes 1",
    ]


def test_an_edit_reads_as_a_sentence():
    assert str(Edit("", "add", "nothing", "net.py:3")) == "the model: add → nothing (net.py:3)"
    assert str(Edit("head", "a", "b")) == "head: a → b"
