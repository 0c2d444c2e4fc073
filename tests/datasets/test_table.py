"""Tables as data sets; pandas is the oracle."""

import numpy as np
import pandas as pd
import pytest
import torch

from axiograd.datasets import Schema, table
from axiograd.errors import AxiogradError, ConfigurationError, DataMissingError, InputError, StorageError


@pytest.fixture
def people():
    draw = np.random.default_rng(0)
    age = draw.normal(50, 12, 60).round()
    age[5] = np.nan
    return pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(60)],
            "age": age,
            "sex": draw.choice(["female", "male"], 60),
            "ward": draw.integers(1, 4, 60),
            "counts": draw.uniform(0.5, 2, 60),
            "outcome": draw.choice(["ill", "well"], 60),
        }
    )


OPTIONS = {"label": "outcome", "drop": ["id"], "categories": ["ward"], "missing": "mean", "weights": "counts"}


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "parquet", "frame"])
def test_what_the_model_takes_is_what_pandas_makes_of_it(people, tmp_path, kind):
    path = tmp_path / f"people.{kind}"
    if kind == "parquet":
        people.to_parquet(path)
    elif kind != "frame":
        people.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    given = people if kind == "frame" else path
    train, held = table(given, **OPTIONS), table(given, **OPTIONS, split="validation")
    assert len(train) == 48
    assert sorted((*train.rows, *held.rows)) == list(range(60))
    rows = people.iloc[list(train.rows)]
    filled = rows.age.fillna(rows.age.mean())
    expected = pd.concat(
        [
            (filled - filled.mean()) / filled.std(ddof=0),
            pd.get_dummies(rows.sex, dtype=float),
            pd.get_dummies(rows.ward, dtype=float),
        ],
        axis=1,
    )
    np.testing.assert_allclose(train.inputs, expected.to_numpy(), atol=1e-6)
    assert train.names == ("age", "sex = female", "sex = male", "ward = 1", "ward = 2", "ward = 3")
    assert train.schema.classes == ("ill", "well")
    assert [train.schema.classes[i] for i in train.targets] == list(rows.outcome)
    np.testing.assert_allclose(train.weights, rows.counts / rows.counts.mean(), rtol=1e-6)
    # validation rows are prepared by what the training rows say
    other = people.iloc[list(held.rows)].age
    other = (other.fillna(rows.age.mean()) - filled.mean()) / filled.std(ddof=0)
    np.testing.assert_allclose(held.inputs[:, 0], other, atol=1e-6)


def test_a_schema_survives_its_file(people):
    schema = table(people, **OPTIONS).schema
    again = Schema.from_dict(schema.to_dict())
    assert again == schema
    assert torch.equal(again.encode(people), schema.encode(people))


def test_categories_add_up(people):
    schema = table(people, **OPTIONS).schema
    attributions = torch.randn(7, 6)
    summed = schema.sum_categories(attributions)
    expected = torch.stack([attributions[:, 0], attributions[:, 1:3].sum(1), attributions[:, 3:].sum(1)], dim=1)
    torch.testing.assert_close(summed, expected)
    assert schema.shown(people.head(1)) == [(f"{people.age[0]:g}", people.sex[0], str(people.ward[0]))]


def test_a_column_that_names_the_split(people):
    people["fold"] = ["train"] * 40 + ["test"] * 20
    options = OPTIONS | {"split_column": "fold"}
    assert table(people, **options).rows == tuple(range(40))
    assert table(people, **options, split="test").rows == tuple(range(40, 60))
    with pytest.raises(ConfigurationError, match="has no row with 'validation'"):
        table(people, **options, split="validation")


def test_a_label_that_is_a_number(people):
    data = table(people, label="counts", features=["sex"])
    assert data.schema.classes == ()
    assert data.targets.shape == (48, 1)
    assert data.targets.is_floating_point()
    assert table(people, label="ward", features=["sex"], target="number").schema.classes == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label": "outcom"}, "did you mean 'outcome'"),
        ({"label": "outcome"}, "48 different words in 48 rows: leave it out"),
        ({"label": "outcome", "drop": ["id"]}, "empty cells in column 'age'"),
        ({"label": "outcome", "features": ["sex", "outcome"]}, "is the label"),
        ({"label": "outcome", "features": ["sex"], "categories": ["ward"]}, "but is not a feature"),
        ({"label": "outcome", "features": ["sex"], "holdout": 1.0}, "leaves none"),
        ({"label": "outcome", "features": ["sex"], "split": "test"}, "split='test'"),
        ({"label": "outcome", "features": ["sex"], "weights": "ward", "target": "number"}, "not a number"),
        ({"label": "outcome", "features": ["sex"], "weights": "sex"}, "needs a weight of 0"),
        ({"label": "outcome", "features": ["sex"], "missing": "guess"}, "choose error, mean or zero"),
    ],
)
def test_what_cannot_work_is_refused(people, options, words):
    with pytest.raises(AxiogradError, match=words):
        table(people, **options)


def test_rows_that_do_not_fit_the_training_data(people):
    schema = table(people, **OPTIONS).schema
    with pytest.raises(InputError, match="holds 'mal', which the training data did not have: did you mean 'male'"):
        schema.encode(people.assign(sex="mal"))
    with pytest.raises(ConfigurationError, match="no column 'sex'"):
        schema.encode(people.drop(columns="sex"))
    with pytest.raises(InputError, match="column 'age' holds 'old', which is not a number"):
        schema.encode(people.assign(age="old"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n", "no rows"),
        ("a,b\n1,2,3\n", "more cells in a row than the 2 names"),
    ],
)
def test_files_that_are_no_tables(tmp_path, content, words):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(StorageError, match=words):
        table(tmp_path / "t.csv", label="b")
    with pytest.raises(DataMissingError):
        table(tmp_path / "none.csv", label="b")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(StorageError, match="cannot be read as Parquet"):
        table(tmp_path / "t.parquet", label="b")


def test_cells_with_line_breaks_and_empty_words(tmp_path):
    (tmp_path / "t.csv").write_text('name,y\n"a\nb",0\nc,1\n,1\nc,0\n')
    schema = table(tmp_path / "t.csv", label="y", missing="zero", split="all", holdout=0).schema
    assert schema.encoded_names == ("name = a\nb", "name = c")
    assert schema.encode({"name": ["", None, float("nan"), pd.NA]}).abs().sum() == 0


def test_columns_without_names_or_cells_are_named(tmp_path):
    frame = pd.DataFrame({"age": [1.0, 2.0], "a": [None, None], "b": [None, None], "y": ["no", "yes"]})
    with pytest.raises(ConfigurationError, match="column 'a' is empty: leave it out"):
        Schema.fit(frame, label="y", missing="mean")
    frame[["age", "y"]].to_csv(tmp_path / "t.csv")  # pandas writes row numbers under no name
    with pytest.raises(ConfigurationError, match=r"a column has no name.*index=False"):
        table(tmp_path / "t.csv", label="y")
    assert table(tmp_path / "t.csv", label="y", drop=[""], split="all").schema.names == ("age",)


def test_blanks_around_names_are_not_part_of_them(tmp_path):
    (tmp_path / "t.csv").write_text("age, sex ,y\n1, male,no\n2, female,yes\n")
    assert table(tmp_path / "t.csv", label="y", split="all").schema.names == ("age", "sex")


def test_the_nearest_of_many_columns_is_found():
    content = {f"column {i}": [1.0] for i in range(300)} | {"Pressure": [2.0]}
    with pytest.raises(ConfigurationError, match="did you mean 'Pressure'"):
        Schema.fit(content, features=["pressure"])
