"""The page for people who come from Captum lists all of captum.attr, and what it says to write is the same."""

import inspect
import re
import warnings
from pathlib import Path

import captum.attr
import pytest
import torch

import axiograd

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "coming-from-captum.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" |")]
    for line in PAGE.splitlines()
    if line.startswith("| `") and line.count("|") >= 4
]
CODE = re.compile(r"`([^`]+)`")
#: Draws of each side where both are random.
DRAWS = 25


@pytest.fixture(scope="module", name="page")
def names_of_the_page():
    """What the first blocks of the page define."""
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:4]:
        if "ca = " in block or "import" in block:
            exec(block, names)
    return names


def run(code, page):
    with warnings.catch_warnings():  # Captum announces its hooks
        warnings.simplefilter("ignore")
        found = eval(code, page)
    return found.detach() if isinstance(found, torch.Tensor) else found


def test_every_class_of_captum_is_on_the_page_once():
    classes = {name for name, value in vars(captum.attr).items() if inspect.isclass(value)}
    # A name without a class of its own: an alias of a type.
    classes |= {name for name in captum.attr.__all__ if name == "StatValue"}
    listed = [name for row in ROWS for name in CODE.findall(row[0])]
    assert sorted(listed) == sorted(classes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: CODE.findall(row[0])[0])
def test_a_line_says_what_is_so(row, page):
    _, there, here = row
    if not there:
        assert here.startswith("no counterpart, use Captum") or "for that use Captum" in here
        return
    (captums,), ours = CODE.findall(there), CODE.findall(here)[0]
    if not here.startswith("≈"):
        torch.manual_seed(0)
        expected = run(captums, page)
        torch.manual_seed(0)
        found = run(ours, page)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        return
    # Making a method draws nothing, so that two of them from one random state draw the same.
    theirs, mine = (
        torch.stack([run(code, page) for seed in range(DRAWS) if torch.manual_seed(first + seed)]).double()
        for first, code in ((0, captums), (DRAWS, ours))
    )
    error = ((theirs.var(0) + mine.var(0)) / DRAWS).sqrt()
    # Five standard errors, for some hundred numbers; draws that are all equal may differ by rounding.
    assert bool(((theirs.mean(0) - mine.mean(0)).abs() <= 5 * error + 1e-5).all())


def test_what_the_page_says_of_text_and_statistics_exists(page):
    assert callable(axiograd.text.explain)
    assert callable(axiograd.attribute_dataset)
    assert callable(axiograd.report.heatmap)
    attributions = axiograd.XGradient(page["model"]).attribute(page["x"], page["y"])
    summarizer = captum.attr.Summarizer([captum.attr.Mean(), captum.attr.Max()])
    for row in attributions:
        summarizer.update(row)
    torch.testing.assert_close(summarizer.summary["mean"], attributions.mean(0))
