"""What a conversion keeps of the answers, and the choice by it, against a recount."""

import numpy as np
import pytest
import torch
from torch import nn

from axiograd import to_xdnn
from axiograd.errors import ConversionError
from axiograd.homogeneity.conversion import ConversionWarning


def _classifier(bias, *, seed=0):
    """A network with a few classes on its data, and biases of this size."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 4)).eval()
    nn.init.normal_(net[2].weight)  # so that the data get several classes
    for layer in (net[0], net[2]):
        nn.init.normal_(layer.bias, std=bias)
    return net


def test_what_is_kept_is_counted_on_held_out_examples():
    net, x = _classifier(0.3), torch.randn(300, 40)
    with pytest.warns(ConversionWarning, match=r"by strip gives other answers.*kept: \d+ of 75 held out"):
        conversion = to_xdnn(net, x, how="strip")
    held = torch.linspace(0, 299, 75).round().long()
    same = (net(x[held]).argmax(1) == conversion.model(x[held]).argmax(1)).sum()
    assert (conversion.kept.same, conversion.kept.of) == (int(same), 75)
    assert conversion.kept.share == int(same) / 75
    assert str(conversion).startswith(f"Sequential by strip, answers kept: {int(same)} of 75 held out")


def test_the_constants_of_a_conversion_do_not_see_the_examples_that_judge():
    net, x = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)), torch.randn(64, 6)
    held = torch.linspace(0, 63, 16).round().long()
    other = x.clone()
    other[held] *= 10
    lifted = [to_xdnn(net, examples, how="lift").model.radius for examples in (x, x)]
    assert lifted[0] == lifted[1]
    with pytest.warns(ConversionWarning):
        assert to_xdnn(net, other, how="lift").model.radius == lifted[0]


def test_one_output_is_judged_by_concordance():
    net, x = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1)), torch.randn(64, 6)
    conversion = to_xdnn(net, x, how="calibrate")
    held = torch.linspace(0, 63, 16).round().long()
    a, b = (each(x[held])[:, 0].detach().double().numpy() for each in (net, conversion.model))
    wanted = 2 * np.cov(a, b, ddof=0)[0, 1] / (a.var() + b.var() + (a.mean() - b.mean()) ** 2)
    assert conversion.kept.same is None
    assert conversion.kept.correlation == pytest.approx(wanted, abs=1e-5)
    assert "concordance" in str(conversion.kept)


def test_a_single_logit_that_has_lost_its_threshold_is_not_kept():
    """Correlation 1, and every third answer is another one."""
    net, x = nn.Linear(6, 1), torch.randn(200, 6)
    nn.init.constant_(net.bias, 1.0)
    with pytest.warns(ConversionWarning, match="concordance"):
        assert not to_xdnn(net, x, how="strip").kept.enough


def test_auto_takes_the_first_form_that_keeps_the_answers():
    x = torch.randn(300, 40)
    assert to_xdnn(_classifier(0.001), x).how == "strip"
    calibrated = to_xdnn(_classifier(1.0), x)
    assert calibrated.how == "calibrate"
    assert calibrated.kept.enough
    assert calibrated.tried[0][0] == "strip"
    normed = nn.Sequential(nn.Linear(40, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 4)).eval()
    x = x / x.square().mean(1, keepdim=True).sqrt()
    lifted = to_xdnn(normed, x)
    assert lifted.how == "lift"
    assert lifted.kept.same == lifted.kept.of
    assert "not possible" in dict(lifted.tried)["calibrate"]


@pytest.mark.parametrize("examples", [torch.randn(8, 40), torch.randn(1, 40).repeat(64, 1)])
def test_auto_asks_for_examples_that_can_tell(examples):
    with pytest.raises(ConversionError, match=r"how='auto' compares .*pass real examples.*how='carry' or how='strip'"):
        to_xdnn(_classifier(1.0), examples)


def test_an_x_dnn_needs_no_examples_to_stay_one():
    net = nn.Sequential(nn.Linear(6, 24, bias=False), nn.ReLU(), nn.Linear(24, 4, bias=False))
    conversion = to_xdnn(net, torch.randn(2, 6))
    assert conversion.how == "strip"
    assert conversion.edits == ()


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1)])
def test_probabilities_are_sent_back_for_their_logits(last):
    with pytest.raises(ConversionError, match="Convert the network that returns its logits"):
        to_xdnn(nn.Sequential(*_classifier(1.0), last), torch.randn(64, 40))


def test_calibration_images_that_were_held_out_judge():
    net, x = _classifier(0.3), torch.randn(300, 40)
    conversion = to_xdnn(net, x[:2], how="calibrate", calibration=x)
    same = (net(x[9::10]).argmax(1) == conversion.model(x[9::10]).argmax(1)).sum()
    assert (conversion.kept.same, conversion.kept.of) == (int(same), 30)
