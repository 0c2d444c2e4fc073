"""The tables and pictures in `results/` are those of the records beside them."""

import json
import subprocess
from collections import defaultdict
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


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], check=False, capture_output=True, text=True, cwd=RESULTS)
    return done.stdout if done.returncode == 0 else ""


def test_kept_since_is_the_first_commit_with_the_numbers() -> None:
    since = defaultdict(list)
    for whole in COMMITTED:
        for piece in read(whole).pieces:
            if "kept since" in piece.versions:
                since[piece.versions["kept since"], whole.parent.name].append(numbers(piece.values))
    if absent := {commit for commit, _ in since if not git("cat-file", "-t", commit)}:
        pytest.skip(f"needs the project's history: {', '.join(sorted(absent))}")
    for (commit, item), kept in since.items():
        at, before = ({numbers(p["values"]) for p in pieces(item, place)} for place in (commit, f"{commit}^"))
        assert set(kept) <= at, (commit, item)
        assert not set(kept) & before, (commit, item)


def pieces(item: str, commit: str) -> list[dict[str, dict[str, object]]]:
    """What a commit holds of an item; nothing where the item is younger."""
    content = git("show", f"{commit}:./{item}/real.json")
    return json.loads(content)["pieces"] if content else []


def numbers(values: dict[str, object]) -> str:
    """All that was found but maps, which were moved to files of their own later."""
    return json.dumps({name: value for name, value in values.items() if name != "maps"}, sort_keys=True)


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
