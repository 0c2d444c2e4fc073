"""From a CSV file to a trained network and its explanation, by two commands."""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import axiograd as library
from axiograd.datasets import Schema
from axiograd.training.objective import weighted
from support.command import axiograd

TOML = """
out = "{out}"
[model]
name = "xmlp"
options = {{ hidden = [8] }}
[data]
name = "{table}"
options = {{ label = "outcome", drop = ["id"], missing = "mean", weights = "counts" }}
validation = {{ split = "validation" }}
[recipe]
epochs = 2
batch_size = 16
optimizer = "adam"
"""


@pytest.fixture
def people(tmp_path):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(60)],
            "age": draw.normal(50, 12, 60).round(),
            "sex": draw.choice(["female", "male"], 60),
            "counts": draw.uniform(0.5, 2, 60).round(2),
            "outcome": draw.choice(["ill", "well"], 60),
        }
    )
    frame.loc[3, "age"] = None
    frame.to_csv(tmp_path / "people.csv", index=False)
    return frame


def test_a_table_is_trained_on_and_explained(people, tmp_path):
    config = tmp_path / "people.toml"
    config.write_text(TOML.format(out=tmp_path / "run", table=tmp_path / "people.csv"))
    planned = axiograd("train", config, "--dry-run", "--json").json
    assert (planned["samples"], planned["validation_samples"]) == (48, 12)
    done = axiograd("train", config, "--json")
    assert done.code == 0, done.err
    file = tmp_path / "run" / "model.safetensors"
    people.drop(columns=["id", "counts", "outcome"])[["sex", "age"]].to_csv(tmp_path / "new.csv", index=False)
    done = axiograd(
        "explain", file, tmp_path / "new.csv", "--limit", "5", "--target", "ill", "-o", tmp_path / "o", "--json"
    )
    assert done.code == 0, done.err
    assert done.json["trained"] is True
    assert {each["name"] for each in done.json["samples"][0]["top"]} == {"ill", "well"}
    assert done.json["baseline"] == "zero, every number at its mean and no category"
    arrays = load_file(tmp_path / "o" / "attributions.safetensors")
    expected = Schema.read(file).encode(people.head(5))
    torch.testing.assert_close(arrays["inputs"], expected)
    torch.testing.assert_close(arrays["x-gradient"].sum(1), arrays["scores"][:, 0], rtol=1e-4, atol=1e-6)
    # and in Python
    loaded = library.load(file)
    assert loaded.classes == ("ill", "well")
    explanation = library.tables.explain(loaded.model, people.head(5), loaded.schema, target="ill")
    np.testing.assert_allclose(explanation.outputs["ill"], arrays["scores"][:, 0], rtol=1e-5)
    page = (tmp_path / "o" / "report.html").read_text()
    assert f'"{people.age[0]:g}","{people.sex[0]}"' in page
    # one row is what it is among others
    people.iloc[[2]].to_csv(tmp_path / "one.csv", index=False)
    options = ("--target", "ill", "-o", tmp_path / "p", "--no-figures", "--no-report")
    assert axiograd("explain", file, tmp_path / "one.csv", *options).code == 0
    one = load_file(tmp_path / "p" / "attributions.safetensors")["x-gradient"]
    torch.testing.assert_close(one[0], arrays["x-gradient"][2])
    people.assign(sex="mal").to_csv(tmp_path / "odd.csv", index=False)
    done = axiograd("explain", file, tmp_path / "odd.csv", *options)
    assert done.code == 3
    assert "did you mean 'male'" in done.err
    # converting what was trained keeps what is known about its table
    lifted = tmp_path / "lifted.safetensors"
    done = axiograd("convert", file, "--how", "lift", "--examples", tmp_path / "people.csv", "-o", lifted, "--json")
    assert done.code == 0, done.err
    done = axiograd("explain", lifted, tmp_path / "one.csv", *options)
    assert done.code == 0, done.err


def test_a_weight_of_two_is_a_row_twice():
    torch.manual_seed(0)
    outputs, target = torch.randn(3, 2), torch.tensor([0, 1, 1])
    loss = torch.nn.functional.cross_entropy
    twice = loss(outputs[[0, 1, 1, 2]], target[[0, 1, 1, 2]])
    torch.testing.assert_close(weighted(loss, torch.tensor([1.0, 2.0, 1.0]) * 3 / 4)(outputs, target), twice)
