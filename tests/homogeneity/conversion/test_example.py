import pytest
import torch
from torch import nn

from axiograd.errors import ConversionError, InputError
from axiograd.homogeneity.conversion import to_xdnn
from axiograd.homogeneity.conversion.convert import ensure_module

X = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.tensor([1, 2]), "no floating-point"),
        (torch.tensor([[float("nan")]]), "NaN or infinite"),
        (torch.empty(0, 3), "empty"),
        (torch.ones(2, 3, device="meta"), "meta device"),
        ("x", "type str"),
    ],
)
def test_inputs_that_teach_nothing_are_refused(inputs, message):
    with pytest.raises(InputError, match=message):
        to_xdnn(nn.ReLU(), inputs)


@pytest.mark.filterwarnings(r"ignore:`torch\.jit\.trace\w*` is deprecated")
@pytest.mark.parametrize("how", ["strip", "lift"])
def test_modules_that_cannot_be_converted_say_why(how):
    traced = torch.jit.trace(nn.Linear(3, 2), X)
    for model, message in (
        (traced, "scripted or traced"),
        (nn.Sequential(nn.ReLU(), traced), r"1 \(.*scripted or traced"),
        (nn.LazyLinear(2), "weight is lazy"),
        (nn.Linear(3, 2, device="meta"), "weight is on the meta device"),
        (torch.relu, "nn.Module"),
    ):
        with pytest.raises(ConversionError, match=message):
            to_xdnn(model, X, how=how)


@pytest.mark.filterwarnings("ignore")
def test_quantised_modules_say_why():
    quantised = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 2)), {nn.Linear})
    with pytest.raises(ConversionError, match=r"0 \(Linear\) is quantised"):
        to_xdnn(quantised, X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wrappers_are_looked_through():
    inner = nn.Linear(3, 2)
    assert ensure_module(torch.compile(inner, backend="eager")) is inner
    assert ensure_module(nn.DataParallel(inner)) is inner


@pytest.mark.parametrize("how", ["strip", "lift"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_half_precision(how, dtype):
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2)).to(dtype).eval()
    conversion = to_xdnn(net, torch.randn(4, 3).to(dtype), how=how)
    assert conversion.certificate.degree == 1.0
    assert conversion.model(X.to(dtype)).dtype == dtype
    assert all(p.dtype == dtype for p in conversion.model.parameters())
