"""Localisation against loops over pixels and thresholds."""

import pytest
import torch

from axiograd.errors import ConfigurationError, InputError, NotFiniteError
from axiograd.metrics import best_overlap, boxes_to_masks, energy_inside, pointing_game


@pytest.fixture
def case():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(6, 3, 5, 7, dtype=torch.float64, generator=generator)
    a[2] = a[2].round()  # ties
    a[3] = -a[3].abs()
    a[4] = 0
    masks = torch.rand(6, 5, 7, generator=generator) > 0.6
    return a, masks


def test_boxes_are_half_open():
    mask = boxes_to_masks(torch.tensor([[2, 1, 5, 3]]), 4, 6)[0]
    for y in range(4):
        for x in range(6):
            assert bool(mask[y, x]) == (2 <= x < 5 and 1 <= y < 3)


def test_energy(case):
    a, masks = case
    for sample, share in enumerate(energy_inside(a, masks)):
        pixels = a[sample].sum(0).clamp(min=0)
        total, inside = float(pixels.sum()), float(pixels[masks[sample]].sum())
        assert float(share) == pytest.approx(inside / total if total else 0.0)


def test_pointing_game(case):
    a, masks = case
    for tolerance in (0, 1, 2):
        hits = pointing_game(a, masks, tolerance=tolerance)
        for sample in range(len(a)):
            y, x = divmod(int(a[sample].sum(0).argmax()), 7)
            near = masks[sample, max(0, y - tolerance) : y + tolerance + 1, max(0, x - tolerance) : x + tolerance + 1]
            assert bool(hits[sample]) == bool(near.any())


def test_best_overlap(case):
    a, masks = case
    found = best_overlap(a, masks)
    for sample in range(len(a)):
        pixels, region = a[sample].sum(0), masks[sample]
        overlaps = {}
        for threshold in pixels.unique().tolist():
            chosen = pixels >= threshold
            overlaps[threshold] = float((chosen & region).sum()) / float((chosen | region).sum())
        assert float(found.iou[sample]) == pytest.approx(max(overlaps.values()))
        assert overlaps[float(found.threshold[sample])] == pytest.approx(max(overlaps.values()))


def test_boxes_and_masks_agree(case):
    a, _ = case
    boxes = torch.tensor([[0, 0, 3, 2], [1, 1, 2, 2], [0, 0, 7, 5], [4, 2, 7, 5], [0, 3, 7, 5], [2, 2, 9, 9]])
    masks = boxes_to_masks(boxes, 5, 7)
    for metric in (energy_inside, pointing_game):
        assert torch.equal(metric(a, boxes), metric(a, masks))
    assert torch.equal(best_overlap(a.sum(1), boxes).iou, best_overlap(a, masks.unsqueeze(1)).iou)
    assert float(energy_inside(a, boxes)[2]) == 1.0


def test_wrong_arguments_are_named(case):
    a, masks = case
    with pytest.raises(InputError, match="region of sample 1 contains no pixel"):
        energy_inside(a, masks & (torch.arange(6) != 1).reshape(-1, 1, 1))
    with pytest.raises(InputError, match=r"regions of shape \(6, 5, 6\)"):
        best_overlap(a, masks[..., 1:])
    with pytest.raises(InputError, match=r"boxes of shape \(6, 3\)"):
        pointing_game(a, torch.zeros(6, 3))
    with pytest.raises(ConfigurationError, match="tolerance=-1"):
        pointing_game(a, masks, tolerance=-1)
    with pytest.raises(InputError, match="one value per pixel"):
        energy_inside(torch.zeros(2, 3), masks)
    a[5, 0, 0, 0] = torch.nan
    with pytest.raises(NotFiniteError, match="sample 5"):
        energy_inside(a, masks)
