"""Running statistics against NumPy over all rows at once, however they are split and merged."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from axiograd.errors import InputError
from axiograd.scale import Moments, Statistics


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.floats(-1e6, 1e6))
@settings(deadline=None, max_examples=40)
def test_moments_merge_to_those_of_all_rows(sizes, offset):
    generator = np.random.default_rng(sum(sizes))
    parts = [generator.normal(size=(n, 2, 3)) + offset for n in sizes]
    whole = Moments()
    for part in parts:
        own = Moments()
        own.update(part)
        whole.merge(own)
    every = np.concatenate(parts)
    assert whole.n == len(every)
    if len(every):
        np.testing.assert_allclose(whole.mean, every.mean(0), rtol=1e-12, atol=1e-9)
    if len(every) > 1:
        np.testing.assert_allclose(whole.variance, every.var(0, ddof=1), rtol=1e-6, atol=1e-6)


def test_shapes_that_differ_have_no_mean():
    a, b = Moments(), Moments()
    a.update(np.zeros((2, 3)))
    b.update(np.zeros((2, 4)))
    with pytest.raises(InputError, match="no common mean"):
        a.merge(b)


def test_statistics_of_a_table_are_numpys(written):
    import pyarrow.parquet as pq

    folder, _ = written
    table = pq.read_table(folder)
    good = table.filter(table["error"].is_null())
    found = Statistics.of(folder)
    assert (found.rows, found.errors) == (len(table), len(table) - len(good))
    maps = np.stack([np.array(row) for row in good["windows"].to_pylist()]).reshape(len(good), 6, 6)
    target = good["target"].to_numpy()
    for one in np.unique(target):
        held = found.classes[int(one)]
        np.testing.assert_allclose(held["windows"].mean, maps[target == one].mean(0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(held["gini"].mean, good["gini"].to_numpy()[target == one].mean())
    np.testing.assert_allclose(found.over("windows").mean, maps.mean(0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.over("share_corner").mean, good["share_corner"].to_numpy().mean())
    gap = good["total"].to_numpy() - good["difference"].to_numpy()
    expected = np.sqrt((gap**2).sum() / (good["difference"].to_numpy() ** 2).sum())
    np.testing.assert_allclose(found.completeness, expected)
    label, prediction = good["label"].to_numpy(), good["prediction"].to_numpy()
    assert found.accuracy == (label == prediction).mean()
    # In two halves, in the other order.
    halves = [Statistics(), Statistics()]
    halves[0].update(table.slice(len(table) // 2))
    halves[1].update(table.slice(0, len(table) // 2))
    merged = Statistics.merged(halves)
    np.testing.assert_allclose(merged.over("windows").mean, found.over("windows").mean, rtol=1e-10, atol=1e-14)
    assert merged.to_dict()["errors"] == found.to_dict()["errors"]
