import torch

from axiograd.homogeneity.conversion.scale import joint_rms, per_sample, safe_divide, sample_rms


def test_sample_rms_is_that_of_each_sample():
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    expected = torch.stack([row.square().mean().sqrt() for row in x])
    torch.testing.assert_close(sample_rms(x).flatten(), expected)
    torch.testing.assert_close(sample_rms(x.transpose(0, 1), batch_dim=1).flatten(), expected)
    assert sample_rms(x, None).shape == (1, 1, 1)


def test_half_precision_does_not_overflow():
    x = torch.full((1, 4), 300.0, dtype=torch.float16)
    assert sample_rms(x).item() == 300.0


def test_division_at_zero_has_value_and_gradients_zero():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    y = safe_divide(x, sample_rms(x))
    (gradient,) = torch.autograd.grad(y.square().sum() + y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    assert y[0].tolist() == [0.0, 0.0]
    assert torch.isfinite(gradient).all()
    assert torch.isfinite(second).all()


def test_joint_rms_of_a_split_is_that_of_the_whole():
    x = torch.randn(4, 6)
    torch.testing.assert_close(joint_rms([x[:, :1], x[:, 1:]]), joint_rms([x]))


def test_along_lines_up_with_the_batch():
    rho = torch.tensor([1.0, 2.0])
    assert (per_sample(rho, torch.ones(2, 3, 3)) * torch.ones(2, 3, 3))[1].unique().item() == 2.0
