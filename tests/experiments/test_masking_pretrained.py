"""Table 3's run on one photo: all four areas, and a second start that measures nothing anew."""

import json

import pytest
import torch

from axiograd.errors import DataMissingError
from axiograd.experiments import masking_pretrained
from axiograd.experiments.masking_pretrained import METHODS, masking_table


def test_one_photo_and_a_resumed_run(tmp_path, monkeypatch):
    options = {"n_photos": 1, "only_networks": ["stripped"], "only_methods": ["X-Gradient (1)"]}
    try:
        (entry,) = masking_table(tmp_path, **options)
    except DataMissingError as error:
        pytest.skip(str(error))
    assert entry.areas.shape == (1, 4)
    kpm, knm, kam, ram = entry.areas[0].tolist()
    assert kpm > knm  # keeping what speaks for the class keeps its logit higher than keeping what speaks against it
    assert 0 <= ram <= 100
    assert 0 <= kam <= 100
    stored = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert stored["areas"] == entry.areas.tolist()

    def refuse(*arguments):
        raise AssertionError("measured again")

    monkeypatch.setattr(masking_pretrained, "measure", refuse)
    (again,) = masking_table(tmp_path, **options)
    assert torch.equal(again.areas, entry.areas)
    assert "stripped" in str(again)


def test_x_gradient_has_no_entry_for_the_regular_network(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(masking_pretrained, "imagenet_sample", lambda transform: [None] * 3)
    monkeypatch.setattr(masking_pretrained, "network", lambda name, photos: None)
    monkeypatch.setattr(
        masking_pretrained,
        "measure",
        lambda model, factory, photos, indices, seed, max_rows: seen.append(indices) or torch.ones(len(indices), 4),
    )
    entries = masking_table(tmp_path, only_networks=["regular", "lifted"])
    assert len(entries) == 2 * len(METHODS) - 1
    assert all(sorted(indices) == [0, 1, 2] for indices in seen)
