"""Table 1 as measured: every cell that the paper fills is the paper's."""

import pytest
import torch
from captum.attr import LRP

from axiograd import CaptumMethod, InputXGradient
from axiograd.axioms import AXIOMS, Table1, audit, audit_all
from axiograd.axioms.networks import generated
from axiograd.axioms.paper_table import PAPER


@pytest.fixture(scope="module")
def table():
    return audit_all(n_networks=1, n_steps=256, n_samples=256)


def test_every_cell_of_the_paper(table):
    assert table.differences() == [], str(table)
    for method, cells in PAPER.items():
        for axiom, cell in zip(AXIOMS, cells, strict=True):
            if cell != " ":
                assert table[method][axiom.name].mark == cell
    assert "Every cell that the paper fills is as in the paper." in str(table)
    assert str(table).count("(✗)") == sum(cells.count("✗") for cells in PAPER.values())


def test_captums_methods(table):
    marks = {name: "".join(r.mark for r in table[name].results) for name in ("DeepLIFT", "LRP")}
    assert marks == {"DeepLIFT": "✓✓✗✓✓✓✗", "LRP": "✗✓✓✗✓✓✗"}
    pair = table["DeepLIFT"]["Implementation invariance"].counterexample
    assert "the bias moved into the inner ReLU" in str(pair)
    assert pair.rerun().violation == pair.violation
    shap = table["GradientShap (5)"]
    assert not shap["Completeness"].passed
    assert not shap["Implementation invariance"].passed


def test_lrp_is_input_x_gradient_on_relu_networks():
    for subject in generated(torch.Generator().manual_seed(3), homogeneous=False, n_networks=3):
        model = subject.network.module()
        lrp, ixg = (m.attribute(subject.inputs) for m in (CaptumMethod(model, LRP), InputXGradient(model)))
        assert torch.allclose(lrp, ixg, atol=1e-6)


def test_differences_are_explained():
    wrong = Table1((audit(InputXGradient, n_networks=1, name="Integrated Gradients"),))
    assert wrong.differences() == [
        ("Integrated Gradients", "Sensitivity (a)"),
        ("Integrated Gradients", "Completeness"),
    ]
    assert "Not as in the paper: Integrated Gradients ✗ Completeness: violation" in str(wrong)
    lenient = Table1((audit(InputXGradient, n_networks=1, tolerance=10.0, name="Input×Gradient"),))
    assert "Not as in the paper: Input×Gradient ✓ Sensitivity (a): violation" in str(lenient)
