"""The shapes of calls: targets, several inputs, keyword inputs, Hugging Face models, deltas."""

import pytest
import torch
import transformers
from torch import nn

import axiograd
from support.networks import build

NETWORK, X = build("linear")


def test_targets_that_mean_the_same_agree():
    method = axiograd.InputXGradient(NETWORK)
    expected = method.attribute(X, 2)
    for target in (torch.tensor(2), torch.tensor([2]), torch.full((4,), 2), [2, 2, 2, 2], (2,), [(2,)] * 4):
        torch.testing.assert_close(method.attribute(X, target), expected)
    torch.testing.assert_close(method.attribute(X, lambda out: out[:, 2]), expected)


def test_per_sample_targets_of_outputs_with_more_dimensions():
    def model(x):
        return torch.einsum("bi,bj->bij", x, x**2)

    x = torch.randn(2, 3)
    attributed = axiograd.Gradient(model).attribute(x, [(0, 1), (2, 2)])
    expected = torch.zeros(2, 3)
    expected[0, 0], expected[0, 1] = x[0, 1] ** 2, 2 * x[0, 0] * x[0, 1]
    expected[1, 2] = 3 * x[1, 2] ** 2
    torch.testing.assert_close(attributed, expected)
    assert axiograd.Gradient(model).attribute(x, "all").shape == (9, 2, 3)
    torch.testing.assert_close(
        axiograd.Gradient(model).attribute(x, "all")[5], axiograd.Gradient(model).attribute(x, (1, 2))
    )


def test_none_for_outputs_of_one_scalar_per_sample():
    x = torch.randn(3, 2)
    for model in (lambda x: x.sum(1), lambda x: x.sum(1, keepdim=True), lambda x: x.sum(1)[:, None, None]):
        torch.testing.assert_close(axiograd.InputXGradient(model).attribute(x), x)
    torch.testing.assert_close(axiograd.InputXGradient(lambda x: x.sum()).attribute(x[:1]), x[:1])


def test_integer_tensors_are_passed_through():
    def model(x, index, scale):
        return x.gather(1, index).squeeze(1) * scale

    x, index = torch.randn(3, 4), torch.tensor([[0], [2], [1]])
    attributions = axiograd.InputXGradient(model).attribute((x, index, 2.0))
    torch.testing.assert_close(attributions[0].sum(1), 2 * x.gather(1, index).squeeze(1))
    assert attributions[1:] == (None, None)
    by_name = axiograd.InputXGradient(model).attribute({"x": x, "index": index, "scale": 2.0})
    assert list(by_name) == ["x"]
    assert torch.equal(by_name["x"], attributions[0])


@pytest.mark.parametrize("additional", [(torch.tensor(2.0), 3), {"gain": torch.tensor(2.0), "power": 3}])
def test_additional_forward_args(additional):
    def model(x, gain, power):
        return gain * (x**power).sum(1)

    x = torch.randn(3, 4)
    torch.testing.assert_close(
        axiograd.InputXGradient(model).attribute(x, additional_forward_args=additional), 6 * x**3
    )


def test_one_additional_argument_needs_no_tuple():
    x = torch.randn(3, 4)
    attributions = axiograd.InputXGradient(lambda x, a: (x * a).sum(1)).attribute(x, additional_forward_args=x)
    torch.testing.assert_close(attributions, x * x)


def test_delta_is_the_sum_of_attributions_minus_the_difference_of_outputs():
    method = axiograd.InputXGradient(NETWORK)
    attributions, delta = method.attribute(X, 1, return_convergence_delta=True)
    with torch.no_grad():
        difference = NETWORK(X)[:, 1] - NETWORK(torch.zeros_like(X))[:, 1]
    torch.testing.assert_close(delta, attributions.sum(1) - difference)
    result = method.completeness(X, 1)
    assert result.scale == pytest.approx(float(difference.square().mean().sqrt()))
    torch.testing.assert_close(result.relative, delta.abs() / result.scale)
    assert "baseline: zero" in str(result)
    _, every = method.attribute(X, "all", return_convergence_delta=True)
    torch.testing.assert_close(every[1], delta)


def test_delta_sums_over_all_inputs():
    a, b = torch.randn(2, 3, 5, dtype=torch.float64)
    method = axiograd.IntegratedGradients(lambda a, b: (a * b**2).sum(1), 8)
    attributions, delta = method.attribute((a, b), return_convergence_delta=True)
    torch.testing.assert_close(sum(attributions).sum(1), (a * b**2).sum(1))
    assert delta.abs().max() < 1e-12


def test_one_feature_per_sample():
    x = torch.randn(3, dtype=torch.float64)
    attributions, delta = axiograd.InputXGradient(lambda x: 2 * x).attribute(x, return_convergence_delta=True)
    torch.testing.assert_close(attributions, 2 * x)
    assert delta.abs().max() < 1e-12


@pytest.mark.parametrize("target", [None, 1, "all"])
def test_log_gradient_is_the_gradient_of_log_probabilities(target):
    x = X.clone().requires_grad_()
    log_p = torch.log_softmax(NETWORK(x), 1)
    scores = {None: log_p.sum(1), 1: log_p[:, 1]}
    found = axiograd.LogGradient(NETWORK).attribute(X, target)
    for index, score in {None: scores, 1: scores, "all": dict(enumerate(log_p.unbind(1)))}[target].items():
        if target in (index, "all"):
            expected = torch.autograd.grad(score.sum(), x, retain_graph=True)[0]
            torch.testing.assert_close(found[index] if target == "all" else found, expected)


def test_log_gradient_of_one_logit_is_the_papers():
    network = nn.Sequential(NETWORK, nn.Linear(3, 1, dtype=torch.float64))
    x = X.clone().requires_grad_()
    p = torch.sigmoid(network(x))
    expected = torch.autograd.grad((torch.log(p) + torch.log(1 - p)).sum(), x)[0]
    torch.testing.assert_close(axiograd.LogGradient(network).attribute(X), expected)


def test_random_attributions_have_mean_zero_and_variance_one():
    method = axiograd.RandomAttribution(lambda x: x.sum(1), generator=torch.Generator().manual_seed(0))
    draws = method.attribute(torch.zeros(1000, 100))
    assert abs(float(draws.mean())) < 4 / 1e5**0.5
    assert abs(float(draws.var()) - 1) < 4 * (2 / 1e5) ** 0.5


@pytest.fixture(scope="module")
def bert():
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=3
    )
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(config).eval()


@pytest.mark.parametrize("create_graph", [True, False])
def test_embeddings_of_a_hugging_face_model(bert, create_graph):
    tokens = torch.tensor([[1, 2, 3], [4, 5, 0]])
    inputs = {
        "inputs_embeds": bert.get_input_embeddings()(tokens).detach(),
        "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    }
    explanation = axiograd.InputXGradient(bert).explain(inputs, target=1, create_graph=create_graph)
    attributions = explanation.attributions["inputs_embeds"]
    assert explanation.outputs.logits.shape == (2, 3)
    x = inputs["inputs_embeds"].clone().requires_grad_()
    logits = bert(inputs_embeds=x, attention_mask=inputs["attention_mask"]).logits
    expected = x * torch.autograd.grad(logits[:, 1].sum(), x)[0]
    torch.testing.assert_close(attributions, expected)
    assert not attributions[1, 2].any()  # the padded token
    if create_graph:
        attributions.square().sum().backward()
        assert bert.classifier.weight.grad.abs().sum() > 0


def test_pixel_values_of_a_hugging_face_model():
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    network = transformers.ViTForImageClassification(config).eval()
    pixels = torch.randn(2, 3, 8, 8)
    method = axiograd.IntegratedGradients(network, 32)
    result = method.completeness({"pixel_values": pixels}, target=0)
    assert result.relative.max() < 1e-3
    assert method.attribute({"pixel_values": pixels}, target=0)["pixel_values"].shape == pixels.shape
