"""Certificates are checked on the running model: what runs otherwise than it is traced is refuted, nothing else."""

import functools

import pytest
import torch
from torch import nn

import axiograd
from axiograd.homogeneity import certify, verify

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class Compiling(nn.Module):
    def forward(self, x):
        return x.relu() if torch.compiler.is_compiling() else x.tanh()


class Exporting(nn.Module):
    def forward(self, x):
        return x.relu() if torch.compiler.is_exporting() else torch.where(x > 0.1, x, 0)


class OfType(nn.Module):
    def forward(self, x):
        return x + 1 if type(x) is torch.Tensor else x.relu()


class Tiny(nn.Module):
    def forward(self, x):
        return x.relu() if torch.compiler.is_exporting() else torch.where(x.abs() < 1e-2, 0.0, x).relu()


class Gradient(nn.Module):
    """The right function, with a gradient that is changed by a hook on the tensor when it is not traced."""

    def forward(self, x):
        y = x * 1
        if not torch.compiler.is_exporting() and y.requires_grad:
            y.register_hook(lambda g: 2 * g)
        return y.relu()


@pytest.mark.parametrize("kind", [Compiling, Exporting, OfType, Tiny, Gradient])
def test_what_runs_otherwise_when_it_is_traced_is_refuted_with_numbers(kind):
    certificate = certify(kind(), X)
    assert not certificate.ok
    assert [v.kind for v in certificate.violations] == ["refuted"]
    assert any(c.isdigit() for c in certificate.violations[0].reason)


def _shift(module, args, output):
    return output + 1


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda m: torch.compile(m, backend="eager")])
def test_hooks_of_wrappers_are_seen(wrap):
    inner = nn.Linear(6, 3, bias=False)
    wrapped = wrap(inner)
    assert certify(wrapped, X).ok
    wrapped.register_forward_hook(_shift)
    assert not certify(wrapped, X).ok
    with pytest.raises(axiograd.errors.NotHomogeneousError):
        axiograd.XGradient(wrapped).attribute(X, 0)
    assert certify(inner, X).ok


def test_a_wrong_rule_of_the_users_is_refuted():
    @torch.library.custom_op("axiograd_test::shifted", mutates_args=())
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    shifted.register_fake(torch.empty_like)
    shifted.register_autograd(lambda ctx, grad: grad)
    axiograd.homogeneity.rule("axiograd_test::shifted")(lambda call: call["x"])
    assert [v.kind for v in certify(lambda x: shifted(x), X).violations] == ["refuted"]  # noqa: PLW0108


def test_random_draws_are_held_fixed():
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2, bias=False)).train()
    assert certify(model, X).ok


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("example", [torch.zeros(4, 6), torch.ones(4, 6), X])
def test_odd_examples_do_not_refute_x_dnns(example, scale):
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2, bias=False))
    scaled = axiograd.homogeneity.conversion.Lifted(model, 1.0, None)
    assert certify(scaled, example * scale).ok
    assert certify(nn.Linear(6, 3, bias=False), example * scale).ok


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_formats_do_not_refute(dtype):
    model = nn.Sequential(nn.Linear(6, 32, bias=False), nn.ReLU(), nn.Linear(32, 2, bias=False)).to(dtype)
    assert certify(model, X.to(dtype)).ok


def test_a_layer_that_casts_inside():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 4, bias=False, dtype=torch.bfloat16)

        def forward(self, x):
            return self.inner(x.bfloat16()).float().relu()

    assert certify(Cast(), X).ok
    attributions = axiograd.XGradient(Cast()).attribute(X, 0)
    assert attributions.dtype == torch.float32


def test_verify_is_the_same_oracle():
    for kind in (Compiling, Exporting, OfType, Tiny):
        assert not verify(kind(), X).ok


def test_the_baseline_of_the_user_is_not_written_into():
    b = torch.full((6,), 0.5)

    def centred(x):
        return x.sub_(0.5).relu()

    assert certify(centred, X, baseline=b).ok
    assert b.tolist() == [0.5] * 6


@pytest.mark.parametrize(
    ("branch", "batch", "text", "covered"),
    [
        (lambda n: n < 5, 3, "2 ≤ x[0] ≤ 4", {3: True, 4: True, 5: False}),
        (lambda n: n % 2 == 0, 4, "x[0] ≥ 2, not 3, 5, 7 …", {4: True, 5: False, 6: True}),
        (lambda n: n != 7, 3, "x[0] ≥ 2, not 7", {6: True, 7: False, 8: True}),
    ],
)
def test_sizes_that_take_another_branch_are_not_covered(branch, batch, text, covered):
    def model(x):
        return x.relu().sum(1) if branch(x.shape[0]) else (x.relu() + 1).sum(1)

    assert certify(model, torch.randn(batch, 6)).dynamic == (text,)
    for size, inside in covered.items():
        method = axiograd.XGradient(model)
        method.attribute(torch.randn(batch, 6))
        if inside:
            method.attribute(torch.randn(size, 6))
        else:
            with pytest.raises(axiograd.errors.NotHomogeneousError):
                method.attribute(torch.randn(size, 6))


def test_an_exported_program_is_a_model():
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False))
    program = torch.export.export(model, (X,))
    assert certify(program, X).degree == 1
    torch.testing.assert_close(axiograd.XGradient(program).attribute(X, 0), axiograd.XGradient(model).attribute(X, 0))


def test_a_baseline_that_goes_through_branches_is_not_dropped():
    def kept(x):
        return torch.cond(torch.ones(()) > 0, lambda x: x.clone(), lambda x: 2 * x, (x,))

    def taken_out(x):
        return kept(x - 0.5)

    b = torch.full((6,), 0.5)
    assert not certify(kept, X, baseline=b).ok
    assert certify(taken_out, X, baseline=b).ok
    assert certify(kept, X).ok


@pytest.mark.parametrize("size", [lambda x: 6, len], ids=["of the features", "of the batch"])
def test_a_cache_that_is_empty_is_filled_with_numbers(size):
    @functools.lru_cache
    def kept(n):
        return torch.full((n,), 2.0)

    def model(x):
        return x.relu().T * kept(size(x)) if size is len else x.relu() * kept(size(x))

    assert certify(model, X).degree == 1
    assert type(model(X)) is torch.Tensor
    kept.cache_clear()
    if size is not len:
        torch.testing.assert_close(axiograd.XGradient(model).attribute(X, 0)[:, 0], 2 * X[:, 0].relu())
        assert torch.equal(model(X), 2 * X.relu())


def test_the_first_run_leaves_buffers_draws_and_inputs_alone():
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU(inplace=True)).train()
    before, x, draws = {k: v.clone() for k, v in model.state_dict().items()}, X.clone(), torch.get_rng_state()
    certify(model, x)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(x, X)
    assert torch.equal(torch.get_rng_state(), draws)


@pytest.mark.parametrize(
    ("gate", "op"),
    [
        (lambda u: torch.heaviside(u, torch.ones_like(u)), "aten.heaviside"),
        (lambda u: torch.special.gammainc(u.abs(), torch.ones_like(u)), "autograd"),
        (lambda u: torch.special.zeta(u.abs() + 1.5, torch.ones_like(u)), "autograd"),
    ],
    ids=["heaviside", "gammainc", "zeta"],
)
def test_what_autograd_cannot_differentiate_is_refused(gate, op):
    def model(x):
        return x * gate(x / x.norm())

    with pytest.raises((RuntimeError, NotImplementedError), match="derivative"):
        model(X.clone().requires_grad_()).sum().backward()
    certificate = certify(model, X)
    assert (certificate.ok, [v.op for v in certificate.violations]) == (False, [op])
    assert "derivative" in certificate.violations[0].reason


def _hooked(change):
    def model(x):
        gate = x / x.norm(dim=-1, keepdim=True)
        if gate.requires_grad:
            gate.register_hook(change)
        return x * torch.sigmoid(3 * gate)

    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_hook_on_a_value_of_degree_0_is_refuted(dtype):
    """Euler's identity holds whatever the gradient of a gate is: differences of outputs tell."""
    x = torch.randn(4, 6, dtype=dtype, generator=torch.Generator().manual_seed(0))
    for change in (torch.zeros_like, lambda g: 0.5 * g, lambda g: g.flip(-1)):
        certificate = certify(_hooked(change), x)
        assert [v.op for v in certificate.violations] == ["slope"], certificate
    assert certify(_hooked(lambda g: 1 * g), x).ok


def test_a_full_backward_hook_is_refuted():
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False))
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    assert certify(model, x).ok
    model[2].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0].flip(-1),))
    assert not certify(model, x).ok


def test_a_steep_function_is_not_a_wrong_gradient():
    """‖x‖ sin(ωx/‖x‖) turns many times within the step of a difference; its gradient is right nevertheless."""

    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return 0.5 * gradient

    def steep(x, between=torch.clone):
        length = x.norm(dim=1, keepdim=True)
        return length * torch.sin(1e9 * between(x / length))

    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert certify(steep, x).ok
    assert not certify(lambda x: steep(x, Halved.apply), x).ok


def test_ties_kinks_and_jumps_do_not_refute():
    first = nn.Linear(6, 8, bias=False).double()
    with torch.no_grad():
        first.weight[4:] = first.weight[:4]
        first.weight[0] = 0
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def model(x):
        h = first(x)
        best = torch.zeros_like(h).scatter(1, h.abs().topk(3, 1).indices, 1.0)
        return torch.cat([h.relu().reshape(-1, 4, 2).amax(2), h * best, (h[:, :4] - h[:, 4:]).abs()], 1)

    for example in (x, x * (x > 0), torch.ones_like(x), torch.zeros_like(x)):
        assert certify(model, example).ok


def test_what_is_overwritten_before_its_gradient_is_not_certified():
    def overwritten(x):
        h = (2 * x).relu_()
        h *= 2
        return h

    (violation,) = certify(overwritten, torch.randn(3, 4)).violations
    assert violation.op == "autograd"
    assert "inplace" in violation.reason


def test_an_empty_batch_has_no_error_to_measure():
    model = nn.LayerNorm(4, elementwise_affine=False)
    certificate = certify(lambda x: model(x) * x.norm(dim=-1, keepdim=True), torch.zeros(0, 4))
    assert certificate.ok
    assert not certificate.exact
