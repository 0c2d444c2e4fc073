"""Oracle: the same training written out by hand with torch's own optimizer, sampler and loss functions."""

import copy
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from axiograd._io import load_tensors
from axiograd.attribution import InputXGradient
from axiograd.datasets import TensorData, table
from axiograd.errors import ConfigurationError, InputError, NotFiniteError, StorageError
from axiograd.priors import Gini, RightReasons
from axiograd.training import AttributionLoss, Objective, Recipe, WithArguments, fit
from axiograd.training.module import score
from support.training_run import Augmented


def make_data(n=40, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=generator, dtype=dtype)
    return x, (x[:, 0] > x[:, 1]).long()


def make_model(bias=False, dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8, bias=bias), nn.ReLU(), nn.Linear(8, 2, bias=bias)).to(dtype)


def cpu_fit(model, data, loss=F.cross_entropy, **settings):
    return fit(model, data, loss, **{"accelerator": "cpu", "progress": False, **settings})


def by_hand(model, data, recipe, loss, seed, clip):
    (x, y), sampler, step = data, DistributedSampler(data[0], 1, 0, seed=seed), 0
    optimizer = torch.optim.SGD(
        model.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, recipe.step_epochs, recipe.step_factor)
    for epoch in range(recipe.epochs):
        sampler.set_epoch(epoch)
        for rows in torch.tensor(list(sampler)).split(recipe.batch_size):
            optimizer.zero_grad()
            loss(model, x[rows], y[rows]).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            step += 1
        schedule.step()
    return step


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("outputs", [None, "target", "residual"])
def test_equals_the_loop_by_hand(clip, outputs):
    recipe = Recipe(lr=0.5, epochs=4, batch_size=16, step_epochs=2)
    data, model = make_data(), make_model()
    other = copy.deepcopy(model)
    if outputs is None:
        loss = F.cross_entropy
        steps = by_hand(other, data, recipe, lambda m, x, y: F.cross_entropy(m(x), y), 7, clip)
    else:
        loss, written = (AttributionLoss(F.cross_entropy, Gini(), 0.3, outputs=outputs) for _ in range(2))
        steps = by_hand(other, data, recipe, lambda m, x, y: written(m, x, y).total, 7, clip)
    result = cpu_fit(model, data, loss, recipe=recipe, seed=7, gradient_clip_val=clip)
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
        assert {path.name for path in out.iterdir()} == {"best.ckpt", "last.ckpt", "logs", "model.safetensors"}


def test_the_models_mode_and_the_global_generators_stay():
    model = make_model()
    model[1].eval()
    states = random.getstate(), torch.random.get_rng_state()
    cpu_fit(model, make_data(), recipe=Recipe(epochs=1), validation=make_data(), metric="accuracy")
    assert (model.training, model[0].training, model[1].training) == (True, True, False)
    assert random.getstate() == states[0]
    assert torch.equal(torch.random.get_rng_state(), states[1])


def test_a_frozen_batch_norm_stays_frozen_and_a_loaded_model_trains():
    norm = nn.BatchNorm1d(8)
    model = nn.Sequential(nn.Linear(4, 8), norm, nn.ReLU(), nn.Linear(8, 2))
    norm.eval()
    before = norm.running_mean.clone()
    recipe = Recipe(epochs=2, batch_size=8)
    cpu_fit(model, make_data(), recipe=recipe, validation=make_data())
    assert torch.equal(norm.running_mean, before)
    model.eval()  # as it comes from a file: nothing of it is frozen
    cpu_fit(model, make_data(), recipe=recipe)
    assert not torch.equal(norm.running_mean, before)
    assert not model.training


def test_every_sample_is_read_once_an_epoch():
    data = Augmented(200)
    cpu_fit(make_model(), data, recipe=Recipe(epochs=1, batch_size=16))
    assert data.reads == 200
    judged = Augmented(50)
    cpu_fit(make_model(), data, recipe=Recipe(epochs=2, batch_size=16), validation=judged)
    assert (data.reads, judged.reads) == (600, 100)


def test_learns_and_logs(tmp_path):
    recipe = Recipe(optimizer="adam", lr=0.05, schedule="cosine", epochs=15, batch_size=20, weight_decay=0.0)
    data = make_data(200)
    loss = AttributionLoss(F.cross_entropy, Gini(), 0.01)
    result = cpu_fit(make_model(), data, loss, validation=data, metric="accuracy", recipe=recipe, out=tmp_path)
    assert result.best["validation"] > 0.95
    header = (tmp_path / "logs" / "version_0" / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"step", "epoch", "total_step", "task_epoch", "prior_epoch", "validation"} <= set(header)


def test_masks_reach_the_prior():
    x, y = make_data()
    mask = torch.zeros_like(x)
    mask[:, 0] = 1
    data = [(x[i], y[i], {"mask": mask[i]}) for i in range(len(x))]
    recipe = Recipe(lr=0.1, epochs=20, batch_size=10)
    free, kept = make_model(), make_model()
    cpu_fit(free, data, AttributionLoss(F.cross_entropy, RightReasons(), 0.0), recipe=recipe)
    cpu_fit(kept, data, AttributionLoss(F.cross_entropy, RightReasons(), 3.0), recipe=recipe)
    share = [InputXGradient(m).attribute(x, y)[:, 0].abs().mean() for m in (free, kept)]
    assert share[1] < 0.3 * share[0]
    with pytest.raises(ConfigurationError, match=r"arguments for a prior \(mask\)"):
        cpu_fit(make_model(), data, recipe=Recipe(epochs=1))


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.float32), ("64-true", torch.float64)])
@pytest.mark.parametrize("mixed_up", [0.0, 0.7])
def test_precisions_with_a_prior(precision, dtype, mixed_up):
    model = make_model()
    loss = AttributionLoss(F.cross_entropy, Gini(), 0.1, degree=1)
    recipe = Recipe(epochs=3, batch_size=8, lr=0.1, mixup=mixed_up)
    data = make_data()
    result = cpu_fit(model, data, loss, recipe=recipe, validation=data, precision=precision)
    assert model[0].weight.dtype == dtype
    assert result.history[-1]["task"] < result.history[0]["task"]


@pytest.mark.parametrize("part", ["inputs", "mask"])
def test_a_loss_that_is_not_finite_stops_with_term_step_and_sample(tmp_path, part):
    x, y = make_data()
    mask = torch.zeros_like(x)
    (x if part == "inputs" else mask)[23, 2] = torch.inf
    data = [(x[i], y[i], {"mask": mask[i]}) for i in range(40)]
    step = 1 + list(DistributedSampler(data, 1, 0)).index(23) // 8
    model = make_model()
    loss = AttributionLoss(F.cross_entropy, lambda a, mask: (a * mask).square().sum(), 0.1, InputXGradient)
    named = "NaN or Inf in the inputs" if part == "inputs" else "total = inf, prior = inf"
    with pytest.raises(NotFiniteError, match=rf"epoch 1, step {step}, sample 23 of the data set: {named}"):
        cpu_fit(model, data, loss, recipe=Recipe(epochs=2, batch_size=8), out=tmp_path)
    assert model[0].weight.isfinite().all()
    assert (tmp_path / "interrupted.ckpt").exists()


def test_a_loss_that_is_infinite_for_finite_outputs():
    x, y = make_data()
    model = make_model()

    def loss(outputs, target, reduction="mean"):
        each = torch.where((outputs.detach()[:, 0] < 1e9) & (target == 7), torch.inf, outputs.square().sum(1))
        return each if reduction == "none" else each.mean()

    y[23] = 7
    with pytest.raises(NotFiniteError, match="sample 23 of"):
        cpu_fit(model, (x, y), loss, recipe=Recipe(epochs=1, batch_size=8))


def test_weights_of_a_tables_rows_count_in_training_and_in_validation():
    rows = {"a": [0.0, 1.0, 2.0, 3.0], "y": ["n", "n", "p", "p"], "w": [1.0, 0.0, 2.0, 5.0]}
    data = table(rows, label="y", weights="w", split="all")
    model = nn.Linear(1, 2)
    result = cpu_fit(model, data, validation=data, recipe=Recipe(epochs=1, batch_size=4, lr=1e-9))
    each = F.cross_entropy(model(data.inputs), data.targets, reduction="none").detach().numpy()
    assert result.history[0]["total"] == pytest.approx(float((data.weights.numpy() * each).mean()), rel=1e-5)
    assert result.best["validation"] == pytest.approx(-np.average(each, weights=rows["w"]), rel=1e-5)


def test_scores():
    outputs, targets = torch.randn(9, 3), torch.arange(9) % 3
    assert score("loss", F.cross_entropy, outputs, targets) == pytest.approx(-float(F.cross_entropy(outputs, targets)))
    accuracy = sum(int(o.argmax() == t) for o, t in zip(outputs, targets, strict=True)) / 9
    assert score("accuracy", F.cross_entropy, outputs, targets) == accuracy
    assert score("accuracy", F.cross_entropy, outputs, F.one_hot(targets).float()) == accuracy
    assert score(lambda o, t: torch.tensor(2.5), F.cross_entropy, outputs, targets) == 2.5
    with pytest.raises(ConfigurationError, match="one class index per sample"):
        score("accuracy", F.mse_loss, outputs, torch.zeros(9))
    with pytest.raises(ConfigurationError, match="metric is 'auc'"):
        score("auc", F.mse_loss, outputs, targets)
    with pytest.raises(ConfigurationError, match="none of them counts"):
        score("accuracy", F.cross_entropy, outputs, targets, torch.zeros(9))


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
@pytest.mark.parametrize("dtype", [torch.long, torch.float32])
def test_the_accuracy_of_one_logit_is_that_of_its_sign(shape, dtype):
    logits = torch.tensor([2.0, -1.0, 3.0]).reshape(shape)
    for targets, right in (([1, 0, 1], 1.0), ([0, 0, 1], 2 / 3)):
        found = score("accuracy", F.binary_cross_entropy_with_logits, logits, torch.tensor(targets, dtype=dtype))
        assert found == pytest.approx(right)


def test_an_objective_of_ones_own():
    class Halved(Objective):
        task_loss = staticmethod(F.mse_loss)

        def forward(self, model, inputs, target):
            return SimpleNamespace(total=0.5 * self.task_loss(model(inputs), target))

    x = torch.randn(8, 2)
    result = cpu_fit(nn.Linear(2, 1), (x, x[:, :1]), Halved(), recipe=Recipe(epochs=2))
    assert result.history[1]["total"] < result.history[0]["total"]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (DataLoader(TensorDataset(torch.zeros(3))), ConfigurationError, r"pass its \.dataset"),
        ((x for x in range(3)), ConfigurationError, "needs __len__ and __getitem__"),
        ([(torch.zeros(4), 0, 0)] * 3, InputError, r"gave a \w+ of \(Tensor, Tensor, Tensor\)"),
        ([], InputError, "data has no samples"),
    ],
)
def test_data_that_cannot_be_used(data, error, message):
    with pytest.raises(error, match=message):
        cpu_fit(make_model(), data, recipe=Recipe(epochs=1))


def test_arrays_are_taken_as_tensors_are():
    (x, y), models = make_data(), (make_model(), make_model())
    for model, data in zip(models, ((x, y), (x.numpy(), y.numpy())), strict=True):
        cpu_fit(model, data, recipe=Recipe(epochs=1, batch_size=16))
    assert torch.equal(models[0][0].weight, models[1][0].weight)


def test_columns_of_tensor_data_become_arguments():
    data = TensorData(torch.randn(6, 2), torch.arange(6), name="six", shortcuts=torch.eye(6)[:, :2])
    inputs, targets, arguments = WithArguments(data, mask="shortcuts").collated([4, 1])
    assert torch.equal(inputs, data.inputs[[4, 1]])
    assert targets.tolist() == [4, 1]
    assert torch.equal(arguments["mask"], data.shortcuts[[4, 1]])
    with pytest.raises(ConfigurationError, match="has no boxes; it has inputs, targets, shortcuts"):
        WithArguments(data, boxes="boxes")


def test_a_loss_is_a_function():
    with pytest.raises(ConfigurationError, match="loss is 'cross_entropy'"):
        cpu_fit(make_model(), make_data(), "cross_entropy")


def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")
    for out in (file, file / "below"):
        with pytest.raises(StorageError, match=r"Cannot write to the folder .*file' is not a writable folder"):
            cpu_fit(nn.Linear(2, 1), (torch.zeros(4, 2), torch.zeros(4, 1)), F.mse_loss, out=out)
    assert file.read_text() == "precious"


def test_lightnings_own_switches():
    """Accumulated halves of a batch are the batch, for a prior that is a mean over samples."""
    found = []
    for settings in ({"recipe": Recipe(lr=0.1, epochs=2, batch_size=8)}, {"accumulate_grad_batches": 2}):
        model = make_model(dtype=torch.float64)
        recipe = settings.pop("recipe", Recipe(lr=0.1, epochs=2, batch_size=4))
        loss = AttributionLoss(F.cross_entropy, lambda a: a.square().mean(), 0.1, InputXGradient)
        result = cpu_fit(model, make_data(dtype=torch.float64), loss, recipe=recipe, **settings)
        assert result.steps == 10
        found.append(model)
    for one, other in zip(found[0].parameters(), found[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
