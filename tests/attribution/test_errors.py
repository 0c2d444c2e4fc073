"""Bad input gets an error that names the thing and the remedy."""

import numpy as np
import pytest
import torch
from torch import nn

import axiograd
from axiograd.errors import (
    BaselineError,
    ConfigurationError,
    DisconnectedError,
    InputError,
    NotFiniteError,
    TargetError,
)
from support.networks import build

NETWORK, X = build("linear")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, r"target is missing.*\(3,\)"),
        (3, r"\[3\] of sample 0 is out of range.*\(3,\)"),
        (-1, "out of range"),
        (torch.tensor([0, 1, 2, 7]), r"\[7\] of sample 3"),
        (torch.tensor([0, 1]), "2 targets for 4 samples"),
        (torch.zeros(4, 3, dtype=torch.long), r"shape \(4, 3\)"),
        (torch.zeros(4), "float32"),
        (torch.ones(4, dtype=torch.bool), "bool"),
        ((0, 1), r"2 indices.*needs 1\. Baselines are given by name"),
        ([(0,), (1, 2), (0,), (0,)], "of one length"),
        ([0, 1, 2], "3 targets for 4 samples"),
        ("logit", "'logit'"),
        (0.5, "type float"),
        (True, "type bool"),
        (lambda out: out, r"returned shape \(4, 3\).*\(4,\)"),
        (lambda out: 1.0, "returned type float"),
    ],
)
def test_targets(target, message):
    with pytest.raises(TargetError, match=message):
        axiograd.InputXGradient(NETWORK).attribute(X, target)


def test_output_that_is_not_one_scalar_per_sample():
    with pytest.raises(TargetError, match="samples along the first dimension"):
        axiograd.Gradient(lambda x: x.sum(0)).attribute(X, 0)
    with pytest.raises(TargetError, match=r"returned dict.*callable"):
        axiograd.Gradient(lambda x: {"a": x}).attribute(X, 0)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.arange(3), "int64.*embeddings"),
        ((), "none given"),
        (torch.empty(0, 7), r"shape \(0, 7\)"),
        (torch.empty(4, 0), r"shape \(4, 0\)"),
        (torch.tensor(1.0), r"shape \(\)"),
        (np.ones((4, 7)), r"\(ndarray\).*torch\.from_numpy"),
        ((np.ones((4, 7)), torch.arange(4)), r"torch\.from_numpy"),
        (None, r"\(NoneType\)"),
        (1.0, r"\(float\)"),
        ((torch.ones(4, 2), torch.ones(3, 2)), "input 1 has 3 samples, input 0 has 4"),
        ({"tokens": torch.arange(3)}, "int64"),
    ],
)
def test_inputs(inputs, message):
    with pytest.raises(InputError, match=message):
        axiograd.Gradient(NETWORK).attribute(inputs, 0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("target", [0, "all"])
def test_not_finite_inputs_name_the_sample(bad, target):
    x = X.clone()
    x[2, 1] = bad
    with pytest.raises(NotFiniteError, match=r"inputs of sample 2.*[^.]\.$"):
        axiograd.InputXGradient(NETWORK).attribute(x, target)
    with pytest.raises(NotFiniteError, match="inputs of sample 2"):
        axiograd.IntegratedGradients(NETWORK, 2, internal_batch_size=4).attribute(x, target)


def test_not_finite_outputs_and_gradients_name_the_sample():
    x = torch.tensor([[1.0], [0.0], [2.0]])
    with pytest.raises(NotFiniteError, match=r"outputs of sample 1.*[^.]\.$"):
        axiograd.Gradient(lambda x: 1 / x.sum(1)).attribute(x)
    with pytest.raises(NotFiniteError, match=r"gradients of sample 1.*mask the zeros"):
        axiograd.Gradient(lambda x: x.sum(1).sqrt()).attribute(x)
    with pytest.raises(NotFiniteError, match="gradients of sample 1"):
        axiograd.Gradient(lambda x: x.sqrt().expand(-1, 2)).attribute(x, "all")


def test_large_but_finite_values_are_no_error():
    x = torch.full((2, 3), 3e38)
    assert axiograd.Gradient(lambda x: (x * 1e-38).sum(1)).attribute(x).isfinite().all()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: x.detach().sum(1), "no gradient.*detach"),
        (lambda x: torch.ones(len(x)), "no gradient"),
        (lambda x: NETWORK(x.detach())[:, 0], "does not depend on any"),
        (lambda x: NETWORK(x).argmax(1), "no gradient.*argmax"),
    ],
)
def test_outputs_without_a_way_back_to_the_input(model, message):
    for method in (axiograd.Gradient(model), axiograd.IntegratedGradients(model, 2)):
        with pytest.raises(DisconnectedError, match=message):
            method.attribute(X)


def test_an_input_that_does_not_matter_gets_zeros():
    first, second = axiograd.InputXGradient(lambda a, b: a.sum(1)).attribute((X, X * 2))
    torch.testing.assert_close(first, X)
    assert not second.any()


def test_baselines_where_a_method_has_none():
    for method in (axiograd.Gradient(NETWORK), axiograd.Saliency(NETWORK), axiograd.RandomAttribution(NETWORK)):
        with pytest.raises(BaselineError, match="no baseline other than zero"):
            method.attribute(X, 0, baselines=1.0)


def test_random_attributions_cannot_be_trained_with():
    with pytest.raises(DisconnectedError, match="RandomAttribution"):
        axiograd.RandomAttribution(NETWORK).attribute(X, 0, create_graph=True)


def test_errors_are_axiograd_errors_with_a_remedy():
    with pytest.raises(axiograd.AxiogradError, match="Give target="):
        axiograd.Gradient(nn.Identity()).attribute(X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("method", [axiograd.XGradient, axiograd.IntegratedGradients, axiograd.Gradient])
def test_inputs_in_another_precision_than_the_parameters(method, dtype):
    for network, x in (build("mlp"), build("cnn")):
        with pytest.raises(InputError, match=rf"inputs of {dtype}, its parameters being torch\.float64.*convert one"):
            method(network).attribute(x.to(dtype), 0)


@pytest.mark.parametrize("method", [axiograd.XGradient, axiograd.IntegratedGradients, axiograd.Gradient])
def test_wrong_shapes_are_input_errors_everywhere(method):
    with pytest.raises(InputError, match=r"samples of shape \(3,\).*mat1 and mat2 shapes cannot be multiplied"):
        method(NETWORK).attribute(X[:, :3], 0)
    with pytest.raises(InputError, match="mat1 and mat2 shapes cannot be multiplied"):
        axiograd.verify(NETWORK, X[:, :3])


def test_errors_of_the_users_own_kind_stay_as_they_are():
    class StopHereError(RuntimeError):
        pass

    def model(x):
        raise StopHereError("now")

    with pytest.raises(StopHereError, match="now"):
        axiograd.Gradient(model).attribute(X, 0)


def test_an_error_in_forward_has_its_line():
    def model(x):
        return x @ torch.ones(2, dtype=x.dtype)

    with pytest.raises(InputError, match=rf"test_errors\.py:{model.__code__.co_firstlineno + 1}: RuntimeError"):
        axiograd.Gradient(model).attribute(X, 0)


class TakesADict(nn.Module):
    def forward(self, batch):
        return batch["x"].square().sum(1)


@pytest.mark.parametrize("method", [axiograd.XGradient, axiograd.Gradient])
@pytest.mark.parametrize("inputs", [{"x": X}, ({"x": X},)])
def test_a_forward_that_takes_a_dict(method, inputs):
    with pytest.raises(InputError, match=r"becomes? keyword arguments.*model\(inputs\)"):
        method(TakesADict()).attribute(inputs)
    assert method(lambda **inputs: TakesADict()(inputs)).attribute({"x": X})["x"].shape == X.shape


def test_a_model_made_in_inference_mode():
    with torch.inference_mode():
        network = nn.Linear(7, 3, bias=False)
    with pytest.raises(InputError, match=r"made inside torch\.inference_mode"):
        axiograd.InputXGradient(network).attribute(X.float(), 0)


@pytest.mark.parametrize("count", [10.0, "10", True, 0, None, [3]])
def test_counts_are_whole_numbers(count):
    for make in (
        lambda: axiograd.IntegratedGradients(NETWORK, n_steps=count),
        lambda: axiograd.IntegratedGradients(NETWORK, internal_batch_size=0 if count is None else count),
        lambda: axiograd.ExpectedGradients(NETWORK, X, n_samples=count),
    ):
        with pytest.raises(ConfigurationError, match="expected a whole number of at least 1"):
            make()


def test_counts_may_be_numpys():
    few = axiograd.IntegratedGradients(NETWORK, n_steps=np.int64(3)).attribute(X, 0)
    torch.testing.assert_close(few, axiograd.IntegratedGradients(NETWORK, n_steps=3).attribute(X, 0))


def test_baselines_that_are_no_numbers():
    with pytest.raises(BaselineError, match=r"baselines 'zero' for input 0: expected None \(zero\), a number"):
        axiograd.IntegratedGradients(NETWORK).attribute(X, 0, baselines="zero")
    with pytest.raises(BaselineError, match="baseline 'zero'"):
        axiograd.XGradient(NETWORK, baseline="zero").attribute(X, 0)


def test_windows_of_occlusion_leave_no_gap():
    for arguments in ({"stride": 3}, {"window": 2, "stride": 3}):
        with pytest.raises(ConfigurationError, match="would get no attribution"):
            axiograd.Occlusion(nn.Identity(), **arguments)
    with pytest.raises(ConfigurationError, match="window=0"):
        axiograd.Occlusion(nn.Identity(), 0)


def test_a_class_is_no_model():
    for method in (axiograd.XGradient, axiograd.InputXGradient, axiograd.IntegratedGradients, axiograd.Saliency):
        with pytest.raises(ConfigurationError, match=r"the model is the class Linear: expected an instance"):
            method(nn.Linear)


@pytest.mark.parametrize("method", [axiograd.XGradient, axiograd.InputXGradient, axiograd.IntegratedGradients])
def test_a_missing_batch_dimension_is_named(method):
    linear = nn.Linear(6, 3, bias=False)
    square = nn.Linear(6, 6, bias=False)
    images = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.Flatten(), nn.Linear(288, 3, bias=False)).eval()
    for model, x in ((linear, torch.randn(6)), (square, torch.randn(6)), (images, torch.randn(3, 8, 8))):
        with pytest.raises(axiograd.AxiogradError, match=r"batch dimension is missing"):
            method(model).attribute(x, 1)
        assert method(model).attribute(x[None], 1).shape == (1, *x.shape)
