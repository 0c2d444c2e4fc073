from types import SimpleNamespace

import numpy as np
import pytest
import torch

from axiograd.errors import InputError
from axiograd.report import convergence_plot, feature_bars, masking_plot, training_plot


def curve(area=1.0):
    fractions = torch.linspace(0.01, 1, 4)
    return SimpleNamespace(fractions=fractions, curve=fractions**2, curve_standard_error=fractions * 0, area=area)


def widths(figure):
    return [bar.get_width() for bar in figure.axes[0].patches]


def test_bars_are_ordered_by_size_and_add_up():
    values = torch.tensor([0.5, -2.0, 0.1, 1.0], dtype=torch.float64)
    figure = feature_bars(values, ["a", "b", "c", "d"], top=2)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["b", "d", "2 others"]
    assert widths(figure) == pytest.approx([-2.0, 1.0, 0.6])


def test_bars_of_a_batch_are_mean_magnitudes():
    figure = feature_bars(torch.tensor([[1.0, -4.0], [-1.0, 2.0]]))
    assert widths(figure) == [3, 1]
    assert "2 samples" in figure.get_supxlabel()


def test_values_stand_beside_their_names():
    figure = feature_bars(torch.tensor([1.0]), ["age"], values=torch.tensor([63.0]))
    assert figure.axes[0].get_yticklabels()[0].get_text() == "age = 63"


@pytest.mark.parametrize("values", [torch.zeros(3), torch.ones(1), torch.full((2,), 1e-320, dtype=torch.float64)])
def test_bars_of_nothing_are_drawn(values):
    feature_bars(values, path=None).canvas.draw()


def test_masking_has_a_panel_per_metric_and_a_line_per_method():
    figure = masking_plot({"X-Gradient": {"KPM": curve(2.0), "RAM": curve()}, "$odd_": {"KPM": curve()}})
    figure.canvas.draw()
    assert [a.get_title() for a in figure.axes] == ["KPM ↑", "RAM ↓"]
    assert [len(a.lines) for a in figure.axes] == [2, 1]
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "X-Gradient  2.00"
    assert len(masking_plot({"KPM": curve()}).axes) == 1


def test_convergence_has_a_place_for_exactly_zero():
    figure = convergence_plot({"IG": {1: 9.0, 2: 3.0}, "X-Gradient": {1: 0.0}})
    figure.canvas.draw()
    assert figure.axes[0].lines[1].get_ydata() == [1.0]
    convergence_plot({"all exact": {1: 0.0}}).canvas.draw()


def test_training_curves_of_one_epoch_are_marked():
    figure = training_plot({"loss": [0.5]})
    figure.canvas.draw()
    assert figure.axes[0].lines[0].get_marker() == "o"


def test_training_curves_with_gaps_are_drawn():
    figure = training_plot({"loss": [0.5, np.nan, 0.2], "accuracy": [1.0, 2.0, 3.0]}, steps=[10, 20, 30])
    figure.canvas.draw()
    assert list(figure.axes[1].lines[0].get_xdata()) == [10, 20, 30]


@pytest.mark.parametrize(
    "call",
    [
        lambda: feature_bars(torch.ones(3), ["a"]),
        lambda: masking_plot({}),
        lambda: convergence_plot({"a": {}}),
        lambda: training_plot({}),
    ],
)
def test_nothing_to_draw_is_an_input_error(call):
    with pytest.raises(InputError):
        call()
