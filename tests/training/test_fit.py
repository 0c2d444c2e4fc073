"""Oracle: the same loop written out by hand with torch's own optimizer."""

import copy
import csv
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd._io import load_tensors
from axiograd.attribution import InputXGradient, XGradient
from axiograd.errors import ConfigurationError, NotFiniteError, StorageError
from axiograd.priors import Gini, RightReasons
from axiograd.training import AttributionLoss, Recipe, checkpoint, fit
from axiograd.training.batches import Order
from support.training_run import make_loss


def make_data(n=40, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=generator, dtype=dtype)
    return x, (x[:, 0] > x[:, 1]).long()


def make_model(bias=False, dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8, bias=bias), nn.ReLU(), nn.Linear(8, 2, bias=bias)).to(dtype)


def cpu_fit(model, data, **settings):
    return fit(model, data, **{"loss": F.cross_entropy, "accelerator": "cpu", "progress": False, **settings})


def by_hand(model, data, recipe, loss, seed):
    """What `fit` should do, with torch alone; the order of samples is the one thing it is told."""
    (x, y), order, step = data, Order(len(data[0]), recipe.batch_size, seed=seed), 0
    optimizer = torch.optim.SGD(
        model.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, recipe.step_epochs, recipe.step_factor)
    for epoch in range(recipe.epochs):
        order.at(epoch)
        for batch in order:
            rows = list(batch.indices)
            optimizer.zero_grad()
            loss(model, x[rows], y[rows]).backward()
            if recipe.clip:
                nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimizer.step()
            step += 1
        schedule.step()
    return step


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("prior", [False, True])
def test_equals_the_loop_by_hand(clip, prior):
    recipe = Recipe(lr=0.5, epochs=4, batch_size=16, clip=clip, step_epochs=2)
    data, model = make_data(), make_model()
    other = copy.deepcopy(model)
    if prior:
        loss = AttributionLoss(F.cross_entropy, Gini(), 0.3, XGradient)
        written = AttributionLoss(F.cross_entropy, Gini(), 0.3, XGradient)
        steps = by_hand(other, data, recipe, lambda m, x, y: written(m, x, y).total, seed=7)
    else:
        loss = F.cross_entropy
        steps = by_hand(other, data, recipe, lambda m, x, y: F.cross_entropy(m(x), y), seed=7)
    result = cpu_fit(model, data, loss=loss, recipe=recipe, seed=7)
    assert result.steps == steps == 12
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-7)


@pytest.mark.parametrize("folder", [False, True])
def test_the_best_weights_by_validation_are_kept(tmp_path, folder):
    seen = []

    def metric(outputs, targets):
        seen.append((outputs, [0.1, 0.7, 0.3, float("nan")][len(seen)]))
        return seen[-1][1]

    x, y = make_data()
    model = make_model()
    out = tmp_path if folder else None
    recipe = Recipe(lr=0.5, epochs=4, batch_size=8)
    result = cpu_fit(model, (x, y), validation=(x, y), metric=metric, recipe=recipe, out=out)
    assert result.best == {"step": 10, "epoch": 2, "validation": 0.7}
    torch.testing.assert_close(model(x), seen[1][0])
    assert not torch.allclose(seen[1][0], seen[3][0], rtol=0.01, atol=0.01)
    assert [row["validation"] for row in result.history[:3]] == [0.1, 0.7, 0.3]
    if folder:
        assert torch.equal(load_tensors(result.weights)["0.weight"], model[0].weight)
        assert [path.name for path in checkpoint.steps(out)] == ["step-00000010", "step-00000015", "step-00000020"]


def test_the_model_mode_and_the_global_generators_stay():
    model = make_model()
    model[1].eval()
    states = random.getstate(), torch.random.get_rng_state()
    cpu_fit(model, make_data(), recipe=Recipe(epochs=1), validation=make_data(), metric="accuracy")
    assert (model.training, model[0].training, model[1].training) == (True, True, False)
    assert random.getstate() == states[0]
    assert torch.equal(torch.random.get_rng_state(), states[1])


def test_learns_and_writes_metrics(tmp_path):
    recipe = Recipe(optimizer="adam", lr=0.05, schedule="cosine", epochs=15, batch_size=20, weight_decay=0.0)
    data = make_data(200)
    result = cpu_fit(
        make_model(),
        data,
        loss=make_loss(),
        validation=data,
        metric="accuracy",
        recipe=recipe,
        out=tmp_path,
        log_steps=5,
    )
    assert result.best["validation"] > 0.95
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"step", "epoch", "lr", "total", "task", "prior", "gradient_norm"} <= rows[0].keys()
    assert [int(row["step"]) for row in rows if row["kind"] == "steps"] == list(range(5, 151, 5))
    epochs = [row for row in rows if row["kind"] == "epoch"]
    assert [float(row["task"]) for row in epochs] == [row["task"] for row in result.history]
    assert list((tmp_path / "tensorboard").iterdir())


def test_masks_reach_the_prior():
    x, y = make_data()
    mask = torch.zeros_like(x)
    mask[:, 0] = 1
    data = [(x[i], y[i], {"mask": mask[i]}) for i in range(len(x))]
    settings = {"recipe": Recipe(lr=0.1, epochs=20, batch_size=10)}
    free, kept = make_model(), make_model()
    cpu_fit(free, data, loss=AttributionLoss(F.cross_entropy, RightReasons(), 0.0), **settings)
    cpu_fit(kept, data, loss=AttributionLoss(F.cross_entropy, RightReasons(), 3.0), **settings)
    share = [InputXGradient(m).attribute(x, y)[:, 0].abs().mean() for m in (free, kept)]
    assert share[1] < 0.3 * share[0]
    with pytest.raises(ConfigurationError, match="arguments for a prior \\(mask\\)"):
        cpu_fit(make_model(), data, recipe=Recipe(epochs=1))


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.float32), ("64-true", torch.float64)])
@pytest.mark.parametrize("mixed_up", [0.0, 0.7])
def test_precisions_with_a_prior(precision, dtype, mixed_up):
    model = make_model()
    loss = AttributionLoss(F.cross_entropy, Gini(), 0.1, degree=1)
    recipe = Recipe(epochs=3, batch_size=8, lr=0.1, mixup=mixed_up)
    data = make_data()
    result = cpu_fit(model, data, loss=loss, recipe=recipe, validation=data, precision=precision)
    assert model[0].weight.dtype == dtype
    assert result.history[-1]["task"] < result.history[0]["task"]


def test_not_finite_loss_stops_with_term_step_and_sample(tmp_path):
    x, y = make_data()
    x[23, 2] = torch.inf
    recipe = Recipe(epochs=2, batch_size=8)
    order = Order(40, 8, seed=0)
    step = 1 + next(i for i, batch in enumerate(order) if 23 in batch.indices)
    model = make_model()
    with pytest.raises(NotFiniteError, match=rf"epoch 1, step {step}: total = nan \(from sample 23 of the data set\)"):
        cpu_fit(model, (x, y), recipe=recipe, out=tmp_path, checkpoint_steps=1)
    assert model[0].weight.isfinite().all()
    good = checkpoint.latest(tmp_path)
    assert (0 if good is None else good.step) == step - 1


def test_not_finite_gradient_stops_too():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(4))

        def forward(self, x):
            return (x * self.w).sum(1).abs().sqrt()

    model = Root()
    with pytest.raises(NotFiniteError, match=r"step 1: the loss is finite .* norm of its gradient is nan"):
        cpu_fit(model, make_data(), loss=lambda outputs, target: outputs.mean(), recipe=Recipe(epochs=1))
    assert model.w.isfinite().all()


def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")
    for out in (file, file / "below"):
        with pytest.raises(StorageError, match=r"Cannot write to the folder .*file' is not a writable folder"):
            fit(nn.Linear(2, 1), (torch.zeros(4, 2), torch.zeros(4, 1)), loss=F.mse_loss, out=out)
    assert file.read_text() == "precious"
