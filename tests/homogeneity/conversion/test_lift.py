import copy
import pickle

import pytest
import torch
from torch import nn

from axiograd import XGradient
from axiograd.errors import BaselineError, ConfigurationError, InputError
from axiograd.homogeneity import certify
from axiograd.homogeneity.conversion import Lifted, energy_share, to_xdnn


class Two(nn.Module):
    """Two inputs, a dictionary of outputs, an integer input that only selects."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, x, *, y, index):
        hidden = torch.tanh(self.a(x) + self.b(y))
        return {"logits": hidden, "index": index, "pair": (hidden[:, :1], hidden.sigmoid())}


def _net():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3), nn.Sigmoid()).eval()


def test_lift_is_proved_exact_and_agrees_with_brute_force(assert_degree):
    x = torch.randn(6, 4)
    conversion = to_xdnn(_net(), x, how="lift")
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    assert_degree(conversion.model, x)


def test_lift_is_the_original_on_its_sphere():
    net, x = _net(), torch.randn(1, 4)
    torch.testing.assert_close(to_xdnn(net, x, how="lift").model(x), net(x))


def test_zero_goes_to_zero_with_finite_gradients_of_both_orders():
    lifted = Lifted(_net(), radius=1.0)
    x = torch.zeros(2, 4)
    x[1] = torch.randn(4)
    x.requires_grad_()
    output = lifted(x)
    (gradient,) = torch.autograd.grad(output.square().sum() + output.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), x)
    assert output[0].abs().max() == 0
    assert torch.isfinite(gradient).all()
    assert torch.isfinite(second).all()


def test_several_inputs_and_structured_outputs():
    model = Two().double().eval()
    inputs = {"x": torch.randn(5, 3).double(), "y": torch.randn(5, 2).double(), "index": torch.arange(5)}
    conversion = to_xdnn(model, inputs, how="lift")
    one = conversion.model(**inputs)
    two = conversion.model(x=2 * inputs["x"], y=2 * inputs["y"], index=inputs["index"])
    assert torch.equal(two["index"], inputs["index"])
    torch.testing.assert_close(two["logits"], 2 * one["logits"])
    torch.testing.assert_close(two["pair"][1], 2 * one["pair"][1])


def test_samples_do_not_see_each_other():
    lifted, x = Lifted(_net(), radius=1.0), torch.randn(4, 4)
    torch.testing.assert_close(lifted(x)[:2], lifted(x[:2]))


def test_baseline_makes_it_homogeneous_around_it():
    net, x, b = _net().double(), torch.randn(6, 4).double(), torch.randn(1, 4).double()
    conversion = to_xdnn(net, x, how="lift", baseline=b)
    assert conversion.certificate.degree == 1.0
    value = conversion.model(x)
    torch.testing.assert_close(conversion.model(b + 3 * (x - b)), 3 * value)
    assert conversion.model(b).abs().max() == 0


def test_radius_is_given_or_that_of_the_example():
    x = torch.full((2, 4), 3.0)
    assert to_xdnn(_net(), x, how="lift").model.radius.item() == pytest.approx(3.0)
    assert to_xdnn(_net(), x, how="lift", radius=7.0).model.radius.item() == 7.0
    with pytest.raises(ConfigurationError, match="positive"):
        to_xdnn(_net(), x, how="lift", radius=-1.0)
    with pytest.raises(InputError, match="all zero"):
        to_xdnn(_net(), torch.zeros(2, 4), how="lift")


def test_output_without_batch_is_refused():
    class Mean(nn.Module):
        def forward(self, x):
            return x.mean()

    with pytest.raises(InputError, match="one row per sample"):
        Lifted(Mean(), 1.0)(torch.randn(3, 4))


def test_no_floating_point_input_is_refused():
    with pytest.raises(InputError, match="no floating-point"):
        Lifted(nn.Embedding(4, 2), 1.0)(torch.tensor([1, 2]))


def test_lift_copies_pickles_exports_and_trains():
    net, x = _net(), torch.randn(3, 4)
    lifted = to_xdnn(net, x, how="lift").model
    expected = lifted(x)
    for twin in (copy.deepcopy(lifted), pickle.loads(pickle.dumps(lifted))):
        torch.testing.assert_close(twin(x), expected)
    torch.testing.assert_close(torch.export.export(lifted, (x,)).module()(x), expected)
    lifted.train()(x).sum().backward()
    assert all(p.grad is not None for p in lifted.parameters())
    assert all(p.grad is None for p in net.parameters())
    assert certify(lifted.eval(), x).ok


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, x, y, *, shift=0):
        return torch.tanh(self.a(x) + self.b(y)) + shift


def _pair():
    return Pair().double().eval(), (torch.randn(5, 3).double(), torch.randn(5, 2).double())


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize(
    "baseline",
    [(torch.randn(1, 3).double(), torch.randn(5, 2).double()), (0.5, None), (None, torch.randn(2).double())],
    ids=["tensors", "number and none", "none and row"],
)
def test_a_baseline_for_each_input(kind, baseline):
    model, inputs = _pair()
    conversion = to_xdnn(model, inputs, how="lift", baseline=kind(baseline))
    assert conversion.certificate.degree == 1.0
    origins = [torch.zeros(()).double() if b is None else torch.as_tensor(b) for b in baseline]
    moved = [b + 3 * (x - b) for x, b in zip(inputs, origins, strict=True)]
    torch.testing.assert_close(conversion.model(*moved), 3 * conversion.model(*inputs))
    attributed = XGradient(conversion.model, baseline=kind(baseline)).attribute(inputs, 1)
    torch.testing.assert_close(sum(a.sum(1) for a in attributed), conversion.model(*inputs)[:, 1])


@pytest.mark.parametrize("baseline", [0.25, torch.tensor(0.25)])
def test_one_baseline_for_all_inputs_and_by_name(baseline):
    model, (x, y) = _pair()
    everywhere = to_xdnn(model, (x, y), how="lift", baseline=baseline).model
    named = to_xdnn(model, {"x": x, "y": y}, how="lift", baseline={"x": 0.25, "y": torch.full((2,), 0.25)}).model
    torch.testing.assert_close(everywhere(x, y), named(y=y, x=x))
    assert everywhere.baseline.item() == 0.25
    torch.testing.assert_close(named(x, y), named(y=y, x=x))
    with pytest.raises(InputError, match=r"baselines for inputs \['x'\]"):
        named(y=y)


def test_baselines_that_do_not_fit_are_refused():
    model, inputs = _pair()
    with pytest.raises(BaselineError, match="3 baselines for 2 inputs"):
        to_xdnn(model, inputs, how="lift", baseline=(0.0, 1.0, 2.0))
    with pytest.raises(BaselineError, match="does not broadcast"):
        to_xdnn(model, inputs, how="lift", baseline=(torch.zeros(7), None))


def test_the_baseline_is_a_buffer_of_the_lift_and_not_the_users_tensor():
    net, x, b = _net(), torch.randn(6, 4), torch.randn(1, 4)
    conversion = to_xdnn(net, x, how="lift", baseline=b)
    expected, state = conversion.model(x), conversion.model.state_dict()
    assert conversion.added == ("baseline", "radius")
    torch.testing.assert_close(state["baseline"], b)
    b.zero_()
    torch.testing.assert_close(conversion.model(x), expected)
    other = to_xdnn(net, 2 * x, how="lift", baseline=torch.ones(1, 4)).model
    other.load_state_dict(state)
    torch.testing.assert_close(other(x), expected)
    assert conversion.model.double().baseline.dtype == torch.float64
    with pytest.raises(RuntimeError, match="baseline"):
        to_xdnn(net, x, how="lift").model.load_state_dict(state)
    assert set(to_xdnn(net, x, how="lift").model.state_dict()) == {"radius", *(f"model.{k}" for k in net.state_dict())}


class Shared(nn.Module):
    """A batch beside a vector that all samples share."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x, scale, factor=1.0):
        return torch.tanh(self.linear(x)) * scale * factor + 1


def test_an_input_without_batch_is_told_where_to_go():
    with pytest.raises(InputError, match=r"\(5, 3\), \(4,\).*as additional_forward_args"):
        to_xdnn(Shared().eval(), (torch.randn(5, 3), torch.rand(4)), how="lift")


@pytest.mark.parametrize("extra", [(torch.tensor(2.0), 0.5), {"scale": torch.tensor(2.0), "factor": 0.5}])
def test_further_arguments_do_not_scale(extra):
    model, x = Shared().double().eval(), torch.randn(5, 3).double()
    conversion = to_xdnn(model, x, how="lift", additional_forward_args=extra)
    scale, factor = torch.tensor(2.0), 0.5
    rms = x.square().mean(1, keepdim=True).sqrt() / conversion.model.radius
    expected = rms * model(x / rms, scale, factor)
    torch.testing.assert_close(conversion.model(x, scale, factor), expected)
    torch.testing.assert_close(conversion.model(x, scale=scale, factor=factor), expected)


@pytest.mark.parametrize("scale", [1e-30, 1e-24, 1e19, 1e30])
def test_every_scale_of_float32(scale):
    net, x = _net(), torch.randn(4, 4)
    lifted = to_xdnn(net, x, how="lift").model
    torch.testing.assert_close(lifted(scale * x) / scale, lifted(x))
    point = (scale * x).requires_grad_()
    (gradient,) = torch.autograd.grad(lifted(point)[:, 0].sum(), point)
    torch.testing.assert_close((gradient * x).sum(1), lifted(x)[:, 0], rtol=1e-4, atol=1e-5)


def test_the_energy_map_is_the_second_part_of_the_attribution():
    """X-Gradient of a lift is Input×Gradient at the data's scale plus (F − x·∇f)·x²/‖x‖², in float64 by hand."""
    net, x = _net()[:4].double(), torch.randn(6, 4).double()
    conversion = to_xdnn(net, x, how="lift")
    target = conversion.model(x).argmax(1)
    unit = (x / x.square().mean(1, keepdim=True).sqrt() * conversion.model.radius).requires_grad_()
    rho = x.square().mean(1).sqrt() / conversion.model.radius
    output = net(unit).gather(1, target[:, None])[:, 0]
    (gradient,) = torch.autograd.grad(output.sum(), unit)
    output = output.detach()
    energy = rho * output - (x * gradient).sum(1)
    expected = x * gradient + energy[:, None] * x.square() / x.square().sum(1, keepdim=True)
    torch.testing.assert_close(XGradient(conversion.model).attribute(x, target), expected)
    torch.testing.assert_close(energy_share(conversion.model, x), energy / (rho * output))
    own, rest = energy.abs().sum(), (x * gradient).sum(1).abs().sum()
    assert conversion.energy == pytest.approx(float(own / (own + rest)))
    assert f"({conversion.energy:.0%}) is the input's own energy" in str(conversion)
    with pytest.raises(InputError, match="about lifted networks; got Sequential"):
        energy_share(net, x)
