"""DataFrames in, DataFrames out, and into shap."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import axiograd
from axiograd.datasets import Schema
from axiograd.errors import ConfigurationError, InputError, TargetError


class Half(axiograd.InputXGradient):
    def _combine(self, x, gradient):
        return 0.5 * x * gradient


@pytest.fixture
def people():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": draw.normal(50, 12, 30), "sex": draw.choice(["f", "m"], 30), "y": draw.choice([0, 1], 30)}
    )
    frame.index = [f"p{i}" for i in range(30)]
    return frame


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16, bias=False), nn.ReLU(), nn.Linear(16, 2, bias=False))


def total(theirs):
    return theirs.base_values + theirs.values.sum(1)  # noqa: PD011  # shap's, not pandas'


def test_attributions_by_column_are_integrated_gradients(people, model):
    from captum.attr import IntegratedGradients

    schema = Schema.fit(people, label="y")
    found = axiograd.tables.explain(model, people, schema, target=1, batch_size=7)
    inputs = schema.encode(people)
    theirs = IntegratedGradients(model).attribute(inputs, target=1, n_steps=200)
    expected = np.stack([theirs[:, 0], theirs[:, 1:].sum(1)], axis=1)
    np.testing.assert_allclose(found.attributions.to_numpy(), expected, atol=1e-4)
    assert list(found.attributions.columns) == ["age", "sex"]
    assert list(found.attributions.index) == list(people.index)
    np.testing.assert_allclose(found.base, 0, atol=1e-6)
    np.testing.assert_allclose(found.attributions.sum(axis=1), found.outputs["1"], atol=1e-6)
    # a row alone is what it is among others
    one = axiograd.tables.explain(model, people.iloc[[4]], schema, target=1)
    np.testing.assert_allclose(one.attributions, found.attributions.iloc[[4]], atol=1e-6)


def test_targets_by_name_per_row_and_predicted(people, model):
    schema = Schema.fit(people, label="y")
    predicted = axiograd.tables.explain(model, people, schema)
    chosen = [schema.classes[i] for i in predicted.outputs.to_numpy().argmax(1)]
    assert list(predicted.target) == chosen
    again = axiograd.tables.explain(model, people, schema, target=chosen)
    pd.testing.assert_frame_equal(again.attributions, predicted.attributions)
    with pytest.raises(TargetError, match="no class 'ill'"):
        axiograd.tables.explain(model, people, schema, target="ill")
    with pytest.raises(TargetError, match="2 targets for 30 rows"):
        axiograd.tables.explain(model, people, schema, target=[0, 1])
    with pytest.raises(InputError, match="no rows"):
        axiograd.tables.explain(model, people.iloc[:0], schema)


def test_methods_by_name_class_or_object(people, model):
    schema = Schema.fit(people, label="y")
    steps = axiograd.tables.explain(model, people, schema, target=1, method="integrated-gradients", n_steps=64)
    for method in ("x-gradient", "XGradient", axiograd.XGradient, axiograd.XGradient(model)):
        found = axiograd.tables.explain(model, people, schema, target=1, method=method)
        np.testing.assert_allclose(found.attributions, steps.attributions, atol=1e-6)
    drawn = axiograd.tables.explain(
        model, people, schema, target=1, method="expected-gradients", references=people, n_samples=4
    )
    assert drawn.method == "ExpectedGradients"
    with pytest.raises(ConfigurationError, match="Expected Gradients needs references"):
        axiograd.tables.explain(model, people, schema, target=1, method="expected-gradients")
    with pytest.raises(ConfigurationError, match="did you mean 'x-gradient'"):
        axiograd.tables.explain(model, people, schema, target=1, method="x-gradeint")


def test_the_distance_to_shapley_values(people):
    """Against Captum's exact values of columns, absent ones at zero."""
    from captum.attr import ShapleyValues

    torch.manual_seed(0)
    people = people.assign(pulse=people.age.to_numpy()[::-1] ** 2, weight=np.arange(30) % 7)
    schema = Schema.fit(people, label="y")
    model = nn.Sequential(nn.Linear(5, 16, bias=False), nn.ReLU(), nn.Linear(16, 2, bias=False)).double()
    found = axiograd.tables.explain(model, people, schema, target=1)
    assert found.kind.startswith("not shown to be Shapley values, R² ≥ 0")

    columns = torch.tensor([[0, 1, 1, 2, 3]])  # sex has two inputs
    theirs = ShapleyValues(model).attribute(schema.encode(people).double(), target=1, feature_mask=columns)
    exact = theirs[:, [0, 1, 3, 4]].numpy()
    error = np.sqrt(np.square(found.attributions - exact).mean(axis=1))
    assert error.max() > 0.01
    assert (error <= 1.5 * found.shapley_error).all()
    assert np.square(error).mean() < np.square(found.shapley_error).mean() < 9 * np.square(error).mean()
    explained = 1 - np.square(found.attributions - exact).to_numpy().sum() / np.square(exact - np.mean(exact)).sum()
    assert found.shapley_r2 <= explained

    alone = axiograd.tables.explain(model, people.iloc[[4]], schema, target=1)
    np.testing.assert_allclose(alone.shapley_error, found.shapley_error.iloc[[4]])
    # of attributions that do not add up, too
    half = axiograd.tables.explain(model, people, schema, target=1, method=Half)
    error = np.sqrt(np.square(half.attributions - exact).mean(axis=1))
    assert np.square(error).mean() < np.square(half.shapley_error).mean() < 9 * np.square(error).mean()


def test_sums_of_columns_are_shapley_values(people):
    schema = Schema.fit(people, label="y")
    found = axiograd.tables.explain(nn.Linear(3, 2, bias=False), people, schema, target=1)
    assert found.shapley_error.max() < 1e-6
    assert found.kind == "Shapley values, R² ≥ 0.999"
    biased = axiograd.tables.explain(nn.Linear(3, 2), people, schema, target=1, method="integrated-gradients")
    assert biased.shapley_error.max() < 1e-5


def test_shap_draws_it(people, model):
    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import shap

    found = axiograd.tables.explain(model, people, Schema.fit(people, label="y"), target=1)
    theirs = found.to_shap()
    np.testing.assert_allclose(total(theirs), found.outputs["1"], atol=1e-6)
    assert theirs.feature_names == ["age", "sex"]
    assert theirs.display_data[0, 1] in {"f", "m"}
    shap.plots.waterfall(theirs[0], show=False)
    assert any("age" in label.get_text() for label in plt.gca().get_yticklabels())
    plt.close("all")
    shap.plots.beeswarm(theirs, show=False)
    plt.close("all")
    shown = found._repr_html_()
    assert "beeswarm" in shown
    assert found.kind in shown
    assert "age = " in shown


def test_any_method_takes_a_frame_of_numbers(people, model):
    frame = pd.DataFrame(
        Schema.fit(people, label="y").encode(people).numpy(), columns=["a", "b", "c"], index=people.index
    )
    tensor = torch.from_numpy(frame.to_numpy(copy=True))
    for method in (axiograd.XGradient(model), axiograd.InputXGradient(model), axiograd.IntegratedGradients(model, 4)):
        found = method.attribute(frame, target=0)
        assert list(found.columns) == ["a", "b", "c"]
        np.testing.assert_allclose(found, method.attribute(tensor, target=0), atol=1e-7)
    explanation = axiograd.XGradient(model).explain(frame, target="all")
    theirs = explanation.to_shap()
    assert theirs.shape == (30, 3, 2)
    np.testing.assert_allclose(total(theirs), explanation.outputs, atol=1e-6)
    trained = axiograd.XGradient(model).explain(frame, target=0, create_graph=True)
    assert trained.attributions.requires_grad
    with pytest.raises(InputError, match="column 'sex' of the DataFrame"):
        axiograd.InputXGradient(model).attribute(people[["age", "sex"]], target=0)
    with pytest.raises(InputError, match="are empty"):
        axiograd.InputXGradient(model).attribute(frame.where(frame > 0), target=0)


def test_it_prints_in_a_line(people, model):
    found = axiograd.tables.explain(model, people, Schema.fit(people, label="y"), target=1)
    assert repr(found).startswith("TableExplanation(30 rows × 2 features, XGradient of 1, baseline: zero")
