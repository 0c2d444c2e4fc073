"""The notebooks run from top to bottom, and are stored with what their cells print and draw."""

import json
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
#: Photos, and a minute.
LONG = {"photo"}


def cells(name):
    return [cell for cell in json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]


NAMES = [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in NAMES])
@pytest.mark.filterwarnings("ignore:Input Tensor . did not already require gradients")  # what a user of Captum sees
def test_runs(name, monkeypatch):
    if name in LONG and not os.environ.get("AXIOGRAD_DATA"):
        pytest.skip("needs ImageNet photos: set AXIOGRAD_DATA")
    monkeypatch.chdir(FOLDER)
    names = {}
    for cell in cells(name):
        exec("".join(cell["source"]), names)
    assert any(cell["outputs"] for cell in cells(name))
