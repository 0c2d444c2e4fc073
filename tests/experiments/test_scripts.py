"""Every script runs with --quick, and what is committed is what the scripts and their pages say."""

import csv
import importlib
import re

import pytest

from experiments import lab

#: Scripts whose quick form takes a minute or so.
LONG = {"fig2_left", "table2", "table2_recipes"}
PAGES = sorted(path.stem for path in lab.RESULTS.glob("*.md"))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long) if n in LONG else n for n in lab.names()])
def test_a_script_runs_quickly_and_has_a_page(name):
    result = importlib.import_module(f"experiments.{name}").run(quick=True)
    page = lab.page(name, result)
    assert page.startswith(f"# {result.title}\n\n**{result.verdict}**\n\n")
    assert "nan" not in page
    assert f"python -m experiments {name}" in page
    if result.figure is not None:
        result.figure.draw_without_rendering()


def test_every_result_has_its_script():
    assert set(PAGES) <= set(lab.names())


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_has_its_table_and_picture(name):
    page = (lab.RESULTS / f"{name}.md").read_text("utf-8")
    with (lab.RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(lines) == len(rows) + 1
    assert lines[0] == f"| {' | '.join(column for column in header if not column.endswith(' ±'))} |"
    for picture in re.findall(r"\]\((\w+\.png)\)", page):
        assert (lab.RESULTS / picture).is_file()


def test_results_hold_tables_pages_and_pictures_alone():
    assert {path.suffix for path in lab.RESULTS.iterdir()} == {".csv", ".md", ".png"}


def test_the_page_of_verdicts_is_up_to_date():
    assert (lab.DOCS / "what-reproduces.md").read_text("utf-8") == lab.verdicts(), "python -m experiments --pages"
