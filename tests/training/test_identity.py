"""A run resumes with the settings that it began with: each change is refused by name, and can be forked."""

import functools
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.attribution import InputXGradient, IntegratedGradients
from axiograd.errors import ConfigurationError, StorageError
from axiograd.priors import L1, Gini, GraphSmoothness, Groups, LowFrequency, RightReasons
from axiograd.training import AttributionLoss, Recipe, checkpoint, distill, fit
from axiograd.training.schedules import LinearWarmup

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(24, 4, generator=GENERATOR)
Y = (X[:, 0] > 0).long()
RECIPE = Recipe(lr=0.1, epochs=1, batch_size=8)


def network(p=0.1, hidden=8, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Dropout(p), nn.Linear(hidden, 2))


def frozen(module):
    module[0].requires_grad_(requires_grad=False)
    return module


def with_prior(prior=None, weight=0.1, method=InputXGradient, task=F.cross_entropy, **more):
    return AttributionLoss(task, prior or L1(), weight, method, **more)


def graph(a, b):
    adjacency = torch.zeros(4, 4)
    adjacency[a, b] = adjacency[b, a] = 1
    return GraphSmoothness(adjacency)


def accuracy(outputs, targets):
    return float((outputs.argmax(1) == targets).float().mean())


def error(outputs, targets):
    return -float((outputs.argmax(1) != targets).float().mean())


SHIFTED = torch.where(torch.arange(24)[:, None] == 17, X + 1, X)
FLIPPED = torch.where(torch.arange(24) == 17, 1 - Y, Y)
IMAGES = X.reshape(24, 1, 2, 2)
PLAIN = {"loss": F.cross_entropy}
VALIDATED = {"loss": F.cross_entropy, "validation": (X, Y)}
CNN = {"data": (IMAGES, Y), "model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))}

#: name: what the run had, what it has now, and where the message says that they differ.
CHANGES = {
    "data": (PLAIN, {"data": (SHIFTED, Y)}, "data.tensors"),
    "labels": (PLAIN, {"data": (X, FLIPPED)}, "data.tensors"),
    "number of samples": (PLAIN, {"data": (X[:20], Y[:20])}, "data.samples"),
    "type of data": (PLAIN, {"data": (X.double().float() * 1.0, Y.int())}, "data.tensors"),
    "validation data": (VALIDATED, {"validation": (X, FLIPPED)}, "validation.tensors"),
    "metric": ({**VALIDATED, "metric": "loss"}, {"metric": "accuracy"}, "metric"),
    "metric of one's own": ({**VALIDATED, "metric": accuracy}, {"metric": error}, "metric"),
    "collate": (PLAIN, {"collate": functools.partial(torch.utils.data.default_collate)}, "collate"),
    "seed": (PLAIN, {"seed": 1}, "seed"),
    "learning rate": (PLAIN, {"recipe": RECIPE.replace(lr=0.2)}, "recipe.lr"),
    "epochs": (PLAIN, {"recipe": RECIPE.replace(epochs=2)}, "recipe.epochs"),
    "batch size": (PLAIN, {"recipe": RECIPE.replace(batch_size=4)}, "recipe.batch_size"),
    "optimizer": (PLAIN, {"recipe": RECIPE.replace(optimizer="adam")}, "recipe.optimizer"),
    "mixup": (PLAIN, {"recipe": RECIPE.replace(mixup=0.5)}, "recipe.mixup"),
    "clipping": (PLAIN, {"recipe": RECIPE.replace(clip=1.0)}, "recipe.clip"),
    "accumulation": (PLAIN, {"recipe": RECIPE.replace(accumulate=2)}, "recipe.accumulate"),
    "precision": (PLAIN, {"precision": "64-true"}, "precision"),
    "dropout": (PLAIN, {"model": lambda: network(p=0.2)}, "model.layers.2"),
    "width": (PLAIN, {"model": lambda: network(hidden=9)}, "model.layers.0"),
    "frozen layers": (PLAIN, {"model": lambda: frozen(network())}, "model.frozen"),
    "task loss": (PLAIN, {"loss": F.multi_margin_loss}, "loss.task_loss"),
    "a partial loss": (
        {"loss": functools.partial(F.cross_entropy, label_smoothing=0.1)},
        {"loss": functools.partial(F.cross_entropy, label_smoothing=0.2)},
        "loss.task_loss.label_smoothing",
    ),
    "a loss module": (
        {"loss": nn.CrossEntropyLoss(torch.tensor([1.0, 2.0]))},
        {"loss": nn.CrossEntropyLoss(torch.tensor([1.0, 3.0]))},
        "loss.task_loss.weight",
    ),
    "with a prior": (PLAIN, {"loss": with_prior()}, "loss.prior"),
    "prior": ({"loss": with_prior(L1())}, {"loss": with_prior(Gini())}, "loss.prior.name"),
    "Gini's form": ({"loss": with_prior(Gini())}, {"loss": with_prior(Gini("paper"))}, "loss.prior.normalisation"),
    "LowFrequency's cutoff": (
        {**CNN, "loss": with_prior(LowFrequency(0.25))},
        {"loss": with_prior(LowFrequency(0.3))},
        "loss.prior.cutoff",
    ),
    "Groups' members": (
        {"loss": with_prior(Groups([[0, 1], [2, 3]]))},
        {"loss": with_prior(Groups([[0, 2], [1, 3]]))},
        "loss.prior.indices",
    ),
    "GraphSmoothness' graph": (
        {"loss": with_prior(graph(0, 1))},
        {"loss": with_prior(graph(0, 2))},
        "loss.prior.edges",
    ),
    "one of two priors": (
        {"loss": with_prior(L1() + 0.5 * Gini())},
        {"loss": with_prior(L1() + 0.6 * Gini())},
        "loss.prior.priors.1.weight",
    ),
    "weight": ({"loss": with_prior(weight=0.1)}, {"loss": with_prior(weight=0.2)}, "loss.weight.value"),
    "schedule": (
        {"loss": with_prior(weight=LinearWarmup(1.0, 5))},
        {"loss": with_prior(weight=LinearWarmup(1.0, 6))},
        "loss.weight.steps",
    ),
    "method": ({"loss": with_prior()}, {"loss": with_prior(method=IntegratedGradients, n_steps=2)}, "loss.method"),
    "n_steps": (
        {"loss": with_prior(method=IntegratedGradients, n_steps=2)},
        {"loss": with_prior(method=IntegratedGradients, n_steps=3)},
        "loss.method_arguments.n_steps",
    ),
    "outputs": ({"loss": with_prior()}, {"loss": with_prior(outputs="random")}, "loss.outputs"),
    "generator": (
        {"loss": with_prior(outputs="random", generator=torch.Generator().manual_seed(1))},
        {"loss": with_prior(outputs="random", generator=torch.Generator().manual_seed(2))},
        "loss.generator",
    ),
}


def run(out, *, model=network, data=(X, Y), **settings):
    given = {"recipe": RECIPE, "accelerator": "cpu", "progress": False, **settings}
    return fit(model(), data, out=out, **given)


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_refused_by_name(tmp_path, name):
    before, change, where = CHANGES[name]
    assert run(tmp_path, **before).steps
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(StorageError, match="was written with different settings: ") as refused:
        run(tmp_path, **{**before, **change})
    assert any(f"{where}{further}" in str(refused.value) for further in (" (there: ", ".", "["))
    assert f"fork='{tmp_path}'" in str(refused.value)
    assert {path: path.read_bytes() for path in files} == files
    again = run(tmp_path, **before)  # the old settings resume
    assert again.resumed_step == again.steps


def test_what_does_not_decide_numbers_may_change(tmp_path):
    first = run(tmp_path, **VALIDATED, log_steps=1)
    again = run(tmp_path, **VALIDATED, num_workers=1, log_steps=2, checkpoint_steps=1)
    assert again.resumed_step == first.steps


def test_a_loss_that_was_used_resumes_in_the_same_process(tmp_path):
    loss = with_prior(outputs="random", generator=torch.Generator().manual_seed(1), weight=LinearWarmup(1.0, 5))
    first = run(tmp_path, loss=loss)
    assert run(tmp_path, loss=loss).resumed_step == first.steps


def test_a_teacher_is_part_of_the_run(tmp_path):
    def train(scale):
        teacher = network().requires_grad_(requires_grad=False)
        teacher[3].weight.mul_(scale)
        settings = {"recipe": RECIPE, "accelerator": "cpu", "progress": False, "validation": X}
        return distill(network(), teacher, X, out=tmp_path, **settings)

    steps = train(1.0).steps
    assert train(1.0).resumed_step == steps
    with pytest.raises(StorageError, match=r"loss\.teacher\.weights"):
        train(2.0)


def test_a_fork_starts_from_the_checkpoint_with_new_settings(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    recipe = RECIPE.replace(epochs=2)
    run(old, **VALIDATED, recipe=recipe)
    kept = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    weights = checkpoint.latest(old).tensors["model"]

    forked = run(new, **VALIDATED, recipe=recipe.replace(epochs=3, lr=1e-9), fork=old)
    assert (forked.resumed_step, forked.steps, forked.epochs) == (6, 9, 3)
    last = checkpoint.latest(new)
    for name, tensor in last.tensors["model"].items():  # with so small a rate they hardly move
        torch.testing.assert_close(tensor, weights[name], atol=1e-6, rtol=0)
    assert not torch.equal(last.tensors["model"]["0.weight"], network()[0].weight)
    assert last.state["forked"]["from"] == str(old / "step-00000006")
    assert {path: path.read_bytes() for path in kept} == kept
    # The same call again resumes the fork, with or without the word.
    for fork in (old, None):
        assert run(new, **VALIDATED, recipe=recipe.replace(epochs=3, lr=1e-9), fork=fork).resumed_step == 9


def test_a_fork_in_place_and_with_other_batches(tmp_path):
    run(tmp_path, loss=with_prior(graph(0, 1)))
    changed = {"loss": with_prior(graph(0, 2)), "recipe": RECIPE.replace(epochs=2, batch_size=12)}
    forked = run(tmp_path, **changed, fork=tmp_path)
    assert (forked.resumed_step, forked.steps) == (2, 4)  # epoch 1 has two steps of 12 now
    edges = checkpoint.latest(tmp_path).tensors["objective"]["prior.edges"]
    assert edges.flatten().tolist() == [0, 2]  # not the old graph


def test_forks_that_cannot_be(tmp_path):
    run(tmp_path / "a", **PLAIN)
    with pytest.raises(ConfigurationError, match=r"begins after epoch 1, .* epochs = 1; raise it"):
        run(tmp_path / "b", **PLAIN, recipe=RECIPE.replace(lr=0.2), fork=tmp_path / "a")
    with pytest.raises(StorageError, match="holds no sound checkpoint to fork from"):
        run(tmp_path / "c", **PLAIN, fork=tmp_path / "nothing")
    with pytest.raises(ConfigurationError, match=r"needs a folder for the new run"):
        run(None, **PLAIN, fork=tmp_path / "a")
    with pytest.warns(UserWarning, match=r"new optimizer \(adam, not sgd\)"):
        run(tmp_path / "d", **PLAIN, recipe=RECIPE.replace(epochs=2, optimizer="adam"), fork=tmp_path / "a")


def test_the_identity_is_readable_where_it_is_stored(tmp_path):
    run(tmp_path, loss=with_prior(RightReasons()), data=[(X[i], Y[i], {"mask": X[i] > 0}) for i in range(24)])
    body = json.loads((checkpoint.latest(tmp_path).folder / "state.json").read_text())["body"]
    assert body["identity"]["model"]["layers"]["2"] == "Dropout(p=0.1, inplace=False)"
    assert body["identity"]["loss"]["weight"] == {"name": "Constant", "value": 0.1}
