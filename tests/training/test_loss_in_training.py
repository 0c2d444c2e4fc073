"""The loss in the circumstances that training has."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from axiograd.attribution import ExpectedGradients, Gradient, IntegratedGradients, XGradient
from axiograd.priors import L1, RightReasons
from axiograd.training.loss import AttributionLoss
from support.small_xdnn import CLASSES, FEATURES, MASK, Net, Y, grads, make_inputs, make_net, xgradient_loss


@pytest.fixture(name="model")
def _model() -> Net:
    return make_net()


@pytest.fixture(name="x")
def _x() -> torch.Tensor:
    return make_inputs()


def test_accumulation_of_a_per_sample_prior_is_exact(model: Net, x: torch.Tensor) -> None:
    loss = xgradient_loss()
    loss(model, x[:4], Y[:4], mask=MASK[:4]).total.backward()
    whole = grads(model)
    model.zero_grad()
    for part in (slice(0, 2), slice(2, 4)):
        (loss(model, x[part], Y[part], mask=MASK[part]).total / 2).backward()
    torch.testing.assert_close(grads(model), whole, rtol=1e-12, atol=1e-15)


def test_bfloat16_autocast_is_close_to_float32(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    model, x = Net(dtype=torch.float32), x.float()
    loss = xgradient_loss(L1())
    loss(model, x, Y).total.backward()
    exact = grads(model)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        terms = loss(model, x, Y)
    assert terms.outputs.dtype == torch.bfloat16
    assert terms.total.dtype == torch.float32
    terms.total.backward()
    assert F.cosine_similarity(grads(model), exact, dim=0) > 0.995


@pytest.mark.parametrize("outputs", ["target", "random"])
def test_non_reentrant_checkpointing_changes_nothing(outputs, model: Net, x: torch.Tensor) -> None:
    def run(forward):
        model.zero_grad()
        torch.manual_seed(0)
        xgradient_loss(outputs=outputs)(forward, x, Y, mask=MASK).total.backward()
        return grads(model)

    plain = run(model)
    checkpointed = run(lambda v: checkpoint(model, v, use_reentrant=False))
    torch.testing.assert_close(checkpointed, plain, rtol=1e-13, atol=1e-15)


def test_training_with_the_prior_removes_a_wrong_reason() -> None:
    torch.manual_seed(0)
    signal = torch.randn(256, 1)
    y = (signal[:, 0] > 0).long()
    x = torch.cat([signal + 0.5 * torch.randn(256, 1), 2.0 * y[:, None] - 1.0, torch.randn(256, 2)], 1)
    mask = torch.tensor([False, True, False, False]).expand(256, 4)

    def share_of_decoy(weight: float) -> float:
        torch.manual_seed(1)
        model = Net(2, 4, torch.float32)
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        loss = AttributionLoss(F.cross_entropy, RightReasons(), weight, outputs="random", degree=1)
        for _ in range(120):
            optimizer.zero_grad()
            terms = loss(model, x, y, mask=mask)
            terms.total.backward()
            optimizer.step()
        a = XGradient(model, degree=1).attribute(x, y).abs().mean(0)
        return float(a[1] / a.sum())

    assert share_of_decoy(0.0) > 0.5
    assert share_of_decoy(10.0) < 0.05


@pytest.mark.parametrize("outputs", ["target", "all", "random"])
def test_a_step_is_one_forward_pass_for_batch_norm_and_dropout(outputs, x: torch.Tensor) -> None:
    """Also the first, in which the loss looks at the model before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, CLASSES)).double()
    plain = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    loss = AttributionLoss(F.cross_entropy, L1(), method=Gradient, outputs=outputs, generator=generator)
    for step in range(3):
        torch.manual_seed(step)
        terms = loss(model, x, Y)
        torch.manual_seed(step)
        torch.testing.assert_close(terms.outputs, plain(x))
    assert model[1].num_batches_tracked == 3
    torch.testing.assert_close(model.state_dict(), plain.state_dict())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (IntegratedGradients, {"n_steps": 4}),
        (IntegratedGradients, {"n_steps": 4, "internal_batch_size": 3}),
        (ExpectedGradients, {"references": 3 + torch.randn(20, FEATURES, dtype=torch.float64), "n_samples": 3}),
    ],
    ids=["IG", "IG in chunks", "EG"],
)
def test_points_on_paths_do_not_count_in_batch_norms_statistics(method, options, x: torch.Tensor) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES)).double()
    plain = copy.deepcopy(model)
    buffers = {name: id(buffer) for name, buffer in model.named_buffers()}
    loss = AttributionLoss(F.cross_entropy, L1(), method=method, **options)
    for _ in range(3):
        model.zero_grad()
        terms = loss(model, x + 3, Y)
        terms.total.backward()
        torch.testing.assert_close(terms.outputs, plain(x + 3))
        assert grads(model).isfinite().all()
        assert all(p.grad.any() for name, p in model.named_parameters() if name != "0.bias")  # BatchNorm's mean eats it
    torch.testing.assert_close(model.state_dict(), plain.state_dict())
    assert model[1].num_batches_tracked == 3
    assert buffers == {name: id(buffer) for name, buffer in model.named_buffers()}


class RunningScale(nn.Module):
    """Divides by a statistic that it updates in place, and that backward() needs as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))

    def forward(self, x):
        if self.training:
            self.scale.mul_(0.9).add_(0.1 * x.detach().abs().mean())
        return x / self.scale


def test_each_pass_on_a_path_starts_from_the_same_buffers(x: torch.Tensor) -> None:
    model = nn.Sequential(RunningScale(), make_net())
    plain = copy.deepcopy(model)
    loss = AttributionLoss(F.cross_entropy, L1(), method=IntegratedGradients, n_steps=4)
    loss(model, x, Y).total.backward()
    assert grads(model).isfinite().all()
    plain(x)
    torch.testing.assert_close(model[0].scale, plain[0].scale)


def test_a_compiled_module_is_trained_as_it_is_written(model: Net, x: torch.Tensor) -> None:
    xgradient_loss()(model, x, Y, mask=MASK).total.backward()
    expected = grads(model)
    model.zero_grad()
    xgradient_loss()(torch.compile(model, backend="eager"), x, Y, mask=MASK).total.backward()
    torch.testing.assert_close(grads(model), expected)
