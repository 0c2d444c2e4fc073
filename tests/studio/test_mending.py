"""A round of training: stopped, limited, resumed, refused, and repeated from the files that are kept."""

from dataclasses import asdict

import pytest
import torch
from safetensors.torch import load_file

from axiograd import XGradient
from axiograd.errors import ConversionError, InputError, StorageError
from axiograd.studio import mending, network
from axiograd.studio.judging import judge
from axiograd.studio.keeping import keep
from axiograd.studio.marks import Marks
from axiograd.studio.session import Session
from axiograd.studio.split import split
from support import studio_model
from support.command import axiograd
from support.studio_model import CORNER, SIDE

ROWS = tuple(range(96))


def quietly(done, total):
    """Nobody watches."""


def painted(images=ROWS, kind="wrong", file=None) -> Marks:
    marks = Marks((SIDE, SIDE), file)
    points = [[0, 0], [CORNER, CORNER]] if kind == "wrong" else [[4, 4], [15, 15]]
    for image in images:
        marks.add({"do": "stroke", "image": image, "kind": kind, "tool": "rectangle", "size": 1.0, "points": points})
    return marks


def trained(model, data, plan, **options):
    steps = []

    def tell(step):
        steps.append(step)
        return True

    return mending.mend(model, data, plan, tell, **options), steps


def test_it_looks_away_from_what_is_marked(model, pictures):
    marks = painted()
    held = range(96, 120)
    marks_of_all = painted(range(120))
    before = judge(model, XGradient(model), pictures, held, marks_of_all, quietly)
    data = mending.data_set(pictures, ROWS, marks, mending.MendingPlan("right-reasons", 1.0))
    plan = mending.sensible(model, data, "right-reasons", 1.0)
    passes, steps = trained(model, data, plan, epochs=100)
    after = judge(model, XGradient(model), pictures, held, marks_of_all, quietly)
    assert passes == 100
    assert steps[-1].prior < 0.1 * steps[0].prior
    assert after.wrong_share < 0.2 * before.wrong_share
    truth = studio_model.squares(200, 1, informative=False)
    with torch.no_grad():
        assert float((model(truth.inputs).argmax(1) == truth.targets).float().mean()) > 0.9


def test_strength_weighs_the_prior_against_the_task(model, pictures):
    data = mending.data_set(pictures, ROWS, painted(), mending.MendingPlan("right-reasons", 1.0))
    weak, strong = (mending.sensible(model, data, "right-reasons", one).weight for one in (1.0, 4.0))
    assert strong == pytest.approx(4 * weak, rel=1e-4)
    # A network with ten times the outputs has a hundred times the squares, and the same start.
    with torch.no_grad():
        model[3].weight.mul_(10)
    assert mending.sensible(model, data, "right-reasons", 1.0).weight == pytest.approx(weak / 100, rel=1e-3)


@pytest.mark.parametrize("prior", ["energy", "both"])
def test_here_draws_attribution_inside(model, pictures, prior):
    marks = painted(kind="right")
    if prior == "both":
        for image in ROWS:
            marks.add(
                {"do": "stroke", "image": image, "kind": "wrong", "tool": "rectangle", "points": [[0, 0], [2, 2]]}
            )
    data = mending.data_set(pictures, ROWS, marks, mending.MendingPlan(prior, 1.0))
    plan = mending.sensible(model, data, prior, 1.0)
    _, steps = trained(model, data, plan, epochs=10)
    assert steps[-1].prior < steps[0].prior


def test_a_stop_keeps_whole_passes(model, pictures):
    data = mending.data_set(pictures, ROWS, painted(), mending.MendingPlan("right-reasons", 1.0))
    plan = mending.MendingPlan("right-reasons", 0.1, batch=24, size=96)
    other = studio_model.learnt()
    assert mending.mend(other, data, plan, lambda step: step.step < 11) == 2  # in the third pass of four steps
    assert trained(model, data, plan, epochs=2)[0] == 2
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_stop_before_the_first_pass_changes_nothing(model, pictures):
    data = mending.data_set(pictures, ROWS, painted(), mending.MendingPlan("right-reasons", 1.0))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert (
        mending.mend(model, data, mending.MendingPlan("right-reasons", 0.1, batch=24), lambda step: step.step < 2) == 0
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_time_ends_it_after_a_whole_pass(model, pictures):
    data = mending.data_set(pictures, ROWS, painted(), mending.MendingPlan("right-reasons", 1.0))
    assert trained(model, data, mending.MendingPlan("right-reasons", 0.1), seconds=0.0)[0] == 1


@pytest.mark.parametrize(
    ("marks", "prior", "said"),
    [
        (painted(()), "right-reasons", "paint first"),
        (painted((119,)), "right-reasons", "images that train"),
        (painted(), "energy", "Energy needs"),
        (painted((3,), kind="right"), "both", "paint first"),
    ],
)
def test_nothing_to_train_with_is_a_sentence(pictures, marks, prior, said):
    with pytest.raises(InputError, match=said):
        mending.data_set(pictures, ROWS, marks, mending.MendingPlan(prior, 1.0))


def test_everything_marked_is_a_sentence(pictures):
    marks = Marks((SIDE, SIDE))
    marks.add({"do": "stroke", "image": 3, "kind": "wrong", "tool": "rectangle", "points": [[0, 0], [SIDE, SIDE]]})
    with pytest.raises(InputError, match="edge to edge"):
        mending.data_set(pictures, ROWS, marks, mending.MendingPlan("right-reasons", 1.0))


def test_a_network_with_biases_is_converted_and_rebuilt_from_its_file(tmp_path, pictures):
    torch.manual_seed(0)
    regular = studio_model.Net(bias=True)
    with torch.no_grad():
        regular[3].bias.copy_(torch.tensor([0.3, -0.3]))
    x = pictures.batch(range(60))
    with pytest.warns(UserWarning, match="reproduces"):  # a network that was not trained on few images
        start = network.become_xdnn(regular, x[:8], x)
    assert start.how != "as it was"
    network.save(tmp_path / "m.safetensors", start.model, start.how, tuple(x.shape[1:]))
    again = network.rebuild(studio_model.Net(bias=True), tmp_path / "m.safetensors")
    assert torch.allclose(again(x), start.model(x), rtol=1e-5, atol=1e-6)
    assert torch.allclose(again(3 * x), 3 * again(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(StorageError, match="does not fit"):
        network.rebuild(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 2)), tmp_path / "m.safetensors")


def test_what_cannot_be_converted_is_a_sentence(pictures):
    class Sorts(torch.nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                return x.flatten(1)[:, :2].item()
            return None

    with pytest.raises((ConversionError, InputError), match=r"cannot be made one|fails on"):
        network.become_xdnn(Sorts(), pictures.batch(range(8)), pictures.batch(range(20)))


def test_the_kept_file_repeats_the_training_to_the_same_numbers(tmp_path, monkeypatch, model, pictures, origin):
    own = split(pictures.targets.tolist())
    marks = painted(own.train[:6], file=tmp_path / "s" / "marks.jsonl")
    data = mending.data_set(pictures, own.train, marks, mending.MendingPlan("right-reasons", 1.0, seed=1))
    plan = mending.sensible(model, data, "right-reasons", 1.0, seed=1)

    def weights(number):
        return tmp_path / "s" / "rounds" / str(number) / "model.safetensors"

    network.save(weights(0), model, "as it was", (1, SIDE, SIDE))
    passes, _ = trained(model, data, plan, epochs=3)
    network.save(weights(1), model, "as it was", (1, SIDE, SIDE))
    methods = {number: XGradient(network.rebuild(studio_model.Net(), weights(number))) for number in (0, 1)}
    rounds = [
        {"id": 0, "parent": None},
        {"id": 1, "parent": 0, "plan": {**asdict(plan), "epochs": passes}, "actions": len(marks.actions)},
    ]
    # Painted after the training: the kept file is about what the round was trained with.
    marks.add({"do": "stroke", "image": 50, "kind": "wrong", "tool": "rectangle", "points": [[5, 5], [9, 9]]})
    kept = keep(
        tmp_path / "kept", pictures=pictures, split=own, marks=marks, origin=origin, rounds=rounds, number=1,
        weights=weights, method=methods.__getitem__,
    )  # fmt: skip
    assert kept["missing"] == []
    assert {"model.onnx", "mend.toml", "report.html", "masks/coco.json"} <= set(kept["files"])
    assert "Fixed in the studio" in (tmp_path / "kept" / "report.html").read_text()
    monkeypatch.chdir(tmp_path / "kept")
    done = axiograd("train", "mend.toml", "--json")
    assert done.code == 0, done.err
    assert done.json["steps"] == 3 * 2
    again = load_file(tmp_path / "kept" / "run" / "model.safetensors")
    for name, value in model.state_dict().items():
        assert torch.allclose(again[name], value, rtol=1e-6, atol=1e-8), name

    import numpy as np
    import onnxruntime

    x = pictures.batch([0, 1, 2])
    engine = onnxruntime.InferenceSession(str(tmp_path / "kept" / "model.onnx"))
    outputs, *_ = engine.run(None, {"input": x.numpy(), "target": np.full(3, -1)})
    assert np.allclose(outputs, model(x).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_a_session_is_one_studios_and_of_one_data_set(tmp_path, pictures):
    from axiograd.datasets.pictures import Pictures

    with Session.opened(tmp_path, pictures) as session:
        session.add_round(None, how="as it was")
        with pytest.raises(StorageError, match="already writing"), Session.opened(tmp_path, pictures):
            pass
    with Session.opened(tmp_path, pictures) as again:
        assert [one["id"] for one in again.rounds] == [0]
        with pytest.raises(InputError, match="no round 4"):
            again.go_to(4)
    other = Pictures.of_tensors(studio_model.squares(40))
    with pytest.raises(StorageError, match="another folder"), Session.opened(tmp_path, other):
        pass
    (tmp_path / "session.json").write_text("{half")
    with pytest.raises(StorageError, match="not the state"), Session.opened(tmp_path, pictures):
        pass
