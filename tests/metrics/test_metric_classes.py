"""Metric classes: batches, processes and the functional twins agree."""

import importlib
import sys

import matplotlib as mpl
import pytest
import torch
from torch import nn
from torchmetrics import MetricCollection

import axiograd.metrics
from axiograd.errors import MissingExtraError
from axiograd.metrics import KeepNegativeMask, KeepPositiveMask, masking_curves
from support.metric_updates import N_SAMPLES, computed, everything
from support.two_ranks import on_two_ranks


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert torch.allclose(found[name], value, rtol=1e-12, atol=0)
        else:
            assert found[name] == pytest.approx(value, rel=1e-12)


def test_batches_add_up():
    whole = computed(slice(None), batch=N_SAMPLES)
    assert_same(computed(slice(None), batch=3), whole)
    assert whole["PointingGame"][2] == N_SAMPLES


def test_two_processes_equal_one():
    single = computed(slice(None), batch=N_SAMPLES)
    for rank in on_two_ranks(everything):
        assert_same(rank, single)


def test_the_functional_twin_agrees():
    generator = torch.Generator().manual_seed(0)
    x, a = torch.randn(2, 5, 4, generator=generator)
    model = nn.Linear(4, 2)
    both = MetricCollection([KeepPositiveMask(), KeepNegativeMask()])
    both.update(model, x, a, target=1)
    expected = masking_curves(model, x, a, 1, metrics=("KPM", "KNM"))
    assert float(both.compute()["KeepPositiveMask"]) == pytest.approx(expected["KPM"].area)
    assert float(both.compute()["KeepNegativeMask"]) == pytest.approx(expected["KNM"].area)
    kpm = both["KeepPositiveMask"]
    assert float(kpm.summary().standard_error) == pytest.approx(expected["KPM"].standard_error)
    assert torch.allclose(kpm.curve(), expected["KPM"].curve)
    kpm.reset()
    kpm.update(model, x[:1], a[:1], target=1)
    assert float(kpm.compute()) == pytest.approx(float(expected["KPM"].areas[0]))


def test_higher_is_better_and_plot():
    directions = {name: getattr(axiograd.metrics, name).higher_is_better for name in axiograd.metrics._CLASSES}
    assert {name for name, higher in directions.items() if higher} == {
        "KeepPositiveMask",
        "KeepAbsoluteMask",
        "EnergyInside",
        "PointingGame",
        "BestOverlapIoU",
    }
    mpl.use("Agg")
    metric = KeepPositiveMask(fractions=(0.5, 1.0))
    value = metric(lambda x: x.sum(1), torch.ones(2, 2), torch.ones(2, 2))
    figure, _ = metric.plot(value)
    mpl.pyplot.close(figure)


def test_without_torchmetrics_only_the_classes_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "axiograd.metrics.metric_classes")
    monkeypatch.delattr(axiograd.metrics, "metric_classes")
    fresh = importlib.reload(axiograd.metrics)
    assert fresh.masking_curves(lambda x: x.sum(1), torch.ones(1, 2), torch.ones(1, 2), metrics=("KPM",))
    with pytest.raises(MissingExtraError, match=r"axiograd\[metrics\]"):
        _ = fresh.KeepPositiveMask
    with pytest.raises(AttributeError, match="no attribute 'KeepEverything'"):
        _ = fresh.KeepEverything
    assert "RemoveAbsoluteMask" in dir(fresh)
