"""The page of results: what the files give, and up to date in this repository."""

import re
from pathlib import Path

import pytest

from axiograd.experiments import gallery
from axiograd.experiments.records import Records
from axiograd.experiments.results_page import main, page
from axiograd.experiments.table3 import METHODS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results(tmp_path):
    settings = {"scale": "real", "images": 2}
    records = Records(tmp_path / "results" / "table3" / "real.json", command="mine", data="photos", settings=settings)
    method = next(iter(METHODS))
    key = {"network": "squeezenet1_1", "form": "regular", "method": method, "images": [0, 2]}
    records.missing = "3 of 4 pieces are missing"
    records.add({metric: [1.0, 3.0] for metric in ("KPM", "KNM", "KAM", "RAM")}, **key)
    (tmp_path / "results" / "table3" / "real.png").write_bytes(b"")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "speed.md").write_text("# Speed\n\nfast\n")
    return tmp_path


def test_tables_figures_and_provenance(results):
    text = page(results / "results", results / "benchmarks", results / "docs")
    assert "## Table 3: masking metrics" in text
    assert "**Not complete: 3 of 4 pieces are missing.**" in text
    assert "| SqueezeNet 1.1, regular | IG (128) | 2.00 ± 1.00 |" in text
    assert "| 7.57 | 1.67 | 25.22 | 11.12 | 2 |" in text
    assert "](../results/table3/real.png)" in text
    assert "Made by `mine`" in text
    assert "## Speed\n\nfast" in text


def test_this_repository_s_page_is_up_to_date(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert (ROOT / "docs" / "results.md").read_text() == page(Path("results"), Path("benchmarks/results"), Path("docs"))


def test_the_gallery_shows_every_picture_of_the_project():
    text = (ROOT / "docs" / "gallery.md").read_text()
    assert text == gallery.page(ROOT / "results", ROOT / "docs")
    assert {f"pictures/{p.name}" for p in (ROOT / "docs" / "pictures").glob("*.png")} <= set(
        re.findall(r"\((.+?)\)", text)
    )


def test_check(results, monkeypatch):
    monkeypatch.chdir(results)
    (results / "docs").mkdir()
    command = ["page", "--benchmarks", "benchmarks"]
    monkeypatch.setattr("sys.argv", [*command, "--check"])
    with pytest.raises(SystemExit, match=r"results\.md is not what the files give"):
        main()
    monkeypatch.setattr("sys.argv", command)
    main()
    monkeypatch.setattr("sys.argv", [*command, "--check"])
    main()
