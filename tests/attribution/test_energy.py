"""Explanations of lifted networks say how much of each score is shared out by energy alone."""

import torch
from torch import nn

import axiograd


def test_the_share_of_a_bias_is_what_it_is():
    torch.manual_seed(0)
    f, x = nn.Linear(4, 2), torch.randn(1, 4)
    lifted = axiograd.to_xdnn(f, x, how="lift").model
    explanation = axiograd.XGradient(lifted).explain(x, target=1)
    torch.testing.assert_close(explanation.energy, (f.bias[1] / f(x)[:, 1]).detach(), rtol=1e-4, atol=1e-5)
    share = float(explanation.energy)
    assert f"{share:.0%} of the scores, for the network is lifted" in explanation._repr_html_()


def test_other_networks_have_no_such_part():
    model, x = nn.Linear(4, 2, bias=False), torch.randn(2, 4)
    explanation = axiograd.XGradient(model).explain(x, target=1)
    assert explanation.energy is None
    assert "energy" not in explanation._repr_html_()
