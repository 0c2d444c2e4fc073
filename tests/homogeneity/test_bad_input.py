"""Whatever comes in: a clear error or a right answer."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from axiograd.errors import BaselineError, InputError, NotFiniteError
from axiograd.homogeneity import certify, verify
from support.certificates.models import MLP, Encoder

X = torch.randn(4, 6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype):
    model = MLP(bias=False).to(dtype)
    assert certify(model, X.to(dtype)).degree == 1
    assert verify(model, X.to(dtype)).ok
    assert next(model.parameters()).dtype == dtype


def test_meta_device():
    model = MLP(bias=False).to("meta")
    assert certify(model, X.to("meta")).degree == 1
    biased = certify(MLP(bias=True).to("meta"), X.to("meta"))
    assert len(biased.violations) == 2
    with pytest.raises(InputError, match="meta device"):
        verify(model, X)


def test_lazy_parameters():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    for run in (certify, verify):
        with pytest.raises(InputError, match=r"0\.weight.*run the model once"):
            run(model, X)


def test_scripted_modules():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.trace(MLP(bias=False), X)
    for run in (certify, verify):
        with pytest.raises(InputError, match="TorchScript"):
            run(scripted, X)


def test_compiled_modules_are_unpacked():
    model = MLP(bias=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(model)
    assert certify(compiled, X).degree == 1
    assert certify(nn.DataParallel(model), X).degree == 1


def test_quantised_modules():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(MLP(bias=False), {nn.Linear}, dtype=torch.qint8)
    certificate = certify(model, X)
    assert not certificate.ok
    assert certificate.violations


def test_no_floating_point_input():
    with pytest.raises(InputError, match=r"no floating-point input.*inputs_embeds"):
        certify(nn.Embedding(5, 3), torch.arange(4))
    with pytest.raises(InputError, match="no floating-point input"):
        certify(MLP(bias=False), ())


def test_wrong_types():
    with pytest.raises(InputError, match="type str"):
        certify(MLP(bias=False), "x")
    with pytest.raises(InputError, match="is not a model"):
        certify(3, X)
    with pytest.raises(InputError, match="names no input"):
        certify(MLP(bias=False), X, wrt=2)
    with pytest.raises(InputError, match="not a floating-point"):
        certify(lambda x, i: x, (X, torch.arange(4)), wrt=1)
    with pytest.raises(BaselineError, match="does not broadcast"):
        certify(MLP(bias=False), X, baseline=torch.ones(5))
    with pytest.raises(InputError, match="layout"):
        certify(MLP(bias=False), X.to_sparse())


def test_a_model_that_fails_by_itself():
    with pytest.raises(InputError, match=r"fails on samples of shape \(5,\), at .*models\.py:\d+: RuntimeError"):
        certify(MLP(bias=False), torch.randn(4, 5))


def test_not_finite():
    with pytest.raises(NotFiniteError):
        verify(MLP(bias=False), X * float("nan"))
    with pytest.raises(NotFiniteError):
        verify(lambda x: x / 0, X)


def test_calls_that_leave_pytorch():
    certificate = certify(lambda x: torch.from_numpy(x.numpy() * 2), X)
    assert [v.kind for v in certificate.violations] == ["export"]


def test_frozen_encoder_on_the_fast_path():
    model = Encoder().eval().requires_grad_(requires_grad=False)
    with torch.no_grad():
        certificate = certify(model, torch.randn(2, 5, 8))
    assert "position" in {name for v in certificate.violations for name in v.parameters}
    assert not any(v.kind == "rule" for v in certificate.violations)
    assert torch.backends.mha.get_fastpath_enabled()


def test_lstm_is_refused_and_relu_rnn_is_not():
    refused = certify(nn.LSTM(6, 3), X)
    assert {v.op for v in refused.violations} == {"aten.lstm"}
    assert certify(nn.RNN(6, 3, nonlinearity="relu", bias=False), X).degree == 1
    assert not certify(nn.RNN(6, 3, nonlinearity="relu"), X).ok


def test_single_numbers_and_empty_batches():
    assert certify(lambda x: 2 * x, torch.tensor(3.0)).degree == 1
    assert certify(MLP(bias=False), X[:0]).degree == 1


def test_inference_mode_and_no_grad():
    with torch.no_grad():
        assert certify(MLP(bias=False), X).degree == 1
        assert verify(MLP(bias=False), X).ok
    model = MLP(bias=False)
    with torch.inference_mode():
        inside = torch.randn(4, 6)
        assert certify(model, inside).degree == 1
        assert verify(model, inside).ok
    assert certify(MLP(bias=False), inside).degree == 1


def test_functional_code_and_methods():
    weight = torch.randn(3, 6, requires_grad=True)
    assert certify(lambda x: F.linear(x, weight), X).degree == 1
    assert certify(MLP(bias=False).forward, X).degree == 1
    inner = MLP(bias=True)
    named = certify(lambda x: inner(x) * 2, X).violations[0]
    assert named.parameters == ("inner.hidden.bias",)
    assert named.module == "inner.hidden"
