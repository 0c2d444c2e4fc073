"""Audits of methods whose answer is known, and counterexamples that can be run again."""

import functools

import pytest
import torch
from torch import nn

from axiograd import (
    CaptumMethod,
    ExpectedGradients,
    Gradient,
    InputXGradient,
    IntegratedGradients,
    RandomAttribution,
    Saliency,
    XGradient,
)
from axiograd.axioms import AXIOMS, Probe, audit
from axiograd.axioms.networks import Network
from axiograd.axioms.paper_table import references
from axiograd.errors import ConfigurationError, TargetError

NAMES = [axiom.name for axiom in AXIOMS]


def marks(report):
    return "".join(result.mark for result in report.results)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("method", "tolerance", "expected"),
    [
        (InputXGradient, 1e-9, "✗✓✓✗✓✓✗"),
        (Gradient, 1e-9, "✗✓✓✗✓✓✗"),
        (Saliency, 1e-9, "✗✓✓✗✗✓✗"),
        (functools.partial(XGradient, degree=1.0), 1e-9, "✓✓✓✓✓✓✓"),
        (RandomAttribution, 0.1, "✓✗✗✗✗✗✗"),
    ],
    ids=["input x gradient", "gradient", "saliency", "x-gradient", "random"],
)
def test_single_pass_methods(method, tolerance, expected, seed):
    report = audit(method, seed=seed, tolerance=tolerance, n_networks=3)
    assert marks(report) == expected, str(report)
    assert report.passed == ("✗" not in expected)


def test_integrated_gradients_with_their_default_steps():
    report = audit(functools.partial(IntegratedGradients, internal_batch_size=2048), n_networks=2)
    assert marks(report) == "✓✓✓✓✓✓✗", str(report)
    for axiom in ("Sensitivity (b)", "Implementation invariance", "Linearity", "Symmetry preservation"):
        assert report[axiom].violation < 1e-12
    # Only the sum over the path sees the steps; more of them bring it closer.
    more = audit(
        functools.partial(IntegratedGradients, n_steps=2048, internal_batch_size=2**15),
        n_networks=2,
        axioms=AXIOMS[3:4],
    )
    assert more["Completeness"].violation < 0.25 * report["Completeness"].violation


def test_x_gradient_is_certified_and_audited_on_x_dnns():
    report = audit(XGradient, n_networks=1, tolerance=1e-9, axioms=AXIOMS[3:])
    assert report.passed, str(report)
    assert report.models == "1 X-DNNs"


def test_integrated_gradients_are_homogeneous_on_x_dnns():
    report = audit(functools.partial(IntegratedGradients, n_steps=4), homogeneous=True, n_networks=3, tolerance=1e-9)
    assert report.passed, str(report)


def test_expected_gradients_converge_like_the_root_of_their_samples():
    violations = {}
    for n in (1, 16, 256):
        method = functools.partial(ExpectedGradients, n_samples=n, internal_batch_size=2048)
        report = audit(method, baselines=references(), n_networks=1, tolerance=5 / 16, axioms=AXIOMS[2:6])
        violations[n] = [result.violation for result in report.results]
        assert marks(report) == ("✓✓✓✓" if n == 256 else marks(report)), str(report)
    for axiom in range(4):
        assert violations[1][axiom] > 5 / 16
        assert violations[256][axiom] < violations[1][axiom] / 6


@pytest.mark.parametrize("method", [InputXGradient, functools.partial(ExpectedGradients, n_samples=1)])
def test_counterexamples_run_again(method):
    stochastic = method is not InputXGradient
    report = audit(method, baselines=references() if stochastic else None, n_networks=2)
    failed = [result for result in report.results if not result.passed]
    assert len(failed) >= 3
    state = torch.get_rng_state()
    for result in failed:
        again = result.counterexample.rerun()
        assert again.violation == result.violation > result.tolerance
        assert torch.equal(again.attribution, result.counterexample.attribution)
        assert torch.equal(again.input, result.counterexample.input)
        assert result.counterexample.detail in str(report)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_papers_counterexample_by_hand():
    counterexample = audit(InputXGradient)["Sensitivity (a)"].counterexample
    model, x = counterexample.model, counterexample.input
    assert counterexample.subject.name == "f(x) = 1 - ReLU(1 - x)"
    assert x.flatten().tolist() == [2, 0, 0, 0]
    assert model(x).item() == pytest.approx(1)
    assert model(counterexample.baseline).item() == pytest.approx(0, abs=1e-12)
    assert counterexample.attribution.abs().tolist() == [0, 0, 0, 0]
    assert counterexample.extra["feature"] == 0
    assert counterexample.rerun().violation == pytest.approx(1)


class LastBit(nn.Module):
    """Uses its first feature only; the last bit of its output depends on the size of the batch, as sums may."""

    def forward(self, x):
        outputs = x[:, 0] + 3
        return outputs * (1 + 2 * torch.finfo(x.dtype).eps) if len(x) == 1 else outputs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_another_order_of_a_sum_is_not_a_change(dtype):
    model, x = LastBit(), torch.randn(5, 2, dtype=dtype, generator=torch.Generator().manual_seed(0))
    assert (model(x[:1]) != model(x)[:1]).all()
    report = audit(IntegratedGradients, model=model, inputs=x)
    assert report["Sensitivity (a)"].mark == "✓"


def test_completeness_counterexample_by_hand():
    counterexample = audit(InputXGradient)["Completeness"].counterexample
    model, x = counterexample.model, counterexample.input.requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x)
    gap = ((x * gradient).sum() - (model(x) - model(torch.zeros_like(x)))).item()
    assert abs(gap) / counterexample.scale == pytest.approx(counterexample.violation)


def test_audits_are_seeded_and_leave_the_random_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (audit(RandomAttribution, seed=s, n_networks=1) for s in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert [r.violation for r in first.results] == [r.violation for r in again.results]
    assert [r.violation for r in first.results] != [r.violation for r in other.results]


class Half:
    """A user's own method: half of Input×Gradient, and nothing for the last feature."""

    def __init__(self, model):
        self.inner = InputXGradient(model)

    def attribute(self, inputs):
        found = self.inner.attribute(inputs) / 2
        found[:, -1] = 0
        return found


def test_a_users_own_method():
    report = audit(Half, homogeneous=True, tolerance=1e-9)
    assert marks(report) == "✗✓✓✗✓✗✓"
    assert report.method == "Half"


def test_nearly_right_is_wrong_by_default():
    class Nearly(XGradient):
        def attribute(self, *args, **kwargs):
            return 0.999 * super().attribute(*args, **kwargs)

    report = audit(Nearly, n_networks=1)
    assert not report["Completeness"].passed
    assert report["Completeness"].violation == pytest.approx(1e-3)


@pytest.mark.parametrize("n_steps", [128, 512])
def test_methods_with_steps_are_given_their_quadrature_error_by_default(n_steps):
    captum = pytest.importorskip("captum.attr")
    for method in (
        functools.partial(IntegratedGradients, n_steps=n_steps),
        lambda model: CaptumMethod(model, captum.IntegratedGradients, n_steps=n_steps),
    ):
        report = audit(method, n_networks=1, axioms=AXIOMS[3:4])
        assert report.results[0].tolerance == 0.1
        assert report.passed
    assert audit(InputXGradient, n_networks=1, axioms=AXIOMS[3:4]).results[0].tolerance == 1e-6


def test_a_users_own_model():
    torch.manual_seed(0)
    inputs = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    regular, without = (
        nn.Sequential(nn.Conv2d(2, 3, 3, bias=b), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3, bias=b)).double()
        for b in (True, False)
    )
    options = {"inputs": inputs, "target": 1, "tolerance": 1e-9}
    assert marks(audit(InputXGradient, model=regular, **options)) == "✓✓✓✗✓✓✗"
    report = audit(XGradient, model=without, **options)
    assert report.passed, str(report)
    assert report.models == "the given Sequential"
    # Each object draws its own numbers: the same network gets two attributions.
    assert not audit(RandomAttribution, model=regular, **options)["Implementation invariance"].passed
    assert regular.training
    assert without.training


@pytest.mark.parametrize("as_function", [False, True])
def test_a_model_in_training_mode_stays_as_it_was(as_function):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 1)).double()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs = torch.randn(5, 4, dtype=torch.float64)
    given = (lambda x: 2 * model(x)) if as_function else model
    report = audit(InputXGradient, model=given, inputs=inputs, tolerance=1e-9)
    assert report["Implementation invariance"].passed
    assert all(module.training for module in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_wrong_arguments_are_named():
    with pytest.raises(ConfigurationError, match="give both"):
        audit(InputXGradient, model=nn.Linear(2, 1))
    with pytest.raises(ConfigurationError, match="tolerance=0"):
        audit(InputXGradient, tolerance=0)
    with pytest.raises(TargetError, match="one scalar per sample"):
        audit(InputXGradient, model=nn.Linear(2, 2), inputs=torch.ones(1, 2))
    with pytest.raises(ConfigurationError, match="Pass the class"):
        audit(InputXGradient(nn.Linear(2, 1)))
    with pytest.raises(ConfigurationError, match="Pass the class"):
        audit("x-gradient")
    with pytest.raises(KeyError, match="no axiom 'Beauty'"):
        _ = audit(InputXGradient, n_networks=1)["Beauty"]


#: max(x1, x2) = x2 + ReLU(x1 - x2), with x2 = ReLU(x2) - ReLU(-x2)
FIRST = torch.tensor([[1.0, -1.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
SECOND = torch.tensor([[1.0, 1.0, -1.0]], dtype=torch.float64)
MAXIMUM = Network.dense((FIRST, torch.zeros(3).double()), (SECOND, torch.zeros(1).double()))


def test_on_a_kink_no_gradient_method_preserves_symmetry():
    """max(x1, x2) at equal values: why the search stays off kinks."""
    x = torch.tensor([[2.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
    assert torch.equal(MAXIMUM(x), x.max(1).values)
    for method in (IntegratedGradients, InputXGradient, lambda model: XGradient(model, degree=1.0)):
        attribution = Probe(method).attribute(MAXIMUM, x)
        assert torch.allclose(attribution, torch.tensor([[0.0, 2.0], [0.0, 2.0]], dtype=torch.float64))
