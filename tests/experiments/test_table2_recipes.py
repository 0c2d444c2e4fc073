from pathlib import Path

import pytest
import torch

from axiograd.experiments import table2_recipes, table2_training
from axiograd.experiments.item import Setting
from axiograd.experiments.records import Records
from axiograd.experiments.table2_recipes import TRAININGS, Training


def test_the_recipes_are_the_papers() -> None:
    """Appendix B.1: 0.01, a tenth of it every 30 of 100 epochs; Fixup 0.1, cosine, mixup 0.7; weight decay 1e-4."""
    alexnet, fixup = Training("alexnet", "shapes", 100).recipe, Training("fixup_resnet20", "shapes", 100).recipe
    assert [alexnet.lr * alexnet.lr_factor(e) for e in (0, 29.9, 30, 60, 90)] == pytest.approx(
        [0.01, 0.01, 0.001, 1e-4, 1e-5]
    )
    assert (fixup.lr, fixup.schedule, fixup.mixup) == (0.1, "cosine", 0.7)
    for recipe in (alexnet, fixup):
        assert (recipe.optimizer, recipe.momentum, recipe.weight_decay) == ("sgd", 0.9, 1e-4)


def test_trained_pairs_are_judged_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRAININGS, "quick", TRAININGS["quick"][1:])
    monkeypatch.setattr(table2_training, "IG_STEPS", 32)
    monkeypatch.setattr(table2_recipes, "COMPARED", 10)
    exact = ["scales only", "classifier's bias only"]  # the latter adds a constant, which no gradient sees
    forms = {form: table2_recipes.LEFT[form] for form in (*exact, "shifts before ReLUs only")}
    monkeypatch.setattr(table2_recipes, "LEFT", forms)
    plan = table2_recipes.plan(Setting("quick"))
    records = Records(tmp_path / "quick.json", command="test", data=plan.data, settings=plan.settings)
    before = torch.get_rng_state()
    for work in plan.stages[0](records):
        torch.set_rng_state(before)
        records.piece(work.compute, **work.key)
    regular, homogeneous, *between = table2_recipes.table(records).rows
    assert regular[1:3] == ("Fixup-ResNet-20, ½ of the channels", "regular")
    assert float(str(homogeneous[6]).split()[0]) < 1 < float(str(regular[6]).split()[0])
    assert [row[2] for row in between] == list(forms)
    for row in between:
        assert (float(str(row[6])) < 1) == (row[2] in exact)
        assert float(str(row[5])) == pytest.approx(float(str(regular[3])) - float(str(row[3])), abs=0.11)
    for piece in records.pieces:
        losses = piece.values["loss"]
        assert losses[-1] < losses[0]
    assert "mixup 0.7" in str(plan.settings["trained_with"])


def test_groups_of_shifts_and_scales_make_up_the_whole() -> None:
    """A regular network has what X has and these; each shift is in one group."""
    left = table2_recipes.LEFT
    names = {
        name.rpartition(".")[2]
        for name, _ in table2_training.get_model("fixup_resnet20", width=0.25).named_parameters()
    }
    groups = [set(left[form]) for form in left if form not in ("scales only", "shifts only")]
    assert set.union(*groups) == set(left["shifts only"]) == names - {"weight", "scale"}
    assert sum(map(len, groups)) == len(left["shifts only"])
