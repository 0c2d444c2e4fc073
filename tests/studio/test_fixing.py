"""Judging and training: verdicts beside a loop over images, and what a round does to the network."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from axiograd import XGradient
from axiograd.errors import InputError, StorageError
from axiograd.homogeneity import to_xdnn
from axiograd.studio import network
from axiograd.studio.fixing import choose_plan, fix, marked_images
from axiograd.studio.judging import exchanged, judge
from axiograd.studio.marks import Marks
from support import studio_model
from support.studio_model import CORNER, SIDE

TRAIN, HELD = range(96), range(96, 120)


def painted(images=range(120), kind="wrong") -> Marks:
    marks = Marks((SIDE, SIDE))
    points = [[0, 0], [CORNER, CORNER]] if kind == "wrong" else [[4, 4], [15, 15]]
    for image in images:
        marks.add({"do": "stroke", "image": image, "kind": kind, "tool": "rectangle", "points": points})
    return marks


def test_exchanged_regions_come_from_the_same_place_in_other_classes(pictures):
    rows = list(range(40))
    masks = {row: painted().masks(row)[0] for row in rows}
    after, before = exchanged(pictures, rows, masks, rows, np.random.default_rng(0)), pictures.batch(rows)
    told = pictures.targets[rows].bool()
    # Two classes, so that the other one's value is in every corner, and nothing else has changed.
    corner = after[:, 0, :CORNER, :CORNER]
    assert torch.allclose(corner.mean((1, 2)), torch.where(told, 0.35, 0.95))
    after[:, :, :CORNER, :CORNER] = before[:, :, :CORNER, :CORNER]
    assert torch.equal(after, before)


def test_a_verdict_is_what_a_loop_over_images_finds(model, pictures):
    rows = list(range(30))
    verdict = judge(XGradient(model), pictures, rows, painted(range(10)))
    right, shares = [], []
    for row in rows:
        x = pictures.batch([row]).requires_grad_()
        outputs = model(x)
        right.append(int(outputs.argmax()) == int(pictures.targets[row]))
        if row < 10:
            (gradient,) = torch.autograd.grad(outputs[0].max(), x)
            mass = (x * gradient).abs().sum((0, 1))
            shares.append(float((mass[:CORNER, :CORNER].sum() / mass.sum()).detach()))
    assert verdict.accuracy == np.mean(right)
    assert np.isclose(verdict.wrong_share, np.mean(shares), rtol=1e-4)
    assert verdict.marked == 10
    assert verdict.exchanged < verdict.marked_accuracy


def test_marks_in_one_class_alone_are_exchanged_too_and_the_verdict_names_the_others(model, pictures):
    of_one = [row for row in HELD if int(pictures.targets[row]) == 0]
    verdict = judge(XGradient(model), pictures, HELD, painted(of_one))
    assert verdict.accuracy == verdict.marked_accuracy == 1
    bright = pictures.batch(of_one)
    bright[:, :, :CORNER, :CORNER] = pictures.read(1)[:, :CORNER, :CORNER]  # as in all images of the other class
    with torch.no_grad():
        assert verdict.exchanged == pytest.approx(float((model(bright).argmax(1) == 0).float().mean()))
    assert verdict.exchanged < 0.7
    assert (verdict.marked_classes, verdict.unmarked_classes) == (("upright",), ("level",))


def test_without_marks_there_is_no_share(model, pictures):
    verdict = judge(XGradient(model), pictures, [0, 1], Marks((SIDE, SIDE)))
    assert (verdict.wrong_share, verdict.exchanged, verdict.marked) == (None, None, 0)


def test_it_looks_away_from_what_is_marked(model, pictures):
    before = judge(XGradient(model), pictures, HELD, painted())
    data = marked_images(pictures, TRAIN, painted(), "right-reasons")
    steps = list(fix(model, data, choose_plan(model, data, "right-reasons"), 100))
    after = judge(XGradient(model.eval()), pictures, HELD, painted())
    assert steps[-1].prior < 0.1 * steps[0].prior
    assert after.wrong_share < 0.2 * before.wrong_share
    assert after.exchanged > before.exchanged + 0.3
    truth = studio_model.squares(200, 1, informative=False)
    with torch.no_grad():
        assert float((model(truth.inputs).argmax(1) == truth.targets).float().mean()) > 0.85


def test_strength_weighs_the_prior_against_the_task(model, pictures):
    data = marked_images(pictures, TRAIN, painted(), "right-reasons")
    weak, strong = (choose_plan(model, data, "right-reasons", one).weight for one in (1.0, 4.0))
    assert strong == pytest.approx(4 * weak, rel=1e-4)
    # A network with ten times the outputs has a hundred times the squares, and the same start.
    with torch.no_grad():
        model[3].weight.mul_(10)
    assert choose_plan(model, data, "right-reasons").weight == pytest.approx(weak / 100, rel=1e-3)


@pytest.mark.parametrize("prior", ["energy", "both"])
def test_here_draws_attribution_inside(model, pictures, prior):
    marks = painted(kind="right")
    marks.add({"do": "stroke", "image": 0, "kind": "wrong", "tool": "rectangle", "points": [[0, 0], [2, 2]]})
    data = marked_images(pictures, TRAIN, marks, prior)
    steps = list(fix(model, data, choose_plan(model, data, prior), 10))
    assert steps[-1].prior < steps[0].prior


def test_the_same_plan_gives_the_same_numbers_however_long_it_goes_on(model, pictures):
    data, other = marked_images(pictures, TRAIN, painted(), "right-reasons"), copy.deepcopy(model)
    plan = replace(choose_plan(model, data, "right-reasons", seed=3), batch=24)
    *_, last = fix(model, data, plan, 2)
    assert (last.step, last.passes, last.ends_pass) == (8, 2, True)
    torch.rand(7)  # a state of its own
    for step in fix(other, data, plan):
        if step.passes == 2:
            break
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


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
        marked_images(pictures, TRAIN, marks, prior)


def test_a_network_with_biases_is_converted_and_rebuilt_from_its_file(tmp_path, pictures):
    torch.manual_seed(0)
    regular, x = studio_model.Net(bias=True), pictures.batch(range(60))
    conversion = to_xdnn(regular, x, how="strip")
    network.save(tmp_path / "m.safetensors", conversion.model, "strip", tuple(x.shape[1:]))
    again = network.rebuild(studio_model.Net(bias=True), tmp_path / "m.safetensors")
    assert torch.equal(again(x), conversion.model(x))
    with pytest.raises(StorageError, match="does not fit"):
        network.rebuild(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 2)), tmp_path / "m.safetensors")
