"""Networks as they are, stripped, calibrated, distilled and lifted: exact where they were converted, and only there."""

import pytest
import torch

from axiograd.experiments import conversion, conversion_forms
from axiograd.experiments.conversion_forms import FOLLOWING, Made, Pretrained, order
from axiograd.experiments.item import Setting
from axiograd.experiments.records import Records

FORMS = (*conversion_forms.FORMS, FOLLOWING)


@pytest.fixture
def tiny(monkeypatch):
    family = conversion_forms.FAMILIES["quick"][0]
    monkeypatch.setattr(conversion_forms, "RECIPE", conversion_forms.RECIPE.replace(epochs=1))
    monkeypatch.setattr(conversion_forms, "TEACHING", conversion_forms.TEACHING.replace(epochs=1))
    monkeypatch.setattr(conversion, "SUBJECTS", {"quick": (Pretrained(family, 20, 10, 1, 1, FORMS, 10),)})
    monkeypatch.setattr(conversion, "COUNTS", {"quick": (10, 20)})
    monkeypatch.setattr(conversion, "STEPS", 32)
    yield
    for cached in (conversion_forms.make, conversion_forms.original, conversion_forms.calibration_images):
        cached.cache_clear()


@pytest.mark.long
def test_quick(tiny, quick):
    done = quick("conversion")
    rows = {row[1]: row for row in done.table.rows}
    assert list(rows) == ["original", "its IG(32)", *FORMS[1:]]
    errors = {form: float(row[7]) for form, row in rows.items() if row[7]}
    assert errors.pop("original") > 0.01
    assert max(errors.values()) < 1e-3
    assert [rows[form][13] for form in ("calibrated", "lift", FOLLOWING)] == [20, 16, 30]
    assert (done.files[0].with_suffix(".png")).stat().st_size > 5000


def test_images_that_judge_calibrate_nothing(quick):
    for subject in conversion_forms.SUBJECTS["quick"]:
        judged, calibrating = order(subject, Setting("quick"))
        assert not set(judged) & set(calibrating)
        assert (len(judged), len(calibrating)) == (subject.judge, subject.calibrate)


def test_a_network_that_is_told_the_classes_of_its_images_has_no_others_to_take(monkeypatch, tmp_path):
    subject = conversion_forms.SUBJECTS["quick"][0]
    labels = torch.tensor([1, 4, 4, 1])
    outputs = torch.tensor([[9.0, 2, 0, 8, 1], [9, 2, 0, 8, 1], [0, 1, 0, 0, 2], [5, 0, 5, 5, -1]])
    monkeypatch.setattr(conversion, "make", lambda *_: Made(lambda places: outputs[places], 0.0, 0))
    monkeypatch.setattr(conversion, "order", lambda *_: ([0, 1, 2, 3], []))
    monkeypatch.setattr(conversion, "BATCH", 3)
    monkeypatch.setattr(
        conversion.image_networks, "batch", lambda _, places, __: (torch.tensor(places), labels[places])
    )
    found = conversion.among(subject, "original", Setting("quick"))
    assert found == {"top1": "1011", "classes": 2}

    records = Records(tmp_path / "quick.json", command="", data="", settings={"scale": "quick"})
    records.add(found, part="among", network="small", form="original")
    records.add({"top1": "1111", "classes": 2}, part="among", network="small", form="lift")
    note = conversion.table(records).note
    assert "among those 2 classes, the original has 75.0 ± 25.0 % top-1" in note
    assert "lose, in points: lift -25.0 ± 25.0." in note
