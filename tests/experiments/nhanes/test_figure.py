"""Figure 1: the plan covers the paper's set-up, and tables and figures say what the records say."""

import pytest

from axiograd.errors import DataMissingError
from axiograd.experiments.item import Setting
from axiograd.experiments.nhanes import LEFT, RIGHT, plan as nhanes_plan
from axiograd.experiments.nhanes.data import procedural
from axiograd.experiments.nhanes.figure import PAPER_LEFT
from axiograd.experiments.nhanes.plan import choose
from axiograd.experiments.records import Records
from axiograd.report.canvas import render

SETTINGS = {"subjects": 13_315, "features": 106, "subsamples": 4, "rows": 100, "grid": [1, 10], "references": [1, 2, 4]}


def filled(tmp_path, pieces, data="reconstructed NHANES I"):
    """Records with (model, λ, references, first, val, test) in place of training."""
    records = Records(tmp_path / "real.json", command="test", data=data, settings=SETTINGS)
    for name, weight, references, first, val, test in pieces:
        key = {"model": name, "weight": weight, "references": references, "first": first, "count": len(test)}
        records.add({"val": val, "test": test, "epoch": [1] * len(test), "seconds": 2.0 * references}, **key)
    return records


LEFT_PIECES = [
    ("unregularised", 0.0, 1, 0, [0.7] * 4, [0.70, 0.72, 0.68, 0.70]),
    ("x-gradient", 1.0, 1, 0, [0.8] * 2, [0.78, 0.80]),
    ("x-gradient", 1.0, 1, 2, [0.8] * 2, [0.76, 0.78]),
    ("x-gradient", 10.0, 1, 0, [0.79] * 4, [0.99] * 4),
    ("eg", 0.1, 1, 0, [0.77] * 4, [0.76, 0.75, 0.74, 0.75]),
    ("eg", 1.0, 1, 0, [0.75] * 4, [0.9] * 4),
]


def test_weight_is_chosen_by_validation_not_by_test(tmp_path):
    records = filled(tmp_path, LEFT_PIECES)
    assert choose(records, "x-gradient").weight == 1.0
    assert choose(records, "eg").weight == 0.1
    assert choose(records, "rrr") is None


def test_left_table_joins_blocks_and_compares_in_pairs(tmp_path):
    table = LEFT.table(filled(tmp_path, LEFT_PIECES))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["X-Gradient w/o bias"][:4] == ("1", 0.78, 0.0082, 4)  # s = 0.01633, over √4
    assert rows["X-Gradient w/o bias"][4:] == (0.7673, round(0.78 - 0.7673, 4))
    # 0.02, 0.05, 0.02, 0.03: mean 0.03, s = 0.01414, over √4
    assert "X-Gradient w/o bias minus EG: +0.0300 ± 0.0071 (paper: +0.0187)." in table.note
    assert "From worst to best: Unreg < EG < X-Gradient w/o bias; as in the paper." in table.note
    assert "EG 0.1 instead of 1" in table.note
    assert "13315 rows × 106 features" in table.note
    assert "The paper's file has 13442 × 118." in table.note
    assert "Not complete" not in table.note


def test_a_search_that_is_not_through_is_told(tmp_path):
    records = filled(tmp_path, [piece for piece in LEFT_PIECES if piece[:2] != ("x-gradient", 10.0)])
    assert "Not complete: X-Gradient w/o bias with 1 of 2 λ tried on all." in LEFT.table(records).note
    assert "1 of 2 λ" in LEFT.figure(records)._supxlabel.get_text().replace("\n", " ")


def test_right_table_says_when_eg_catches_up_and_what_is_missing(tmp_path):
    more = [
        ("eg", 0.1, 2, 0, [0.77] * 4, [0.77, 0.78, 0.75, 0.77]),
        ("eg", 0.1, 4, 0, [0.77] * 3, [0.78, 0.81, 0.76]),
    ]
    table = RIGHT.table(filled(tmp_path, LEFT_PIECES + more))
    assert [row[0] for row in table.rows] == ["X-Gradient", "EG(1)", "EG(2)", "EG(4)"]
    assert "EG reaches X-Gradient with 4 references, on the subsamples that both have (paper: with 32)." in table.note
    # EG(2) minus X-Gradient: −0.01, −0.02, −0.01, −0.01, mean −0.0125 with the error 0.005 / √4
    assert "behind by more than two standard errors of the difference with 2, not with more." in table.note
    assert "Not complete: EG(4) on 3 of 4 subsamples." in table.note
    # 8 s for 3 subsamples against 4 s for 4
    assert "A model with EG(4) took 2.7 times" in table.note
    assert "EG(4) minus X-Gradient: +0.0033" in table.note
    without = RIGHT.table(filled(tmp_path / "b", LEFT_PIECES + more[:1]))
    assert "EG does not reach X-Gradient with up to 2 references" in without.note


def test_figures_show_the_records_and_say_what_is_missing(tmp_path):
    records = filled(tmp_path, [*LEFT_PIECES, ("eg", 0.1, 4, 0, [0.77] * 3, [0.78, 0.81, 0.76])])
    left, right = LEFT.figure(records), RIGHT.figure(records)
    assert [t.get_text() for t in left.axes[0].get_xticklabels()] == ["Unreg", "EG", "X-Gradient\nw/o bias"]
    heights = [bar.get_height() for bar in left.axes[0].patches]
    assert heights == pytest.approx([0.70, 0.75, 0.78])
    paper = left.axes[0].get_legend_handles_labels()[0][0].get_ydata()
    assert list(paper) == [PAPER_LEFT[name] for name in ("unregularised", "eg", "x-gradient")]
    assert [t.get_text() for t in right.axes[0].get_xticklabels()] == ["1", "4\n3 of\n4"]
    assert "EG(4) on 3 of 4 subsamples" in right._supxlabel.get_text()
    assert "incomplete" not in left._supxlabel.get_text()
    assert render(right, ".png").startswith(b"\x89PNG")


FURTHER_PIECES = [
    ("x-gradient", 1.0, 1, 4, [0.1] * 2, [0.70, 0.80]),
    ("eg", 0.1, 1, 4, [0.99] * 2, [0.70, 0.78]),
]


def test_further_subsamples_stand_beside_and_choose_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("axiograd.experiments.nhanes.further.SHOWN", 2)
    plain, records = (
        filled(tmp_path / "a" / "b", LEFT_PIECES),
        filled(tmp_path / "fig1-left", LEFT_PIECES + FURTHER_PIECES),
    )
    assert LEFT.table(records).rows == LEFT.table(plain).rows
    # The paper's: 0.02, 0.05, 0.02, 0.03; further: 0, 0.02. Blocks: 0.035 ± 0.015, 0.025 ± 0.005, 0.01 ± 0.01.
    said = (
        "On 2 further subsamples, from number 4 on, with the λ that the first 4 chose: X-Gradient 0.7500, EG(1) "
        "0.7400, difference +0.0100 ± 0.0100; on all 6 +0.0233 ± 0.0067. In blocks of 2 it lies between +0.0100 and "
        "+0.0350: a standard deviation of 0.0126, where the errors of the blocks alone make one of 0.0108."
    )
    assert said in LEFT.table(records).note
    assert "further" not in LEFT.table(plain).note + RIGHT.table(plain).note
    assert said in RIGHT.table(filled(tmp_path / "fig1-right", LEFT_PIECES)).note
    bars, blocks = LEFT.figure(records).axes
    assert len(bars.patches) == 3
    drawn = [list(line.get_ydata()) for line in blocks.get_legend_handles_labels()[0]]
    assert drawn == [pytest.approx([0.03, 0.03]), pytest.approx([0.01, 0.01])]


def test_the_papers_numbers_are_not_shown_beside_other_data(tmp_path):
    records = filled(tmp_path, LEFT_PIECES, data="procedural table")
    table = LEFT.table(records)
    assert all(row[5:] == (None, None) for row in table.rows)
    assert "paper" not in table.note + RIGHT.table(records).note
    assert LEFT.figure(records).axes[0].get_legend() is None


def test_nothing_is_said_of_nothing(tmp_path):
    records = filled(tmp_path, [])
    for item in (LEFT, RIGHT):
        assert item.table(records).rows == ()
        assert render(item.figure(records), ".png").startswith(b"\x89PNG")


def test_plan_of_the_paper():
    try:
        plan = RIGHT.plan(Setting("real"))
    except DataMissingError as error:
        pytest.skip(str(error))
    left = LEFT.plan(Setting("real"))
    stage, repeat = left.stages
    records = Records("/nonexistent/x.json", command="", data=left.data, settings=left.settings)
    work = stage(records)
    assert repeat(records) == []
    weights = {(w.key["model"], w.key["weight"]) for w in work}
    assert len(weights) == 2 + 4 * 5
    for setting in weights:
        numbers = [
            w.key["first"] + i
            for w in work
            if (w.key["model"], w.key["weight"]) == setting
            for i in range(w.key["count"])
        ]
        assert numbers == list(range(200))
    assert len(plan.stages) == 8
    assert plan.settings["references"] == [1, 2, 4, 8, 16, 32, 64, 128]


@pytest.mark.long
def test_quick_form_end_to_end(tmp_path, monkeypatch):
    # Fewer and smaller than the quick form, which takes half a minute.
    monkeypatch.setattr(nhanes_plan, "load", lambda scale: procedural(400, 12))
    monkeypatch.setattr(nhanes_plan, "GRID", (1.0,))
    monkeypatch.setattr(nhanes_plan, "BLOCK", 3)
    for item in (LEFT, RIGHT):
        plan = item.plan(Setting("quick"))
        records = Records(tmp_path / f"{item.name}.json", command="test", data=plan.data, settings=plan.settings)
        for stage in plan.stages:
            for work in stage(records):
                if work.key["references"] <= 2:
                    records.piece(work.compute, **work.key)
        table = item.table(records)
        assert all(0.4 < row[2] <= 1 and row[4] == 4 for row in table.rows)
        assert len(table.rows) == (6 if item is LEFT else 3)
