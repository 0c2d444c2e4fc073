import pytest
import torch
from torch import nn

from axiograd.errors import AxiogradError, InputError
from axiograd.homogeneity.conversion import to_xdnn

X = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.tensor([1, 2]), "no floating-point"),
        (torch.tensor([[float("nan")]]), "NaN or infinite"),
        (torch.empty(0, 3), "empty"),
        ("x", "type str"),
    ],
)
def test_inputs_that_teach_nothing_are_refused(inputs, message):
    with pytest.raises(InputError, match=message):
        to_xdnn(nn.ReLU(), inputs, how="strip")


@pytest.mark.filterwarnings(r"ignore:`torch\.jit\.trace\w*` is deprecated")
@pytest.mark.parametrize("how", ["strip", "lift"])
def test_modules_that_cannot_be_converted_say_why(how):
    for model, message in (
        (torch.jit.trace(nn.Linear(3, 2), X), "TorchScript"),
        (nn.LazyLinear(2), "without a shape yet: weight"),
        (nn.Linear(3, 2, device="meta"), "itself fails on the example inputs"),
        (torch.relu, "nn.Module"),
    ):
        with pytest.raises(AxiogradError, match=message):
            to_xdnn(model, X, how=how)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wrappers_are_looked_through():
    for wrap in (lambda model: torch.compile(model, backend="eager"), nn.DataParallel):
        assert isinstance(to_xdnn(wrap(nn.Linear(3, 2)), X, how="strip").model, nn.Linear)


@pytest.mark.parametrize("how", ["strip", "lift"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_half_precision(how, dtype):
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2)).to(dtype).eval()
    conversion = to_xdnn(net, torch.randn(4, 3).to(dtype), how=how)
    assert conversion.certificate.degree == 1.0
    assert conversion.model(X.to(dtype)).dtype == dtype
    assert all(p.dtype == dtype for p in conversion.model.parameters())
