"""Proofs that are remembered with their models: when one is made, when it is made anew, and that nothing is kept alive.

The oracle is Integrated Gradients by quadrature on the model as it is then.
"""

import gc
import warnings
import weakref

import pytest
import torch
from torch import nn

import axiograd
from axiograd.errors import AxiogradError, NotHomogeneousError
from support.oracles import integrated_gradients_at_once


def _traces(monkeypatch):
    from axiograd.homogeneity import certification

    made, original = [], certification.trace
    monkeypatch.setattr(certification, "trace", lambda *a, **k: made.append(1) or original(*a, **k))
    return made


def test_one_proof_covers_every_batch_size(monkeypatch):
    made = _traces(monkeypatch)
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
    method = axiograd.XGradient(model)
    for batch in (*range(2, 40), 2, 17):
        method.attribute(torch.randn(batch, 6))
    assert len(made) == 1
    method.attribute(torch.randn(1, 6))
    assert len(made) == 2  # one sample is traced as a size of its own
    method.attribute(torch.randn(1, 6).double().float())
    assert len(made) == 2


def test_a_function_is_proved_once(monkeypatch):
    made = _traces(monkeypatch)
    model = nn.Linear(6, 1, bias=False)
    method = axiograd.XGradient(lambda x: model(x))  # noqa: PLW0108 - a function
    for _ in range(5):
        method.attribute(torch.randn(3, 6))
    assert len(made) == 1


def test_training_does_not_prove_again_and_modes_do(monkeypatch):
    made = _traces(monkeypatch)
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1, bias=False))
    method, x = axiograd.XGradient(model), torch.randn(4, 6)
    for _ in range(4):
        method.explain(x, create_graph=True).attributions.square().sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(0.01 * p.grad)
    assert len(made) == 1
    model.eval()
    method.attribute(x)
    assert len(made) == 2


def test_a_model_that_counts_its_calls_is_not_proved_every_time(monkeypatch):
    made = _traces(monkeypatch)

    class Counting(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            self.last = x
            return super().forward(x)

    method = axiograd.XGradient(Counting(6, 1, bias=False))
    for _ in range(10):
        method.attribute(torch.randn(3, 6))
    assert len(made) <= 3


def test_one_proof_is_shared_by_objects_methods_and_losses(monkeypatch):
    made = _traces(monkeypatch)
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    x, target = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
    for _ in range(3):
        axiograd.XGradient(model).attribute(x, target=0)
        loss = axiograd.AttributionLoss(nn.functional.cross_entropy, axiograd.priors.L1(), method=axiograd.XGradient)
        loss(model, x, target).total.backward()
    assert len(made) == 1
    axiograd.certify(model, x)
    assert len(made) == 2  # certify proves anew


class Threshold(nn.Module):
    """Σ W·x·[W·x > t]."""

    def __init__(self, level):
        super().__init__()
        self.linear = nn.Linear(6, 16, bias=False, dtype=torch.float64)
        self.register_buffer("level", torch.tensor(level, dtype=torch.float64))

    def forward(self, x):
        h = self.linear(x)
        return (h * (h > self.level)).sum(1)


def test_a_threshold_that_moves_is_proved_anew():
    model, x = Threshold(0.0), torch.randn(5, 6, dtype=torch.float64)
    method = axiograd.XGradient(model)
    oracle = integrated_gradients_at_once(model, x, torch.zeros_like(x), 512)
    torch.testing.assert_close(method.attribute(x), oracle, rtol=1e-6, atol=1e-9)
    model.level.fill_(0.3)
    with pytest.raises(NotHomogeneousError, match="not certified"):
        method.attribute(x)
    model.level = torch.zeros((), dtype=torch.float64)  # another tensor in its place
    torch.testing.assert_close(method.attribute(x), oracle, rtol=1e-6, atol=1e-9)


def test_a_bias_that_is_no_longer_zero_is_named():
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1, bias=False)), torch.randn(4, 6)
    nn.init.zeros_(model[0].bias)
    method = axiograd.XGradient(model)
    method.attribute(x)
    nn.init.ones_(model[0].bias)
    with pytest.raises(NotHomogeneousError, match=r"0\.bias"):
        method.attribute(x)


def test_a_layer_that_is_replaced_is_proved_anew():
    model, x = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False)), torch.randn(4, 6)
    method = axiograd.XGradient(model)
    method.attribute(x)
    model[2] = nn.Linear(8, 1)
    with pytest.raises(NotHomogeneousError, match=r"2\.bias"):
        method.attribute(x)


def test_a_proof_keeps_no_model_alive():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2, bias=False))
    nn.init.zeros_(model[0].bias)
    method, scale = axiograd.XGradient(model), torch.ones(2)
    method.attribute(torch.randn(4, 6), target=0)
    method.attribute(torch.randn(4, 6), target=lambda out: (out * scale).sum(1))
    parts = [weakref.ref(part) for part in (model, model[0], model[0].weight)]
    del model, method
    gc.collect()
    assert [part() for part in parts] == [None, None, None]


def test_a_degree_that_is_trained_is_refused():
    class Power(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Linear(4, 3, bias=False)
            self.p = nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return (self.w(x).abs() ** self.p).sum(1)

    model, x = Power(), torch.randn(5, 4)
    method = axiograd.XGradient(model)
    torch.testing.assert_close(method.attribute(x).sum(1), model(x).detach())
    with pytest.raises(AxiogradError, match="depends on the trainable p"):
        method.explain(x, create_graph=True)
    with torch.no_grad():
        model.p.fill_(3.0)
    torch.testing.assert_close(method.attribute(x).sum(1), model(x).detach())
    model.p.requires_grad_(False)
    axiograd.XGradient(model).explain(x, create_graph=True).attributions.sum().backward()


class Sum(nn.Module):
    """|Wx|^p with an exponent that is a sum of many numbers."""

    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 3, bias=False)
        self.p = nn.Parameter(torch.tensor(1.0))
        for i in range(5):
            self.register_buffer(f"part{i}", torch.tensor(0.2))

    def forward(self, x):
        exponent = self.part0 + self.part1 + self.part2 + self.part3 + self.part4 + self.p
        return (self.w(x).abs() ** exponent).sum(1)


def test_one_trained_number_among_many_in_an_exponent():
    x = torch.randn(5, 4)
    with pytest.raises(AxiogradError, match="depends on the trainable p"):
        axiograd.XGradient(Sum()).explain(x, create_graph=True)


def test_an_exponent_that_a_function_closes_over():
    p, x = nn.Parameter(torch.tensor(2.0)), torch.randn(5, 4)

    def model(x):
        return (x.abs() ** p).sum(1)

    with pytest.raises(AxiogradError, match="depends on the trainable"):
        axiograd.XGradient(model).explain(x, create_graph=True)
    p.requires_grad_(False)
    axiograd.XGradient(model).explain(x.requires_grad_(), create_graph=True)


def test_an_exponent_that_is_trained_later():
    model, x = Sum(), torch.randn(5, 4)
    model.p.requires_grad_(False)
    method = axiograd.XGradient(model)
    method.explain(x, create_graph=True)
    model.p.requires_grad_(True)
    with pytest.raises(AxiogradError, match="depends on the trainable p"):
        method.explain(x, create_graph=True)


class QKNorm(nn.Module):
    """An attention block with normalised queries and keys, as large vision models have it."""

    def __init__(self, eps=1e-6):
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(16, 48, bias=False)
        self.q, self.k = (nn.LayerNorm(16, eps=eps, elementwise_affine=False) for _ in range(2))
        self.head = nn.Linear(16, 1, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        attention = (self.q(q) @ self.k(k).mT / 4).softmax(-1)
        return self.head((attention @ v).mean(1))


@pytest.mark.parametrize(("std", "told"), [(4.0, False), (0.1, True), (0.02, True)])
def test_epsilons_are_measured_along_the_path(std, told):
    model = QKNorm(eps=1e-5).double()
    x = std * torch.randn(3, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    certificate = axiograd.certify(model, x)
    assert certificate.ok
    assert not certificate.exact
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = axiograd.XGradient(model).attribute(x)
    oracle = integrated_gradients_at_once(lambda x: model(x)[:, 0], x, torch.zeros_like(x), 128)
    off = float(((found - oracle).abs().flatten(1).amax(1) / oracle.abs().flatten(1).amax(1)).max())
    assert (off > 0.01) is told, off
    assert any("single attributions" in str(w.message) for w in caught) is told
    # The certificate's number is of the same size, on the first two samples.
    assert off / 5 < certificate.error < 2 * off
