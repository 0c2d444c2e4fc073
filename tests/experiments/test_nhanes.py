"""Networks stacked and trained by vmap are the networks trained one at a time: `AttributionLoss`, Adam and a loop."""

import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from torch.nn import functional as F

from axiograd import AttributionLoss, ExpectedGradients, Gradient, LogGradient, XGradient
from axiograd.priors import Gini
from experiments import nhanes

CASES = [("Unreg", 1), ("Unreg w/o bias", 1), ("RRR", 1), ("Grad", 1), ("X-Gradient w/o bias", 1), ("EG", 1), ("EG", 3)]
METHODS = {"RRR": LogGradient, "Grad": Gradient, "X-Gradient w/o bias": XGradient, "EG": ExpectedGradients}
WEIGHT, EPOCHS = 1.0, 6


def task(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs.squeeze(1), targets)


def train_one(model, parts, name, references, seed):
    """The weights and the ROC-AUC of the epoch that validates best."""
    (x, y), (x_val, y_val) = parts
    loss = None
    if name in METHODS:
        drawn = {"references": x, "n_samples": references, "generator": torch.Generator().manual_seed(seed)}
        given = drawn if name == "EG" else {}
        loss = AttributionLoss(task, Gini(), WEIGHT, METHODS[name], outputs=None, **given)
    optimizer = torch.optim.Adam(model.parameters(), lr=nhanes.LEARNING_RATE)
    best, state = -1.0, {}
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        (task(model(x), y) if loss is None else loss(model, x, y).total).backward()
        optimizer.step()
        with torch.no_grad():
            auc = roc_auc_score(y_val, model(x_val).squeeze(1))
        if auc > best:
            best, state = auc, {key: value.detach().clone() for key, value in model.state_dict().items()}
    return state, best


@pytest.mark.parametrize(("name", "references"), CASES)
def test_stacked_networks_train_as_one_at_a_time(name, references):
    data = nhanes.procedural(400, 20)
    parts = [[(x.double(), y.double()) for x, y in nhanes.subsample(data, i)[:2]] for i in range(2)]
    networks = [nhanes.network(name, 20, i).double() for i in range(2)]
    best, auc = nhanes.train(
        networks,
        parts,
        model=name,
        weight=WEIGHT if name in METHODS else 0.0,
        references=references,
        generators=[torch.Generator().manual_seed(i) for i in range(2)],
        epochs=EPOCHS,
    )
    for i, model in enumerate(networks):
        first = [parameter.detach().clone() for parameter in model.parameters()]
        state, expected = train_one(model, parts[i], name, references, i)
        assert max((a - b).abs().max() for a, b in zip(first, state.values(), strict=True)) > 1e-4
        for key, value in state.items():
            torch.testing.assert_close(best[key][i], value, rtol=0, atol=1e-9)
        assert float(auc[i]) == pytest.approx(expected, abs=1e-12)


def test_subsamples_are_those_of_scikit_learn():
    rows = list(range(1000))
    both, rest = train_test_split(rows, train_size=200, random_state=3)
    train, val = train_test_split(both, test_size=100, random_state=3)
    assert [part.tolist() for part in nhanes.split(1000, 3)] == [train, val, rest]


def test_a_subsample_is_standardised_by_its_training_rows():
    (x, _), *_ = nhanes.subsample(nhanes.procedural(), 0)
    torch.testing.assert_close(x.mean(0), torch.zeros(20), rtol=0, atol=1e-5)
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(20), rtol=0, atol=1e-5)
