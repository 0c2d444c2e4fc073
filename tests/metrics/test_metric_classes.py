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
from axiograd.metrics import (
    EnergyInside,
    KeepAbsoluteMask,
    KeepNegativeMask,
    KeepPositiveMask,
    energy_inside,
    keep_absolute_mask,
    masking_curves,
)
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


def test_a_collection_gives_each_class_the_keywords_that_it_knows():
    x, a = torch.randn(2, 5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    boxes, model = torch.tensor([[0, 0, 2, 2]]).repeat(5, 1), nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    both = MetricCollection([EnergyInside(channels="norm"), KeepAbsoluteMask(masking="zero")])
    both.update(model=model, inputs=x, attributions=a, labels=[1] * 5, regions=boxes)
    energy = float(energy_inside(a, boxes, channels="norm").mean())
    accuracy = keep_absolute_mask(model, x, a, labels=[1] * 5, masking="zero").area
    found = both.compute()
    assert [float(found[name]) for name in ("EnergyInside", "KeepAbsoluteMask")] == pytest.approx([energy, accuracy])
    with pytest.raises(ValueError, match="chanels"):
        EnergyInside(chanels="norm")


def test_a_value_can_be_plotted():
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
