"""Piecewise linear: second differences along lines within a cell are zero, and elsewhere they are not."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd._calls import read_leaves
from axiograd.homogeneity import Certificate, certify
from axiograd.homogeneity.degrees import KnownConstant, Value
from axiograd.homogeneity.findings import Findings
from axiograd.homogeneity.nodes import placeholders
from axiograd.homogeneity.program import trace
from axiograd.homogeneity.walk import Walk
from support.certificates.cases import inputs
from support.certificates.layer_cases import GROUPS

STEP = 1e-4
#: Rounding leaves 1e-16 / STEP² of a curvature of 1.
TOLERANCE = 1e-4
SQUARE = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def affine():
    """One export per group, each case one output, as for the degrees."""
    found = {}
    for group, cases in GROUPS.items():

        def model(x, image, cases=cases):
            return tuple(case.function(x.clone(), image.clone()) for case in cases)

        program = trace(model, read_leaves(inputs(), additional_forward_args=None, wrt=None, baseline=None), axes=(0,))
        graph, walk = program.graph_module.graph, Walk(program.graph_module, Findings())
        for node in placeholders(graph):
            _, tensor = program.constants.get(node.name, ("", None))
            constant = KnownConstant(lambda tensor=tensor: tensor)
            known = Value(degree=1.0, moves=True) if node.name in program.inputs else Value(0.0, constant=constant)
            walk.environment[node] = known
        walk.run(graph.nodes)
        nodes = {node.name: node for node in graph.nodes}
        for case, output in zip(cases, program.outputs, strict=True):
            found[group, case.name] = not walk.environment[nodes[output]].bends
    return found


def bends(function, seed: int) -> float:
    """|F(x − hd) − 2F(x) + F(x + hd)| along a random line, against what a curvature of size 1 would give."""
    point, generator = inputs(seed), torch.Generator().manual_seed(1000 + seed)
    line = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in point]
    values = []
    for t in (-STEP, 0.0, STEP):
        torch.manual_seed(0)  # the same draws
        values.append(function(*(p + t * d for p, d in zip(point, line, strict=True))))
    below, here, above = (torch.nan_to_num(v.double(), 0, 0, 0) for v in values)
    return float((below - 2 * here + above).abs().max() / (STEP**2 * (1 + here.abs().max())))


def _bends(case) -> bool:
    if "float32" in case.name or not case.function(*inputs()).is_floating_point():
        return False
    # A gate may switch on some of the lines.
    return all(bends(case.function, seed) > TOLERANCE for seed in range(4))


def test_what_bends_is_called_curved_and_hardly_anything_else(affine):
    bent = {(group, case.name) for group, cases in GROUPS.items() for case in cases if _bends(case)}
    assert not [name for name, flat in affine.items() if flat and name in bent]
    assert len(bent) > 80
    missed = sorted(name for name, flat in affine.items() if not flat and name not in bent)
    assert len(missed) < 40, missed


def test_relu_networks_with_biases_are_piecewise_linear_though_not_homogeneous():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    certificate = certify(model, torch.randn(3, 4))
    assert (certificate.ok, certificate.piecewise_linear, certificate.not_piecewise_linear) == (False, True, ())


def test_the_operator_that_spoils_it_is_named():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    certificate = certify(model, torch.randn(3, 4))
    assert not certificate.piecewise_linear
    (spoilt,) = certificate.not_piecewise_linear
    assert (spoilt.module, spoilt.op, spoilt.kind) == ("1", "aten.gelu", "curved")
    assert Certificate.from_json(certificate.to_json()) == certificate


class Attends(nn.Module):
    def forward(self, x):
        return (x[:, None] * x[:, :, None]).sum(2)


@pytest.mark.parametrize(
    ("model", "op"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), "aten.batch_norm"),
        (Attends(), "aten.mul"),
        (lambda x: x / x.abs().sum(1, keepdim=True), "aten.div"),
        (lambda x: x.detach() + x, "detach"),
        (lambda x: torch.where(x.square() > 1, x, x.exp()), "aten.exp"),
        (nn.LayerNorm(4), "aten.layer_norm"),
        (lambda x: torch.fft.rfft(x).abs(), "aten.abs"),
        (lambda x: torch.fft.rfft(x).sgn().real, "aten.sgn"),
        (lambda x: torch.vdot(x[0], x[1]), "aten.vdot"),
        (lambda x: F.grid_sample(SQUARE, x[:1, None, None, :2], align_corners=False), "aten.grid_sampler"),
    ],
    ids=[
        "batch statistics",
        "a product",
        "a quotient",
        "a cut",
        "a curved branch",
        "layer norm",
        "length",
        "direction",
        "vdot",
        "a place",
    ],
)
def test_curved(model, op):
    certificate = certify(model, torch.randn(3, 4))
    assert not certificate.piecewise_linear
    assert op in certificate.not_piecewise_linear[0].op


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval(),
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train(),
        lambda x: torch.where(x.square() > 1, x, -x),
        lambda x: x * (x.exp() > 2),
        lambda x: F.hardtanh(x) + F.relu6(x) + x.sort(1).values,
    ],
    ids=["running statistics", "dropout", "a curved gate", "a mask", "pieces"],
)
def test_gates(model):
    assert certify(model, torch.randn(3, 4)).piecewise_linear
