"""Results that survive interruptions."""

import json

import numpy as np
import pytest
import torch

from axiograd.errors import ConfigurationError, StorageError
from axiograd.experiments.records import Records, current_versions, markdown_table, mean_and_std, provenance, read


def open_records(path, command="run", data="numbers", **settings):
    return Records(path, command=command, data=data, settings=settings)


def test_an_interrupted_experiment_goes_on_where_it_stopped(tmp_path):
    path, done = tmp_path / "folder" / "results.json", []

    def experiment(stop_at=None):
        records = open_records(path, epochs=2)
        for seed in range(4):
            if seed == stop_at:
                raise KeyboardInterrupt
            records.piece(lambda seed=seed: done.append(seed) or {"value": seed**2}, seed=seed)
        return records

    with pytest.raises(KeyboardInterrupt):
        experiment(stop_at=2)
    assert [piece.values["value"] for piece in read(path).pieces] == [0, 1]
    assert [piece.values["value"] for piece in experiment().find()] == [0, 1, 4, 9]
    assert done == [0, 1, 2, 3]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    records = open_records(tmp_path / "results.json")
    records.add({"value": 1}, seed=0)
    before = records.path.read_bytes()
    monkeypatch.setattr("axiograd._io.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(StorageError, match="full"):
        records.add({"value": 2}, seed=1)
    assert records.path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_what_is_written_has_command_seed_data_and_versions(tmp_path):
    path = tmp_path / "results.json"
    values = {"a": torch.tensor(0.5), "b": np.float64(2), "c": [1, (2, None)]}
    open_records(path, command="table --seeds 1", lr=0.1).add(values, seed=0, method="X-Gradient")
    content = json.loads(path.read_text())
    (piece,) = content["pieces"]
    assert content["data"] == "numbers"
    assert content["settings"] == {"lr": 0.1}
    assert piece["key"] == {"seed": 0, "method": "X-Gradient"}
    assert piece["values"] == {"a": 0.5, "b": 2.0, "c": [1, [2, None]]}
    assert piece["versions"]["torch"] == torch.__version__
    assert "`table --seeds 1`" in provenance(read(path))
    assert "lr: 0.1" in provenance(read(path))


def test_commands_of_both_runs_are_kept(tmp_path):
    path = tmp_path / "results.json"
    open_records(path, command="first").add({"x": 1}, seed=0)
    second = open_records(path, command="second")
    second.add({"x": 2}, seed=1)
    assert [piece.command for piece in read(path).pieces] == ["first", "second"]
    second.add({"x": 3}, seed=0)
    assert [piece.values["x"] for piece in read(path).pieces] == [2, 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [({"epochs": 3}, r"epochs \(there: 2, here: 3\)"), ({"epochs": 2, "data": "words"}, "'numbers'")],
)
def test_other_settings_or_data_are_refused(tmp_path, change, words):
    path = tmp_path / "results.json"
    open_records(path, epochs=2).add({"x": 1}, seed=0)
    with pytest.raises(StorageError, match=words):
        open_records(path, **change)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "pieces": [{}]}', '{"format": 2}'])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(StorageError, match=r"results\.json"):
        open_records(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), torch.zeros(2)])
def test_what_json_cannot_hold_is_refused(tmp_path, value):
    records = open_records(tmp_path / "results.json")
    with pytest.raises(ConfigurationError, match="cannot be recorded"):
        records.add({"value": value}, seed=0)
    assert not records.path.exists()


def test_tables():
    assert markdown_table(["a|b"], [["x\ny"]]) == "| a\\|b |\n|---|\n| x y |"
    with pytest.raises(ConfigurationError, match="2 columns, but a row of 1"):
        markdown_table(["a", "b"], [["x"]])
    assert mean_and_std([]) == ""
    assert mean_and_std([1.0, 2.0, 3.0], digits=2) == "2.00 ± 1.00"
    assert current_versions(captum="0.9")["captum"] == "0.9"
