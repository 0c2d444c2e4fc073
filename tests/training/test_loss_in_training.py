"""The loss in the circumstances that training has."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from axiograd.attribution import (
    XGradient,
)
from axiograd.priors import L1, RightReasons
from axiograd.training.loss import AttributionLoss
from support.small_xdnn import MASK, Net, Y, grads, make_inputs, make_net, xgradient_loss


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
