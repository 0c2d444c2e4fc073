"""Graphs that are wrong are not kept; inputs on a kink are recognised, and excuse nothing else."""

from dataclasses import replace

import pytest
import torch
from torch import fx, nn

import axiograd
from axiograd.errors import ExportError
from axiograd.export.card import Check
from axiograd.export.checking import check
from axiograd.export.exporting import make
from axiograd.export.rounding import is_gate


@pytest.fixture(scope="module")
def subject():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16, bias=False), nn.ReLU(), nn.Linear(16, 3, bias=False)).eval()
    return make(model, torch.randn(3, 4))


def right(subject):
    """What a faithful file answers, by the graph itself."""
    module = subject.joint.program.module()
    return lambda inputs: dict(zip(subject.joint.outputs, module(*inputs.values()), strict=True))


def test_the_graph_itself_passes(subject):
    found = check(subject, right(subject), tolerance=1e-5)
    assert found.samples == 8
    assert found.batches == (1, 2, 5)
    assert found.attribution_error <= 1e-6
    assert not found.ties


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda found: found["attribution"].mul_(1.001), "not because of a tie"),
        (lambda found: found["attribution"].flip(1), "not because of a tie"),
        (lambda found: found["output"].mul_(1.001), "outputs differ"),
        (lambda found: found["gap"].add_(0.01), "miss the score"),
        (lambda found: found["attribution"].nan_to_num_(0.0), "NaN in one row"),
        (lambda found: found["attribution"].add_(1e-30), "not zero"),
    ],
)
def test_every_kind_of_error_is_seen(subject, spoil, message):
    answer = right(subject)

    def wrong(inputs):
        found = {name: value.clone() for name, value in answer(inputs).items()}
        changed = spoil(found)
        if message == "not because of a tie":
            found["attribution"] = changed
        return found

    with pytest.raises(ExportError, match=message):
        check(subject, wrong, tolerance=1e-5)


class Steep(nn.Module):
    """‖x‖ sin(ωx/‖x‖): in float32 the angle has no digit behind the point."""

    def forward(self, x):
        length = x.norm(dim=1, keepdim=True)
        return length * torch.sin(1e9 * x / length)


def test_a_model_that_float32_cannot_run_is_not_the_file_s_fault():
    subject = make(Steep().eval(), torch.randn(3, 4))
    answer = right(subject)

    def wrong(inputs):
        found = answer(inputs)
        return {**found, "attribution": 100 * found["attribution"]}

    with pytest.raises(ExportError, match="a matter of rounding, too: float32 does not do for this model"):
        check(subject, wrong, tolerance=1e-5)


def test_minus_one_must_be_the_largest_output(subject):
    answer = right(subject)

    def wrong(inputs):
        return answer({**inputs, "target": inputs["target"].clamp_min(0)})

    with pytest.raises(ExportError, match="another class than its largest output"):
        check(subject, wrong, tolerance=1e-5)


def test_one_row_may_not_change_another(subject):
    answer = right(subject)

    def wrong(inputs):
        return {name: value + 0 * value[:1] for name, value in answer(inputs).items()}

    with pytest.raises(ExportError, match="NaN in other rows"):
        check(subject, wrong, tolerance=1e-5)


class Tied(nn.Module):
    """max(a·x, b·x) on inputs where both are the same number: the gradient is a or b, as rounding will have it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ways", torch.tensor([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))

    def forward(self, x):
        return x.relu() + (x @ self.ways.T).amax(1, keepdim=True)


@pytest.fixture
def tied(monkeypatch):
    """A model and inputs on its ties, and a file that rounds them to the other side."""
    from axiograd.export import checking

    def on_a_tie(feature, generator):
        drawn = torch.randn(feature.shape, generator=generator)
        drawn[:, 1] = 3 * drawn[:, 0]
        return drawn

    monkeypatch.setattr(checking, "_like", on_a_tie)
    subject = make(Tied().eval(), torch.randn(3, 3))
    answer = right(subject)

    def other_rounding(inputs):
        moved = inputs["input"] * torch.tensor([1 + 2e-7, 1 - 2e-7, 1.0])
        return answer({**inputs, "input": moved})

    return subject, other_rounding


def test_a_tie_is_found_however_the_coins_fall(tied, monkeypatch):
    """Each shift of an input on a tie switches the gate with probability one half; no row may be missed."""
    from axiograd.export import checking

    monkeypatch.setattr(checking, "BATCHES", (200,))
    found = check(*tied, tolerance=1e-5)
    assert found.ties == found.samples <= found.gates
    assert not found.rounded


def test_ties_are_counted_and_their_size_is_told(tied):
    found = check(*tied, tolerance=1e-5)
    assert found.ties > 0
    assert found.gates > 0
    assert found.tied_error > 0.1
    assert found.attribution_error <= 1e-5
    assert f"{found.ties} of them are ties" in str(found)


class Cancelling(nn.Module):
    """relu(x·b), where x·b is what is left of numbers ten thousand times as large: rounding opens the gate or not."""

    def __init__(self):
        super().__init__()
        self.register_buffer("first", torch.tensor([[1e4, 2e4, 3e4], [1e4, 2e4, 3e4], [1.0, 1.0, -1.0]]))
        self.register_buffer("second", torch.tensor([[1.0, -1.0, 1.0]]))

    def forward(self, x):
        return x.abs() + ((x @ self.first.T) @ self.second.T).relu()


@pytest.mark.parametrize(("left", "tie"), [(1e-4, True), (0.1, False)])
def test_a_gate_within_the_rounding_of_an_inner_layer_is_a_tie(left, tie, monkeypatch):
    from axiograd.export import checking

    b = torch.tensor([1.0, 1.0, -1.0])

    def near(feature, generator):
        drawn = torch.randn(feature.shape, generator=generator)
        return drawn + (left - drawn @ b)[:, None] * b / 3

    monkeypatch.setattr(checking, "_like", near)
    subject = make(Cancelling().eval(), torch.randn(3, 3))
    answer = right(subject)

    def gate_closed(inputs):
        x = inputs["input"]
        return answer({**inputs, "input": x - 2 * (x @ b)[:, None] * b / 3})

    if tie:
        found = check(subject, gate_closed, tolerance=1e-5)
        assert found.ties == found.samples
    else:
        with pytest.raises(ExportError, match="not because of a tie"):
            check(subject, gate_closed, tolerance=1e-5)


OTHER_SIDE = (1 + 2e-7, 1 - 2e-7, 1.0)


def plain(file):
    """The file without its gates."""
    return lambda inputs: {
        name: value for name, value in file(inputs).items() if name in {"output", "attribution", "gap"}
    }


def with_gates(subject, shift=OTHER_SIDE, **spoiled):
    """A file that answers by the graph on shifted inputs, with its gates, and some of its answers multiplied."""

    def run(inputs):
        gates = {}

        class Watching(fx.Interpreter):
            def run_node(self, n):
                result = super().run_node(n)
                if is_gate(n, result):
                    gates[n.name] = result
                return result

        values = [inputs["input"] * torch.tensor(shift), *list(inputs.values())[1:]]
        answers = dict(zip(subject.joint.outputs, Watching(subject.joint.graph).run(*values), strict=True))
        return {**gates, **answers, **{name: answers[name] * torch.tensor(by) for name, by in spoiled.items()}}

    return run


def test_a_tie_excuses_its_gate_and_nothing_else(tied):
    subject, _ = tied
    file = with_gates(subject)
    found = check(subject, plain(file), tolerance=1e-5, gated=lambda: file)
    assert found.ties == found.samples
    assert 0 < found.attribution_error < 1e-5  # compared like all others, once the gate is the same
    for spoiled in ({"attribution": [1.0, 1.0, 1.01]}, {"output": [1.0, 1.0, 1.01]}):
        wrong = with_gates(subject, **spoiled)
        with pytest.raises(ExportError, match=r"even with the gates that the file chooses|outputs differ"):
            check(subject, plain(wrong), tolerance=1e-5, gated=lambda wrong=wrong: wrong)


def test_a_graph_that_is_wrong_in_float64_has_no_excuse(tied):
    """As if a decomposition were wrong by less than the tie's size."""
    subject, _ = tied
    graph = fx.Graph()
    graph.output(_with_third_pixel_off(graph, subject.joint.graph.graph))
    graph = fx.GraphModule(subject.joint.graph, graph)
    wrong = replace(subject, joint=replace(subject.joint, graph=graph))
    with pytest.raises(ExportError, match="in float64"):
        check(wrong, plain(with_gates(wrong)), tolerance=1e-5)


def _with_third_pixel_off(new, old):
    output, attribution, *others = new.graph_copy(old, {})
    first = new.call_function(torch.ops.aten.slice.Tensor, (attribution, 1, 0, 2))
    last = new.call_function(torch.ops.aten.slice.Tensor, (attribution, 1, 2, 3))
    off = new.call_function(torch.ops.aten.mul.Tensor, (last, 1.01))
    return output, new.call_function(torch.ops.aten.cat.default, ([first, off], 1)), *others


class Idle(Tied):
    """And gates behind which there is nothing."""

    def forward(self, x):
        return super().forward(x) + 0.0 * x.repeat(1, 20).relu().sum(1, keepdim=True)


def test_more_gates_than_rounding_switches_are_wrong(tied):
    subject = make(Idle().eval(), torch.randn(3, 3))
    answer = with_gates(subject)

    def turned(inputs):
        found = answer(inputs)
        return {name: ~value if value.shape[1:] == (60,) else value for name, value in found.items()}

    found = check(subject, plain(answer), tolerance=1e-5, gated=lambda: answer)
    assert found.ties
    assert found.unequal == 0
    assert found.gated_error < 1e-5 < found.tied_error
    assert "with the file's own gates" in str(found)
    with pytest.raises(ExportError, match="gates otherwise than PyTorch"):
        check(subject, plain(answer), tolerance=1e-5, gated=lambda: turned)


def test_rounding_without_a_tie_is_called_rounding():
    said = str(Check(8, (1, 2, 5), 0.0, 0.0, 0.0, tied_error=2e-5, rounded=8))
    assert "on 8 PyTorch's own rounding is larger than the tolerance (error there 2.0e-05)" in said
    assert "ties" not in said


def test_the_file_is_not_written_where_the_check_fails(tmp_path, monkeypatch):
    from axiograd.export import exporting

    def fails(*_, **__):
        raise ExportError("no")

    monkeypatch.setattr(exporting, "check", fails)
    model = nn.Linear(2, 2, bias=False)
    (tmp_path / "m.pt2").write_text("the old one")
    with pytest.raises(ExportError):
        axiograd.export_pt2(model, torch.ones(2, 2), tmp_path / "m.pt2")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["the old one"]
