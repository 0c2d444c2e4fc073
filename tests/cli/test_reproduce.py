"""`axiograd reproduce`: tables in the terminal and as JSON, wrong use, and scales."""

import json

import pytest
from typer.testing import CliRunner

from axiograd.cli.app import app
from axiograd.errors import ConfigurationError
from axiograd.experiments import reproduce as runner
from axiograd.experiments.item import Item, Plan, Table, Work


@pytest.fixture(autouse=True)
def item(monkeypatch):
    """One item in the place of all: it doubles, and has no full scale of its own."""

    def plan(setting):
        return Plan("integers", {"scale": setting.scale}, (lambda _: [Work({"n": 2}, lambda: {"double": 4})],))

    def table(records):
        return Table(("n", "ours", "paper"), ((2, records.get(n=2)["double"], 4),), "As in the paper.")

    found = Item("double", "Table 9: doubling", plan, table, scales=("quick", "real"))
    monkeypatch.setattr(runner, "ITEMS", {"double": "nowhere:ITEM"})
    monkeypatch.setattr(runner, "find", lambda name: {"double": found}[name])


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)


def test_the_table_stands_in_the_terminal(tmp_path):
    done = run("double", "--quick", "--out", str(tmp_path))
    assert done.exit_code == 0
    for words in ("Table 9: doubling", "ours", "paper", "As in the paper."):
        assert words in done.stdout
    assert (tmp_path / "double" / "quick.csv").read_text() == "n,ours,paper\n2,4,4\n"


def test_json_of_all(tmp_path):
    (found,) = json.loads(run("all", "--json", "--out", str(tmp_path)).stdout)
    assert (found["item"], found["scale"], found["rows"], found["missing_pieces"]) == ("double", "real", [[2, 4, 4]], 0)
    assert str(tmp_path / "double" / "real.json") in found["files"]


def test_what_has_no_full_scale_runs_on_real_data(tmp_path):
    run("double", "--imagenet", "a", "--weights", "b", "--out", str(tmp_path))
    assert (tmp_path / "double" / "real.json").exists()


def test_wrong_use(tmp_path):
    with pytest.raises(ConfigurationError, match="both --imagenet ROOT and --weights DIR"):
        run("double", "--imagenet", "a")
    with pytest.raises(ConfigurationError, match="--quick needs no data"):
        run("double", "--quick", "--imagenet", "a", "--weights", "b")
    with pytest.raises(ConfigurationError, match="such as 2/8"):
        run("double", "--quick", "--part", "9/8", "--out", str(tmp_path))


def test_help_teaches():
    text = run("--help").stdout
    for words in ("--only-render", "--part", "--imagenet", "resumes"):
        assert words in text
