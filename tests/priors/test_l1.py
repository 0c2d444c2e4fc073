import torch

from axiograd.priors import L1


def test_value_is_the_mean_of_sums() -> None:
    attributions = torch.tensor([[[1.0, -2.0]], [[0.0, 4.0]]])
    assert L1()(attributions).item() == 3.5
