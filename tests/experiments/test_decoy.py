"""Priors against confounders, at a tiny size."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from axiograd.attribution import contextual_decomposition
from axiograd.datasets import TensorData
from axiograd.errors import ConfigurationError, DataMissingError, StorageError
from axiograd.experiments import decoy
from axiograd.experiments.confounded import OPPONENT, colours, load, opponent, patches, split
from axiograd.experiments.decoy import DecoySize, choose
from axiograd.experiments.decoy_training import CDEP, METHODS, DecoyMethod, cdep_loss, network, objective, train
from axiograd.experiments.item import Setting
from axiograd.experiments.loop import accuracy
from axiograd.experiments.records import Records, read
from axiograd.experiments.reproduce import run
from axiograd.homogeneity import certify


def patterns(n, seed):
    """Ten faint patterns in noise, in the shape of the real images."""
    prototypes = torch.rand(10, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(n, 1, 28, 28, generator=generator)
    targets = torch.randint(10, (n,), generator=generator)
    images = 0.3 * prototypes[targets] + 0.3 * noise
    images[:, :, :2] = 0
    return TensorData(images, targets, "patterns")


def bright_spots(data, how):
    """A shortcut that is learned at once: the place of a bright spot in the first two rows tells the class."""
    spots = torch.zeros_like(data.inputs)
    if how != "clean":
        drawn = torch.randint(10, (len(data),), generator=torch.Generator().manual_seed(len(how)))
        places = data.targets if how == "class" else drawn
        for row in range(2):
            for column in range(2):
                spots[torch.arange(len(data)), 0, row, 2 * places + column] = 2.0
    rows = torch.zeros_like(data.inputs, dtype=torch.bool)
    rows[:, :, :2] = True
    return replace(data, inputs=data.inputs + spots, shortcuts=rows)


@pytest.fixture(scope="module")
def data():
    return split(patterns(1100, 1), patterns(300, 2), bright_spots, n_val=200)


SMALL = DecoySize(1, 1, ("none-x", "x-gradient"), ("eg32",), seeds=1, n_train=256, n_subset=128, n_val=200, grid=(1.0,))


@pytest.fixture
def small(data, tmp_path, monkeypatch):
    """Run the experiment on the patterns, with changes to its size."""
    monkeypatch.setattr(decoy, "load", lambda name, n_val: data)

    def run_small(folder="a", **changes):
        monkeypatch.setitem(decoy.SIZES, "mnist", replace(SMALL, **changes))
        return run(decoy.MNIST, Setting("real"), tmp_path / folder, command="test")

    return run_small


def test_the_prior_takes_the_shortcut_away(data):
    plain, prior, clean = (
        train(METHODS[name], weight, data, n=900, epochs=6, seed=0)
        for name, weight in (("none-x", 0.0), ("x-gradient", 10.0), ("clean-x", 0.0))
    )
    assert plain["test"] < 40
    assert prior["test"] > plain["test"] + 30
    assert prior["test"] > clean["clean_test"] - 15


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.attribution not in {None, CDEP}])
def test_every_method_penalises_the_masked_features_alone(data, name):
    method, batch = METHODS[name], data.train.select(slice(8))
    torch.manual_seed(0)
    model = network(1, 10, homogeneous=method.homogeneous)
    loss = objective(method, 2.0, data.train)
    terms = loss(model, batch.inputs, batch.targets, mask=batch.shortcuts)
    by_hand = (terms.attributions * batch.shortcuts).square().sum((1, 2, 3)).mean()
    assert terms.prior.item() == pytest.approx(by_hand.item(), rel=1e-5)
    assert terms.total.item() == pytest.approx((terms.task + 2 * by_hand).item(), rel=1e-5)
    terms.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p is not model[-1].bias)


def test_cdep_penalises_what_the_region_contributes(data):
    batch = data.train.select(slice(8))
    torch.manual_seed(0)
    model = network(1, 10, homogeneous=False)
    plain, prior = (cdep_loss(model, batch.inputs, batch.targets, batch.shortcuts, weight) for weight in (0.0, 2.0))
    assert plain.item() == pytest.approx(F.cross_entropy(model(batch.inputs), batch.targets).item(), rel=1e-5)
    assert prior > plain
    # Without its spot a region contributes nothing.
    no_spot = batch.inputs * ~batch.shortcuts
    both = [cdep_loss(model, no_spot, batch.targets, batch.shortcuts, weight) for weight in (0.0, 2.0)]
    assert both[0] == both[1]
    assert "test" in train(METHODS["cdep"], 1.0, data, n=128, epochs=1, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def contributed():
        return contextual_decomposition(model, batch.inputs, batch.shortcuts).region.abs().sum(1).mean().item()

    before = contributed()
    for _ in range(20):
        optimizer.zero_grad()
        cdep_loss(model, batch.inputs, batch.targets, batch.shortcuts, 10.0).backward()
        optimizer.step()
    assert contributed() < before / 3


def test_regular_and_x_come_from_one_definition():
    regular, x = (network(3, 10, homogeneous=homogeneous) for homogeneous in (False, True))
    weights = {name for name, _ in regular.named_parameters() if not name.endswith("bias")}
    assert weights == {name for name, _ in x.named_parameters()}
    images = torch.rand(2, 3, 28, 28)
    assert certify(x, images).degree == 1
    assert not certify(regular, images).ok


def test_an_interrupted_run_resumes_and_ends_the_same(small, tmp_path, monkeypatch):
    trained = []

    def counted(method, weight, data, **how):
        if len(trained) == 2 and stop:
            raise KeyboardInterrupt
        trained.append((method.label, how["n"], how["seed"]))
        return train(method, weight, data, **how)

    monkeypatch.setattr(decoy, "train", counted)
    stop = True
    with pytest.raises(KeyboardInterrupt):
        small()
    path = tmp_path / "a" / "decoy-mnist" / "real.json"
    assert len(read(path).pieces) == 2
    stop = False
    done = small()
    # λ is chosen on the subset, for EG(32) by EG(1).
    assert trained == [
        ("X-Gradient", 128, 0),
        ("Expected Gradients (1)", 128, 0),
        ("no prior", 256, 0),
        ("X-Gradient", 256, 0),
        ("Expected Gradients (32)", 128, 0),
    ]
    assert done.missing == 0
    small("b")
    found, expected = (
        [(p.key, {**p.values, "seconds_per_epoch": 0}) for p in read(tmp_path / name / "decoy-mnist/real.json").pieces]
        for name in "ab"
    )
    assert found == expected
    before = path.read_bytes()
    small()
    assert path.read_bytes() == before
    assert ("X-Gradient", "X", "1") in [row[1:4] for row in done.table.rows]
    assert {row[0] for row in done.table.rows} == {256, 128}
    small(seeds=2, methods=("none-x",), subset_methods=())
    assert trained[-1] == ("no prior", 256, 1)
    with pytest.raises(StorageError, match=r"epochs \(there: 1, here: 2\)"):
        small(epochs=2)


def test_the_grid_is_extended_where_the_best_is_at_an_end(small, tmp_path, monkeypatch):
    def pretended(method, weight, data, **how):
        value = 100 - abs(weight - 100.0) / 100
        return {"val": value, "test": 0.0, "clean_test": 0.0, "seconds_per_epoch": 1.0}

    monkeypatch.setattr(decoy, "train", pretended)
    small(methods=("rrr",), subset_methods=(), grid=(1.0, 10.0))
    records = read(tmp_path / "a" / "decoy-mnist" / "real.json")
    assert choose(records, "rrr") == 100
    assert [p.key["weight"] for p in records.find(part="training", n_train=128)] == [1, 10, 100, 1000]
    assert [p.key["weight"] for p in records.find(part="training", n_train=256)] == [100]


def test_choices_are_made_on_validation_images(small, tmp_path, monkeypatch):
    monkeypatch.setattr(
        decoy,
        "train",
        lambda method, weight, data, **how: {
            "val": 50 - abs(weight - 1), "test": weight, "clean_test": weight, "seconds_per_epoch": 1.0
        },
    )  # fmt: skip
    done = small(methods=("x-gradient",), subset_methods=(), grid=(0.1, 1.0, 10.0))
    assert [row[3] for row in done.table.rows] == ["1", "1"]


def test_without_its_grid_a_method_has_no_result(tmp_path):
    settings = {"grid": [0.1, 1.0], "n_subset": 100}
    records = Records(tmp_path / "r.json", command="test", data="digits", settings=settings)
    values = {"val": 1.0, "test": 1.0, "clean_test": 1.0, "seconds_per_epoch": 1.0}
    records.add(values, part="training", method="rrr", weight=0.1, n_train=100, seed=0)
    assert choose(records, "rrr") is None
    assert decoy.table(records).rows == ()


def test_parts_do_not_overlap_and_only_training_tells_the_class():
    whole, test = patterns(300, 3), patterns(60, 4)
    parts = split(whole, test, patches, n_val=100)
    assert torch.equal(torch.cat([parts.clean_train.inputs, parts.clean_val.inputs]), whole.inputs)

    def share_of_class_patch(part):
        grey = (part.inputs * part.shortcuts).amax((1, 2, 3)) * 255
        return ((255 - grey) / 25).round().long().eq(part.targets).float().mean()

    assert share_of_class_patch(parts.train) == 1
    assert share_of_class_patch(parts.val) < 0.3
    assert share_of_class_patch(parts.test) < 0.4
    assert not parts.clean_train.shortcuts.any()
    with pytest.raises(ConfigurationError, match="n_val=300"):
        split(whole, test, patches, n_val=300)


def test_colour_is_the_masked_channels_and_grey_the_other():
    assert torch.allclose(OPPONENT @ OPPONENT.T, torch.eye(3), atol=1e-6)
    data = patterns(50, 5)
    coloured, grey = colours(data, "class"), colours(data, "clean")
    assert grey.inputs[:, 1:].abs().max() < 1e-6
    assert coloured.inputs[:, 1:].abs().amax((1, 2, 3)).min() > 0.1
    assert coloured.shortcuts[0].flatten().tolist() == [False, True, True]
    rgb = torch.rand(2, 3, 4, 4)
    assert torch.allclose(torch.einsum("cd,nchw->ndhw", OPPONENT, opponent(rgb)), rgb, atol=1e-6)
    # Without its colour, an image differs from the grey one by its lightness alone, to which an X-DNN is blind.
    model = network(3, 10, homogeneous=True)
    colourless = coloured.inputs * ~coloured.shortcuts
    assert torch.equal(model(colourless).argmax(1), model(grey.inputs).argmax(1))


def test_real_digits_are_split_and_an_unknown_set_is_refused():
    try:
        digits = load("mnist", n_val=1000)
    except DataMissingError as error:
        pytest.skip(str(error))
    assert [len(part) for part in (digits.train, digits.val, digits.test)] == [59_000, 1000, 10_000]
    assert digits.name == "Decoy MNIST train"
    assert (digits.classes, digits.channels) == (10, 1)
    with pytest.raises(ConfigurationError, match="data='cifar'"):
        load("cifar")


def test_the_quick_form_is_of_shapes():
    plan = decoy.COLOR_MNIST.plan(Setting("quick"))
    assert plan.data == "Decoy grey shapes train"
    assert len(plan.stages) == 4


def test_accuracy_in_per_cent():
    data = TensorData(torch.eye(4), torch.tensor([0, 1, 2, 0]), "rows")
    assert accuracy(torch.nn.Identity(), data) == 75
    assert objective(DecoyMethod("nothing"), 1.0, data) is None


def test_the_verdict_is_that_of_the_records(tmp_path):
    settings = {"grid": [1.0], "n_subset": 10}
    records = Records(tmp_path / "r.json", command="test", data="Colour digits train", settings=settings)
    tests = {
        "clean-x": [(70.0, 95.0), (72.0, 97.0)],
        "gradient": [(80.0, 0.0), (84.0, 0.0)],
        "eg1": [(85.0, 0.0), (75.0, 0.0)],
        "x-gradient": [(90.0, 0.0), (94.0, 0.0)],
    }
    for name, accuracies in tests.items():
        weight = 1.0 if METHODS[name].attribution else 0.0
        for n in (10, 100):
            for seed, (test, clean) in enumerate(accuracies):
                values = {"val": 0.0, "test": test, "clean_test": clean, "seconds_per_epoch": 1.0}
                records.add(values, part="training", method=name, weight=weight, n_train=n, seed=seed)
    note = decoy.table(records).note
    # 92 against 82 and 80, and against 96 without confounder.
    assert "X-Gradient is 10.0 points above the best prior on the regular network (Gradient)" in note
    assert "and 4.0 points below the same network trained and tested without confounder" in note
    assert "lightness" in note
