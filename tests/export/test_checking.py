"""A graph that is not the model's is refused, and so is a file that is off on most inputs; a kink alone is not."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from axiograd.errors import ExportError
from axiograd.export import exporting
from axiograd.export.checking import check, relative
from axiograd.export.pt2_file import runner


@pytest.fixture(scope="module")
def subject():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16, bias=False), nn.ReLU(), nn.Linear(16, 3, bias=False)).eval()
    return exporting._subject(model, torch.randn(3, 4), None, None, "index", None, sizes=False)


def test_a_faithful_file(subject):
    found = check(subject, runner(subject.joint), tolerance=1e-5)
    assert found.samples == 5
    assert found.structure < 1e-14
    assert found.median <= found.largest < 1e-6


@pytest.mark.parametrize("change", [lambda w: 1.001 * w, lambda w: w.flip(0)])
def test_another_graph_is_refused(subject, change):
    constants = {name: change(value) for name, value in subject.joint.constants.items()}
    other = replace(subject, joint=replace(subject.joint, constants=constants))
    with pytest.raises(ExportError, match="in float64"):
        check(other, runner(subject.joint), tolerance=1e-5)


@pytest.mark.parametrize("name", ["output", "attribution"])
def test_a_file_that_computes_something_else_is_refused(subject, name):
    answer = runner(subject.joint)

    def wrong(inputs):
        found = answer(inputs)
        return {**found, name: 1.01 * found[name]}

    with pytest.raises(ExportError, match=r"by 1\.0e-02 of the largest in the median \(tolerance 1e-03\)"):
        check(subject, wrong, tolerance=1e-3)


def test_one_input_on_a_kink_is_reported_and_no_more(subject):
    answer = runner(subject.joint)

    def kinked(inputs):
        found = answer(inputs)
        return {**found, "attribution": found["attribution"] * (1.5 if len(found["output"]) == 1 else 1.0)}

    found = check(subject, kinked, tolerance=1e-5)
    assert found.median < 1e-6
    assert found.largest == pytest.approx(0.5, rel=1e-4)
    assert "a ReLU at zero" in str(found)
    assert "a ReLU at zero" not in str(check(subject, answer, tolerance=1e-5))


class Narrow(nn.Module):
    """Casts by itself, so that it does not run in float64."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3, bias=False)

    def forward(self, x):
        return torch.mm(x.float(), self.layer.weight.detach().float().T).relu()


def test_models_that_stay_narrow_and_plain_functions():
    torch.manual_seed(0)
    model = Narrow().eval()
    for each in (model, lambda x: model(x).cumsum(1)):
        subject = exporting._subject(each, torch.randn(3, 4), None, None, "index", None, sizes=False)
        assert check(subject, runner(subject.joint), tolerance=1e-5).structure < 1e-6


def test_errors_are_relative_to_the_largest_value_of_a_row():
    expected = torch.tensor([[1.0, -4.0], [0.0, 0.0]]), torch.tensor([2.0, 1.0])
    found = torch.tensor([[1.0, -3.0], [0.0, 0.0]]), torch.tensor([2.0, 1.5])
    assert relative(found, expected).tolist() == [0.25, 0.5]
