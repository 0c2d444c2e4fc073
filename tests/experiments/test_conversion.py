"""Networks as they are, stripped, calibrated, distilled and lifted: exact where they were converted, and only there."""

import pytest

from axiograd.experiments import conversion, conversion_forms
from axiograd.experiments.conversion_forms import FOLLOWING, Pretrained, order

FORMS = (*conversion_forms.FORMS, FOLLOWING)
from axiograd.experiments.item import Setting


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
