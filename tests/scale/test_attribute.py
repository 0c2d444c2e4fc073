"""`Attribute` on batches as Ray Data gives them, against the methods themselves."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from axiograd.errors import ConfigurationError, InputError, TargetError
from axiograd.scale import Attribute

pytest.importorskip("pyarrow")


def test_targets():
    x = torch.randn(3, 4)
    model = nn.Linear(4, 2, bias=False)
    data = {"image": x.numpy(), "label": np.array([1, 0, 7])}
    labelled = Attribute(model, target="label")(data)
    assert labelled["target"].to_pylist() == [1, 0, None]
    assert "the label is 7" in labelled["error"][2].as_py()
    fixed = Attribute(model, target=1)(data)
    np.testing.assert_allclose(fixed["score"].to_numpy(), model(x)[:, 1].detach().numpy(), rtol=1e-5)
    single = Attribute(nn.Linear(4, 1, bias=False))(data)
    assert set(single["prediction"].to_pylist()) <= {0, 1}
    with pytest.raises(TargetError, match="classes 0 to 1"):
        Attribute(model, target=2)(data)
    with pytest.raises(TargetError, match="no column"):
        Attribute(model, target="label")({"image": x.numpy()})
    with pytest.raises(InputError, match="with column="):
        Attribute(model)({"pixels": x.numpy()})


def test_difference_is_to_the_output_at_zero():
    x = torch.randn(5, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    table = Attribute(model, "integrated-gradients", steps=64, column="x")({"x": x.numpy()})
    target = model(x).argmax(1)
    rows = torch.arange(5)
    expected = (model(x)[rows, target] - model(torch.zeros(1, 4)).expand(5, 3)[rows, target]).detach().numpy()
    np.testing.assert_allclose(table["difference"].to_numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(table["total"].to_numpy(), expected, rtol=1e-3, atol=1e-5)


def test_a_method_that_draws_gives_the_same_rows_wherever_they_are_computed():
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(6, 4)
    how = {"method": "expected-gradients", "references": torch.randn(9, 4), "steps": 2, "column": "x"}
    first = Attribute(model, **how)
    first({"x": x.flip(0).numpy()})
    assert first({"x": x.numpy()}).equals(Attribute(model, **how)({"x": x.numpy()}))


def test_the_model_runs_in_eval_mode_and_keeps_its_own():
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Dropout(0.5), nn.Linear(8, 2, bias=False))
    model[0].eval()
    x = torch.randn(64, 4)
    table = Attribute(model, "input-x-gradient", target=1)({"image": x.numpy()})
    assert [module.training for module in model] == [False, True, True]
    assert model.training
    expected = model.eval()(x)[:, 1].detach().numpy()
    np.testing.assert_allclose(table["score"].to_numpy(), expected, rtol=1e-5, atol=1e-6)


def test_columns_and_labels_that_would_be_lost_are_refused():
    model, x = nn.Linear(4, 2, bias=False), torch.randn(2, 4).numpy()
    with pytest.raises(ConfigurationError, match="column 'score', which the attribution writes too"):
        Attribute(model)({"image": x, "score": np.ones(2)})
    assert "score" in Attribute(model, keep=())({"image": x, "score": np.ones(2)}).column_names
    with pytest.raises(InputError, match="the label 'cat'"):
        Attribute(model)({"image": x, "label": np.array(["cat", "dog"])})
    assert Attribute(model)({"image": x, "label": np.array([1.0, np.nan])})["label"].to_pylist() == [1, None]


def build():
    torch.manual_seed(0)
    return nn.Linear(4, 2, bias=False)


def test_a_function_makes_the_model_anew_in_every_process():
    x = {"image": np.ones((2, 4), np.float32)}
    attribute = Attribute(build)
    expected = attribute(x)
    sent = pickle.dumps(attribute)
    assert b"weight" not in sent
    assert pickle.loads(sent)(x).equals(expected)
