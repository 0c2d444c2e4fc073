import pytest
import torch

from axiograd.errors import ConfigurationError, InputError
from axiograd.priors import Energy

torch.manual_seed(0)
A = torch.randn(3, 2, 5, 6, dtype=torch.float64)
BOXES = torch.tensor([[0, 0, 2, 3], [1, 2, 6, 5], [4, 4, 5, 5]])


def by_loop(attributions: torch.Tensor, boxes: list[list[list[int]]]) -> float:
    values = []
    for image, corners in zip(attributions.sum(1), boxes, strict=True):
        inside = torch.zeros(5, 6, dtype=torch.bool)
        for x0, y0, x1, y1 in corners:
            inside[y0:y1, x0:x1] = True
        positive = image.clamp(min=0)
        values.append(1 - (positive[inside].sum() / positive.sum()).item())
    return sum(values) / len(values)


def test_value_equals_slices() -> None:
    expected = by_loop(A, [[box] for box in BOXES.tolist()])
    assert Energy()(A, boxes=BOXES).item() == pytest.approx(expected, rel=1e-13)


def test_several_boxes_unite() -> None:
    lists = [[[0, 0, 2, 3], [1, 1, 4, 4]], [[0, 0, 1, 1]], [[2, 2, 6, 5], [0, 0, 6, 1], [0, 0, 3, 3]]]
    expected = by_loop(A, lists)
    as_list = [torch.tensor(boxes) for boxes in lists]
    padded = torch.full((3, 3, 4), torch.nan)
    for row, boxes in zip(padded, as_list, strict=True):
        row[: len(boxes)] = boxes
    assert Energy()(A, boxes=as_list).item() == pytest.approx(expected, rel=1e-13)
    assert Energy()(A, boxes=padded).item() == pytest.approx(expected, rel=1e-13)


def test_masks_say_the_same_as_boxes() -> None:
    inside = torch.zeros(3, 5, 6)
    for row, (x0, y0, x1, y1) in zip(inside, BOXES.tolist(), strict=True):
        row[y0:y1, x0:x1] = 1
    expected = Energy()(A, boxes=BOXES)
    torch.testing.assert_close(Energy()(A, inside=inside), expected)
    torch.testing.assert_close(Energy()(A, inside=inside[:, None]), expected)
    torch.testing.assert_close(Energy()(A, inside=list(inside)), expected)


def test_samples_without_boxes_add_nothing() -> None:
    expected = by_loop(A[:1], [[[0, 0, 2, 3]]]) / 3
    assert Energy()(A, boxes=[BOXES[0], None, torch.empty(0, 4)]).item() == pytest.approx(expected)
    has_inside = torch.tensor([True, False, False])
    assert Energy()(A, boxes=BOXES, has_inside=has_inside).item() == pytest.approx(expected)


def test_without_positive_attribution_nothing_is_inside() -> None:
    assert Energy()(-A.abs(), boxes=BOXES) == 1


def test_descent_moves_attribution_inside() -> None:
    attributions = A.clone().requires_grad_()
    for _ in range(50):
        (gradient,) = torch.autograd.grad(Energy()(attributions, boxes=BOXES), attributions)
        attributions = (attributions - 5 * gradient).detach().requires_grad_()
    assert Energy()(attributions, boxes=BOXES) < 0.5 * Energy()(A, boxes=BOXES)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="got both"):
        Energy()(A, boxes=BOXES, inside=torch.ones(3, 5, 6))
    with pytest.raises(ConfigurationError, match="'boxes' must be"):
        Energy()(A, boxes=BOXES[:2])
    with pytest.raises(InputError, match="attributions of images"):
        Energy()(torch.ones(3, 4), boxes=BOXES)


@pytest.mark.parametrize("box", [[3, 3, 0, 0], [0, 3, 2, 0], [2, 2, 2, 4], [6, 0, 9, 3], [-3, 0, 0, 3]], ids=str)
def test_boxes_without_a_pixel_are_refused(box: list[int]) -> None:
    boxes = BOXES.clone()
    boxes[1] = torch.tensor(box)
    with pytest.raises(InputError, match=r"the boxes of sample 1 contain no pixel.*x0 < x1"):
        Energy()(A, boxes=boxes)
    Energy()(A, boxes=boxes, has_inside=torch.tensor([True, False, True]))
    Energy()(A, boxes=[boxes[0], torch.stack([boxes[0], boxes[1]]), boxes[2]])  # they unite, and one has pixels
