"""Every rule against brute force: what is certified scales, what is refused does not."""

import pytest
import torch

from axiograd.homogeneity import certify
from axiograd.homogeneity.rules.registry import RULES
from axiograd.homogeneity.walk import UNINITIALISED
from support.certificates.cases import inputs
from support.certificates.layer_cases import GROUPS
from support.certificates.met import names_met
from support.certificates.oracle import refutes_every_degree, scales


@pytest.fixture(scope="module")
def proofs():
    """One export per group, of which each case is one output: degrees, and the names of the rules that were asked."""
    found = {}
    with names_met() as met:
        # Sizes that are not fixed are operators, too.
        assert certify(lambda x: (x * x.shape[0], x * x.numel()), inputs()[0]).degrees == (1, 1)
        for group, cases in GROUPS.items():

            def model(x, image, cases=cases):
                return tuple(case.function(x.clone(), image.clone()) for case in cases)

            certificate = certify(model, inputs())
            assert len(certificate.degrees) == len(cases), certificate
            found |= {(group, case.name): degree for case, degree in zip(cases, certificate.degrees, strict=True)}
    return found, met


@pytest.fixture(scope="module")
def degrees(proofs):
    return proofs[0]


ALL = [pytest.param(group, case, id=f"{group}: {case.name}") for group, cases in GROUPS.items() for case in cases]


@pytest.mark.parametrize(("group", "case"), ALL)
def test_degree(group, case, degrees):
    assert degrees[group, case.name] == (None if case.degree is None else pytest.approx(case.degree))


@pytest.mark.parametrize(("group", "case"), ALL)
def test_oracle(group, case):
    function = lambda x, i: case.function(x.clone(), i.clone())  # noqa: E731 - in-place cases must not share inputs
    if case.degree is not None:
        tolerance = 1e-5 if "float32" in case.name else 1e-9
        fits, error = scales(function, inputs(), case.degree, tolerance=tolerance)
        assert fits, error
    elif case.conservative:  # it has a degree, and the certificate is right not to know
        fits, error = scales(function, inputs(), 1.0)
        assert fits, error
    else:
        assert any(refutes_every_degree(function, inputs(seed)) for seed in range(5))


def test_every_case_alone_agrees_with_the_group(degrees):
    """A few of each group alone: other outputs in the same program change nothing."""
    for group, cases in GROUPS.items():
        for case in cases[:2]:
            certificate = certify(case.function, inputs())
            assert certificate.degrees[0] == degrees[group, case.name]


def test_every_name_in_the_registry_has_a_case(proofs):
    """A rule that no case asks is not tested; one that no program can ask is deleted."""
    names = {name for name in RULES if name.startswith("aten::")}
    # Constants are folded, and tensors without numbers are followed, before a rule is asked; their cases are here, too.
    unasked = {f"aten::{name}" for name in ("full", "scalar_tensor", "zeros")} | UNINITIALISED
    cases = {f"aten::{case.name}" for cases in GROUPS.values() for case in cases}
    assert names - proofs[1] <= unasked & cases


def test_names_are_unique():
    for cases in GROUPS.values():
        assert len({case.name for case in cases}) == len(cases)
    assert torch.get_default_dtype() == torch.float32
