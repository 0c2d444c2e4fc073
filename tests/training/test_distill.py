import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import axiograd
from axiograd.errors import AxiogradError, ConfigurationError
from axiograd.training import Recipe, TaughtAttributions, distill
from axiograd.training.distill import Distillation

RECIPE = Recipe(optimizer="adam", lr=0.02, schedule="cosine", epochs=25, batch_size=50, weight_decay=0.0)


def make(bias, seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16, bias=bias), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3, bias=bias))


def test_temperature_formula():
    student, teacher, t = torch.randn(5, 3), torch.randn(5, 3), 3.0
    p, q = (teacher / t).softmax(1), (student / t).softmax(1)
    expected = t**2 * (p * (p / q).log()).sum(1).mean()
    torch.testing.assert_close(Distillation(nn.Identity(), temperature=t).imitation(student, teacher), expected)
    plain = Distillation(nn.Identity(), temperature=None).imitation(student, teacher)
    torch.testing.assert_close(plain, (student - teacher).square().mean())


def test_labels_have_their_share():
    teacher, student, x, y = nn.Linear(3, 2), nn.Linear(3, 2), torch.randn(6, 3), torch.tensor([0, 1] * 3)
    terms = Distillation(teacher, labels=0.25)(student, x, y)
    torch.testing.assert_close(terms.task, F.cross_entropy(student(x), y))
    torch.testing.assert_close(terms.total, 0.75 * terms.imitation + 0.25 * terms.task)


@pytest.mark.parametrize("mixup", [0.0, 0.7])
def test_a_student_learns_its_teachers_answers_without_labels(mixup):
    teacher, student = make(True, 0), make(False, 1)
    x = torch.randn(400, 4)
    frozen = [parameter.clone() for parameter in teacher.parameters()]
    result = distill(
        student, teacher, x[:300], validation=x[300:], metric="accuracy", accelerator="cpu",
        recipe=replace(RECIPE, mixup=mixup),
    )  # fmt: skip
    assert result.best["validation"] > 0.85
    assert result.best["validation"] > result.history[0]["validation"] + 0.1
    assert teacher.training
    assert all(p.grad is None and torch.equal(p, f) for p, f in zip(teacher.parameters(), frozen, strict=True))


def test_with_labels():
    teacher, student = make(True, 0), make(False, 1)
    x = torch.randn(300, 4)
    y = teacher.eval()(x).argmax(1)
    result = distill(student, teacher, (x, y), labels=0.5, validation=(x, y), accelerator="cpu", recipe=RECIPE)
    assert result.best["validation"] == pytest.approx(-F.cross_entropy(student.eval()(x), y).item())
    assert result.best["validation"] > result.history[0]["validation"]
    assert (student(x).argmax(1) == y).float().mean() > 0.85


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_student_is_never_worse_than_its_start(tmp_path, on_disk):
    """Steps that are far too long spoil it, and what it began with stays."""
    teacher = make(False, 0).eval()
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        student[0].weight += 0.01
    before, x = copy.deepcopy(student.state_dict()), torch.randn(60, 4)
    wild = replace(RECIPE, lr=3.0, epochs=2)
    result = distill(student, teacher, x, recipe=wild, accelerator="cpu", out=tmp_path / "run" if on_disk else None)
    assert (result.best["step"], result.best["epoch"]) == (0, 0)
    assert result.best["validation"] > max(row["validation"] for row in result.history)
    assert all(torch.equal(value, before[name]) for name, value in student.state_dict().items())


def test_one_pass_learns_the_teachers_integrated_gradients():
    """On inputs that taught nothing, X-Gradient of the student is nearer to IG of the teacher than before."""
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3)).eval()
    x = torch.rand(100, 2, 6, 6)
    student = axiograd.to_xdnn(teacher, x[:2], calibration=x, how="calibrate").model
    what = TaughtAttributions(weight=2.0, steps=16, window=2)
    fresh = torch.rand(30, 2, 6, 6)
    chosen = teacher(fresh).argmax(1)
    maps = what.pooled(axiograd.IntegratedGradients(teacher, 16).attribute(fresh, chosen))

    def apart():
        found = what.pooled(axiograd.XGradient(student.eval()).attribute(fresh, chosen))
        return float(axiograd.priors.Matching("cosine")(found, teacher=maps))

    before = apart()
    recipe = replace(RECIPE, lr=0.005, epochs=6, batch_size=25)
    result = distill(student, teacher, x, attributions=what, recipe=recipe, accelerator="cpu", progress=False)
    assert result.history[-1]["matching"] < result.history[0]["matching"]
    assert apart() < 0.8 * before
    assert axiograd.certify(student, fresh[:2]).exact
    with pytest.raises(ConfigurationError, match="without labels"):
        distill(student, teacher, x, attributions=what, labels=0.5)


@pytest.mark.parametrize("data", [torch.empty(0, 2), [({"x": torch.ones(2)}, 0)] * 4], ids=["none", "named"])
def test_data_that_cannot_teach_attributions_is_refused_in_words(data):
    net = nn.Linear(2, 2, bias=False)
    with pytest.raises(AxiogradError):
        distill(copy.deepcopy(net), net, data, attributions=TaughtAttributions(), recipe=RECIPE, accelerator="cpu")


def test_a_teacher_stays_where_it_was():
    """Inputs on another device take it there for the training, and it comes back."""
    moves = []

    class Teacher(nn.Linear):
        def to(self, device):
            moves.append(torch.device(device))
            return self

    teacher, student = Teacher(4, 3), make(False, 1)
    distill(student, teacher, torch.randn(30, 4), recipe=replace(RECIPE, epochs=1), accelerator="cpu")
    assert moves
    assert moves[-1] == torch.device("cpu")
    assert not any("teacher" in name for name in Distillation(teacher).state_dict())
    assert not list(Distillation(teacher).parameters())


def test_a_teacher_that_cannot_be_followed():
    with pytest.raises(ConfigurationError, match=r"differ in their outputs: \(\d+, 2\) and \(\d+, 3\)"):
        distill(nn.Linear(4, 2), make(True, 0), torch.randn(30, 4), recipe=RECIPE, accelerator="cpu")


@pytest.mark.parametrize("shape", [(5, 1), (5,)])
def test_one_output_has_no_softmax_to_imitate(shape):
    with pytest.raises(ConfigurationError, match="temperature=None"):
        Distillation(nn.Identity()).imitation(torch.randn(shape), torch.randn(shape))


def test_a_calibrated_network_takes_held_steps():
    """The same gradients as by second derivatives, to the rounding of float64, through caps, groups and pooling."""
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU6(), nn.MaxPool2d(2)]
    body = [nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.LeakyReLU(0.1, inplace=True), nn.AdaptiveAvgPool2d(1)]
    net = nn.Sequential(*stem, *body, nn.Flatten(), nn.Dropout(), nn.Linear(8, 4)).double()
    x = torch.randn(40, 3, 20, 20).double() + 0.5
    net(x)
    model = axiograd.homogeneity.calibrated_layout(net.eval(), x[:2])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    found = {}
    for twice in (True, False):
        prior = axiograd.priors.Smoothness()
        loss = axiograd.AttributionLoss(
            F.cross_entropy, prior, 0.3, degree=1.0, outputs="residual", double_backward=twice
        )
        model.zero_grad()
        loss(model, x[:8], torch.arange(8) % 4).total.backward()
        assert bool(loss.why_twice) == twice
        found[twice] = [parameter.grad.clone() for parameter in model.parameters()]
    for one, other in zip(found[True], found[False], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_student_with_other_outputs_is_refused():
    with pytest.raises(ConfigurationError, match=r"\(4, 2\) and \(4, 3\)"):
        Distillation(nn.Linear(5, 3))(nn.Linear(5, 2), torch.zeros(4, 5), None)
