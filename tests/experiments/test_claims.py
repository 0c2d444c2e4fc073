"""Verdicts on the paper's claims follow the records, also where they turn against them."""

from pathlib import Path

import pytest

from axiograd.experiments import claims, verdicts
from axiograd.experiments.records import Records, read

ROOT = Path(__file__).parents[2]


def records(tmp_path, settings=None, *pieces):
    made = Records(
        tmp_path / "real.json", command="mine", data="photos", settings={"scale": "real", **(settings or {})}
    )
    for key, values in pieces:
        made.add(values, **key)
    return made


def test_this_repository_s_page_is_up_to_date():
    assert (ROOT / "docs" / "what-reproduces.md").read_text() == claims.page(ROOT / "results")


@pytest.mark.parametrize(
    ("lost", "verdict"), [((0.5, 0.7), "reproduces"), ((9.0, 9.2), "does not"), ((-2.0, 3.0), "does not")]
)
def test_lost_accuracy(tmp_path, lost, verdict):
    pieces = [
        ({"part": "trained", "data": "d", "network": "alexnet", "kind": kind, "seed": seed}, {"top1": top1})
        for seed, points in enumerate(lost)
        for kind, top1 in (("regular", 80.0), ("X", 80.0 - points))
    ]
    said, found = verdicts.accuracy(records(tmp_path, None, *pieces))
    assert found == verdict
    assert f"AlexNet on d {sum(lost) / 2:.1f} ± {abs(lost[1] - lost[0]) / 2:.1f}" in said


@pytest.mark.parametrize(
    ("areas", "verdict", "said"),
    [
        (([5.0, 5.2, 4.8], [4.0, 4.1, 3.9]), "reproduces", "1 of 1 pairs"),
        (
            ([4.0, 4.1, 3.9], [5.0, 5.2, 4.8]),
            "does not",
            "1 by more: KPM of IG (128) minus Random, SqueezeNet 1.1, regular: -1.00",
        ),
        (([4.0, 6.0, 5.0], [5.1, 4.9, 5.3]), "does not", "1 are reversed by less than two standard errors"),
        (
            ([5.0, 5.0, 5.0], [5.0, 5.0, 5.0]),
            "does not",
            "0 of 1 pairs are in the paper's order (0 by more than two standard errors), 1 are equal",
        ),
    ],
)
def test_the_order_of_methods(tmp_path, monkeypatch, areas, verdict, said):
    monkeypatch.setattr("axiograd.experiments.table3.METRICS", ("KPM",))
    pieces = [
        ({"network": "squeezenet1_1", "form": "regular", "method": method, "images": [0, 3]}, {"KPM": values})
        for method, values in zip(("IG (128)", "Random"), areas, strict=True)
    ]
    text, found = verdicts.order(records(tmp_path, None, *pieces))
    assert found == verdict
    assert said in text


@pytest.mark.parametrize(
    ("one", "many", "verdict"),
    [
        ([5.0, 5.2, 4.8], [5.1, 5.1, 4.9], "reproduces"),
        ([5.0, 5.2, 4.8], [6.0, 6.2, 5.81], "does not"),
        ([5.0, 5.2, 4.8], [6.0, 6.2, 5.8], "does not"),  # apart by the same on all images: no error to hide behind
        ([5.0, 5.2, 4.8], [5.0, 5.2, 4.8], "reproduces"),
    ],
)
def test_on_par_is_judged_image_by_image(tmp_path, monkeypatch, one, many, verdict):
    monkeypatch.setattr("axiograd.experiments.table3.METRICS", ("KPM",))
    pieces = [
        ({"network": "squeezenet1_1", "form": "lifted", "method": method, "images": [0, 3]}, {"KPM": values})
        for method, values in (("X-Gradient (1)", one), ("IG (128)", many))
    ]
    assert verdicts.on_par(records(tmp_path, None, *pieces))[1] == verdict


@pytest.mark.parametrize(
    ("behind", "verdict"), [({1: 0.05}, "in part"), ({1: 0.05, 8: 0.01}, "reproduces"), ({}, "does not")]
)
def test_expected_gradients_catches_up_where_it_is_not_behind(tmp_path, behind, verdict):
    pieces = [
        (
            {"model": model, "weight": 1.0, "references": n, "first": 0, "count": 3},
            {
                "val": [0.8] * 3,
                "test": [auc - behind.get(n, 0.0) * (model == "eg") for auc in (0.77, 0.78, 0.76)],
                "seconds": 1,
            },
        )
        for model, n in (("x-gradient", 1), *(("eg", n) for n in (1, 8, 32)))
    ]
    said, found = verdicts.catching_up(records(tmp_path, {"subsamples": 3, "references": [1, 8, 32]}, *pieces))
    assert found == verdict
    assert f"with up to {max(behind, default=0)}, by the means" in said


@pytest.mark.parametrize(("gap", "verdict"), [(0.0, "reproduces"), (-0.001, "reproduces"), (-0.02, "does not")])
def test_a_network_without_biases_may_not_be_worse(tmp_path, gap, verdict):
    tests = {"unregularised": [0.70, 0.72, 0.71], "unregularised-x": [0.701 + gap, 0.719 + gap, 0.71 + gap]}
    pieces = [
        (
            {"model": name, "weight": 0.0, "references": 1, "first": 0, "count": 3},
            {"val": [0.7] * 3, "test": test, "seconds": 1},
        )
        for name, test in tests.items()
    ]
    said, found = verdicts.no_worse(records(tmp_path, {"subsamples": 3}, *pieces))
    assert found == verdict
    assert f"{gap:+.4f} ± 0.0006" in said


@pytest.mark.parametrize(
    ("times", "memory", "found"),
    [((200, 150), 5, ("reproduces", "reproduces")), ((200, 20), 3, ("in part", "does not"))],
)
def test_the_worst_setting_decides_how_much_is_spared(tmp_path, times, memory, found):
    pieces = [
        ({"network": "mlp", "what": w}, {"EG_over_prior": t}) for w, t in zip(("time", "default"), times, strict=True)
    ]
    given = records(tmp_path, None, *pieces, ({"network": "mlp", "what": "memory"}, {"EG": memory, "prior": 1}))
    assert (verdicts.cheaper(given)[1], verdicts.lighter(given)[1]) == found


def test_images_are_counted_by_network(tmp_path):
    keys = [{"network": "squeezenet1_1", "form": f, "images": i} for f in "ab" for i in ([0, 4], [4, 6])]
    found = records(tmp_path, None, *((key, {}) for key in keys), ({"network": "resnet50", "image": 7}, {}))
    assert claims.images(found) == "6 (SqueezeNet 1.1), 1 (ResNet-50)"


def test_every_claim_has_records_here_and_a_verdict():
    rows = [row for claim in claims.CLAIMS for row in claims.judged(claim, ROOT / "results")]
    assert len(rows) == len(claims.CLAIMS)
    assert {row[-1] for row in rows} <= {"reproduces", "in part", "does not"}


def test_maps_that_change_are_said_to_change(tmp_path):
    values = {"networks": {"regular": {"change_fast": 0.05}, "stripped": {"change_fast": 0.01}}}
    assert verdicts.scaled_maps(records(tmp_path, None, ({"image": 1}, values)))[1] == "does not"
    assert verdicts.scaled_maps(read(ROOT / "results" / "fig4" / "real.json"))[1] == "reproduces"


def test_a_run_that_is_not_complete_says_so(tmp_path):
    (tmp_path / "fig4").mkdir()
    records(
        tmp_path / "fig4",
        None,
        ({"image": 1}, {"networks": {"regular": {"change_fast": 0.05}, "X": {"change_fast": 0.0}}}),
    )
    (claim,) = (each for each in claims.CLAIMS if each.item == "fig4")
    (row,) = claims.judged(claim, tmp_path)
    assert "Not complete" not in row[3]
    unfinished = read(tmp_path / "fig4" / "real.json")
    unfinished.missing = "3 of 4 pieces are missing"
    unfinished.save()
    (row,) = claims.judged(claim, tmp_path)
    assert row[3].endswith("Not complete: 3 of 4 pieces are missing.")


@pytest.mark.parametrize(
    ("fresh", "verdict"),
    [((0.02, 0.03), "reproduces"), ((-0.01, 0.02), "does not"), ((0.004, 0.005), "in part")],
)
def test_further_subsamples_decide_on_the_best_prior(tmp_path, fresh, verdict):
    tests = {"x-gradient": [0.78, 0.79], "eg": [0.75, 0.77]}
    pieces = [
        ({"model": name, "weight": 1.0, "references": 1, "first": first, "count": 2}, {"val": [0.8] * 2, "seconds": 1})
        for first in (0, 2)
        for name in tests
    ]
    for key, values in pieces:
        values["test"] = tests[key["model"]] if key["first"] == 0 else [0.7, 0.7]
        if key["first"] and key["model"] == "x-gradient":
            values["test"] = [0.7 + gap for gap in fresh]
    said, found = verdicts.best_prior(records(tmp_path, {"subsamples": 2}, *pieces))
    assert found == verdict
    assert f"+0.0250 ± 0.0050 on 2 subsamples, {sum(fresh) / 2:+.4f}" in said
