"""Many networks at a time are the networks one at a time: every step of every model, in float64."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F

from axiograd.errors import InputError, NotFiniteError
from axiograd.experiments.nhanes.data import procedural, subsamples
from axiograd.experiments.nhanes.networks import METHODS, Draws, Networks, gradients
from axiograd.experiments.nhanes.training import (
    evaluate,
    generator,
    initial,
    measure,
    roc_auc,
    train,
)
from support.nhanes_loop import objective, train_one

CASES = [("eg", 3), ("eg", 6)] + [(name, 1) for name in METHODS]
FEATURES = 20


def small_data(dtype=torch.float64):
    return subsamples(procedural(400, FEATURES), (0, 1, 2)).to(dtype)


@pytest.mark.parametrize(("name", "references"), CASES)
@pytest.mark.parametrize("weight", [1.0, 100.0])
def test_training_equals_the_plain_loop(name, references, weight):
    method, data, epochs = METHODS[name], small_data(), 8
    models = [initial(method, FEATURES, seed).double() for seed in range(len(data))]
    networks = Networks.stack(models)
    trained = train(
        networks,
        data,
        method=method,
        weight=weight,
        references=references,
        generators=[generator(seed) for seed in range(len(data))],
        epochs=epochs,
    )
    for i, model in enumerate(models):
        before = [p.detach().clone() for p in model.parameters()]
        plain = train_one(
            model,
            data.train[i],
            data.train_targets[i],
            data.val[i],
            data.val_targets[i],
            method=method,
            weight=weight,
            references=references,
            generator=generator(i),
            epochs=epochs,
        )
        for old, ours, expected in zip(before, networks.model(i), model.parameters(), strict=True):
            assert (expected - old).abs().max() > 1e-4
            torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)
        for ours, expected in zip(trained.networks.model(i), plain.state.values(), strict=True):
            torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)
        assert float(trained.val[i]) == pytest.approx(plain.val, abs=1e-12)
        assert int(trained.epoch[i]) == plain.epoch


@pytest.mark.parametrize(("name", "references"), CASES)
def test_gradients_equal_autograd(name, references):
    method, data, weight = METHODS[name], small_data(), 3.0
    models = [initial(method, FEATURES, seed).double() for seed in range(len(data))]
    networks = Networks.stack(models)
    into = networks.copy()
    for parameter in into.parameters:
        parameter.fill_(torch.nan)
    generators = [generator(i) for i in range(len(models))]
    draws = Draws.draw(generators, references, 100, torch.float64) if name == "eg" else None
    gradients(networks, into, data.train, data.train_targets, method=method, weight=weight, draws=draws)
    for i, model in enumerate(models):
        x, targets = data.train[i], data.train_targets[i]
        objective(method, weight, x, references, generator(i))(model, x, targets).backward()
        for ours, parameter in zip(into.model(i), model.parameters(), strict=True):
            torch.testing.assert_close(ours, parameter.grad, rtol=1e-12, atol=1e-12)


def test_a_prior_that_is_written_out_agrees_with_x_gradient():
    method, data = METHODS["x-gradient"], small_data()
    model = initial(method, FEATURES, 0).double()
    x, targets = data.train[0].requires_grad_(), data.train_targets[0]
    outputs = model(x).squeeze(1)
    (slope,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
    mean = (x * slope).abs().mean(0)
    gini = (mean[:, None] - mean).abs().mean() / 2 / mean.mean()
    (F.binary_cross_entropy_with_logits(outputs, targets) - 0.7 * gini).backward()
    networks = Networks.stack([model])
    into = networks.copy()
    gradients(networks, into, x.detach()[None], targets[None], method=method, weight=0.7)
    for ours, parameter in zip(into.model(0), model.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-12, atol=1e-12)


def test_measured_values_do_not_depend_on_how_many_are_trained_at_once():
    table = procedural(400, FEATURES)
    options = {"name": "eg", "weight": 1.0, "references": 2, "epochs": 3}
    one, many = (measure(table, (3, 4, 5), at_once=n, **options) for n in (1, 3))
    assert one["val"] == pytest.approx(many["val"], abs=1e-3)
    assert one["test"] == pytest.approx(many["test"], abs=1e-3)
    assert len(one["epoch"]) == 3
    assert measure(table, (3, 4, 5), at_once=3, **options)["test"] == many["test"]


def test_test_rows_are_all_others():
    table = procedural(400, FEATURES)
    method = METHODS["unregularised"]
    model = initial(method, FEATURES, 0)
    from sklearn.impute import SimpleImputer
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, x_test, y, y_test = train_test_split(table.inputs.numpy(), table.targets.numpy(), train_size=200, random_state=7)
    x, _, y, _ = train_test_split(x, y, train_size=100, random_state=7)
    scaling = make_pipeline(SimpleImputer(), StandardScaler()).fit(x)
    with torch.no_grad():
        scores = model(torch.from_numpy(scaling.transform(x_test)).float()).squeeze(1)
    networks = Networks.stack([initial(method, FEATURES, 1), model])
    assert evaluate(networks, 1, table, 7) == pytest.approx(roc_auc_score(y_test, scores.numpy()), abs=1e-6)


def by_pairs(scores, targets):
    ones, zeros = scores[targets == 1], scores[targets == 0]
    difference = (ones[:, None] - zeros).sign().double()
    return float((difference + 1).mean() / 2)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 1000))
def test_equals_the_share_of_pairs(n, levels, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (3, n), generator=generator).float()  # few levels: many ties
    targets = torch.randint(2, (3, n), generator=generator).float()
    targets[:, 0], targets[:, 1] = 0, 1
    expected = [by_pairs(s, t) for s, t in zip(scores, targets, strict=True)]
    assert roc_auc(scores, targets).tolist() == pytest.approx(expected, abs=1e-12)


def test_equals_scikit_learn_on_many_rows():
    metrics = pytest.importorskip("sklearn.metrics")
    scores = torch.randn(13_000, generator=torch.Generator().manual_seed(0)).round(decimals=2)
    targets = (scores + torch.randn(13_000, generator=torch.Generator().manual_seed(1)) > -1).float()
    assert float(roc_auc(scores, targets)) == pytest.approx(metrics.roc_auc_score(targets, scores), abs=1e-12)


def test_what_has_no_roc_auc_is_refused():
    with pytest.raises(InputError, match="one class"):
        roc_auc(torch.zeros(1, 3), torch.ones(1, 3))
    with pytest.raises(NotFiniteError, match="diverged"):
        roc_auc(torch.tensor([[0.0, torch.nan]]), torch.tensor([[0.0, 1.0]]))
