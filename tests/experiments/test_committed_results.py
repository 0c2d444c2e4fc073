"""The tables and pictures in `results/` are those of the records beside them."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axiograd.experiments.records import read
from axiograd.experiments.reproduce import ITEMS, find, page_of
from axiograd.report import canvas

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = [RESULTS / name / "real.json" for name in ITEMS if (RESULTS / name / "real.json").exists()]
#: Shades of 256 that a pixel may differ by: what rounding does on another processor, not a point in another place.
ALIKE = 8


@pytest.mark.parametrize("whole", COMMITTED, ids=lambda path: path.parent.name)
def test_tables_and_pages(whole: Path) -> None:
    item, records = find(whole.parent.name), read(whole)
    table = item.table(records)
    assert table.csv() == whole.with_suffix(".csv").read_text()
    assert page_of(item, records, table) == whole.with_suffix(".md").read_text()


@pytest.mark.parametrize("whole", COMMITTED, ids=lambda path: path.parent.name)
def test_every_number_knows_its_commit(whole: Path) -> None:
    """That of the code that made it; of those made before it was recorded, the first commit that holds them."""
    assert [p.key for p in read(whole).pieces if not {"commit", "kept since"} & set(p.versions)] == []


@pytest.mark.parametrize(
    "whole", [path for path in COMMITTED if find(path.parent.name).figure], ids=lambda path: path.parent.name
)
def test_figures(whole: Path) -> None:
    draw = find(whole.parent.name).figure
    assert draw is not None
    drawn, committed = (
        np.asarray(Image.open(file).convert("RGB"), dtype=float)
        for file in (BytesIO(canvas.render(draw(read(whole)))), whole.with_suffix(".png"))
    )
    assert drawn.shape == committed.shape
    assert np.abs(drawn - committed).max() <= ALIKE
