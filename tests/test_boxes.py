"""One box has one meaning: prior and metric cover the same pixels."""

import pytest
import torch

from axiograd.errors import AxiogradError
from axiograd.metrics import boxes_to_masks, energy_inside
from axiograd.priors import Energy

HEIGHT, WIDTH = 5, 7
BOXES = [
    [1, 0, 3, 2],
    [1.5, 0.5, 3.5, 2.5],
    [0.49, 0.51, 1.51, 1.49],
    [-2.0, -1.0, 9.0, 1.0],
    [2.0, 2.0, 2.6, 2.6],
    [0.0, 0.0, 7.0, 5.0],
]


def by_hand(box: list[float]) -> torch.Tensor:
    x0, y0, x1, y1 = box
    return torch.tensor([[x0 <= j + 0.5 < x1 and y0 <= i + 0.5 < y1 for j in range(WIDTH)] for i in range(HEIGHT)])


def by_prior(box: torch.Tensor) -> torch.Tensor:
    """A pixel is inside where all attribution on it alone is."""
    found = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    for i in range(HEIGHT):
        for j in range(WIDTH):
            alone = torch.zeros(1, 1, HEIGHT, WIDTH)
            alone[0, 0, i, j] = 1
            found[i, j] = Energy()(alone, boxes=box[None]) == 0
    return found


@pytest.mark.parametrize("box", BOXES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_prior_and_metric_agree(box: list[float], dtype: torch.dtype) -> None:
    given = torch.tensor(box, dtype=dtype)
    expected = by_hand(given.tolist())
    assert torch.equal(boxes_to_masks(given[None], HEIGHT, WIDTH)[0], expected)
    if expected.any():
        assert torch.equal(by_prior(given), expected)
        a = torch.rand(1, HEIGHT, WIDTH, dtype=torch.float64)
        assert energy_inside(a, given[None]).item() == pytest.approx(1 - Energy()(a[:, None], boxes=given[None]).item())


def test_boxes_side_by_side_share_no_pixel() -> None:
    halves = torch.tensor([[0.0, 0.0, 2.5, 5.0], [2.5, 0.0, 7.0, 5.0]])
    assert torch.equal(boxes_to_masks(halves, HEIGHT, WIDTH).sum(0), torch.ones(HEIGHT, WIDTH, dtype=torch.long))


def test_columns_of_large_images_in_half_precision() -> None:
    mask = boxes_to_masks(torch.tensor([[4096, 0, 4100, 1]], dtype=torch.float16), 1, 5000)
    assert mask.nonzero()[:, 2].tolist() == [4096, 4097, 4098, 4099]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_boxes_that_are_not_finite_are_refused(bad: float) -> None:
    boxes = torch.tensor([[0.0, 0, 2, 2], [0.0, 0, bad, 2]])
    a = torch.rand(2, 1, HEIGHT, WIDTH)
    for call in (lambda: Energy()(a, boxes=boxes), lambda: energy_inside(a, boxes)):
        with pytest.raises(AxiogradError, match="of sample 1"):
            call()
