"""The comparison of two tables: its false alarms over many null pairs, what it finds, and scipy-free oracles."""

from itertools import permutations

import numpy as np
import pytest
import torch
from torch import nn

from axiograd.errors import ConfigurationError, DataMissingError, InputError, StorageError
from axiograd.scale import Attribute, InMasks, Listed, Windows, compare, write_attributions
from axiograd.scale.permutation import RowBlock, paired, two_samples, unusual_columns
from support.scale import Images, Slow, make, source, write


def welch(a, b):
    return (b.mean(0) - a.mean(0)) / np.sqrt(a.var(0, ddof=1) / len(a) + b.var(0, ddof=1) / len(b))


def test_t_is_welchs_and_p_is_that_of_all_permutations():
    values = np.random.default_rng(0).normal(size=(7, 2)) + np.array([[0.0, 3.0]]) * (np.arange(7) >= 4)[:, None]
    after = np.arange(7) >= 4
    found = two_samples([RowBlock(values, np.arange(7))], after, 20_000, 0)
    np.testing.assert_allclose(found.t[0], welch(values[:4], values[4:]), rtol=1e-4)
    every = [np.array(order) for order in permutations(range(7))]
    largest = np.array([np.abs(welch(values[order[:4]], values[order[4:]])).max() for order in every])
    expected = [(largest >= abs(t) - 1e-9).mean() for t in welch(values[:4], values[4:])]
    np.testing.assert_allclose(found.p[0], expected, atol=0.015)


def test_pairs_flip_signs():
    difference = np.random.default_rng(1).normal(size=(6, 1)) + 0.8
    found = paired([RowBlock(difference, np.arange(6))], 6, 20_000, 0)
    t = difference.mean() / np.sqrt(difference.var(ddof=1) / 6)
    np.testing.assert_allclose(found.t[0], [t], rtol=1e-4)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1)
    flipped = signs.T[:, :, None] * difference
    every = flipped.mean(1) / np.sqrt(flipped.var(1, ddof=1) / 6)
    np.testing.assert_allclose(found.p[0], [(np.abs(every) >= abs(t) - 1e-9).mean()], atol=0.015)


def test_false_alarms_are_as_many_as_alpha_says():
    generator = np.random.default_rng(2)
    alarms = 0
    for trial in range(400):
        # Skewed, dependent, and one column that is nearly always zero, as a corner of a picture is.
        values = generator.exponential(size=(60, 1)) * generator.normal(size=(60, 5)) ** 2
        values[:, 4] *= generator.random(60) < 0.05
        blocks = [RowBlock(values, np.arange(60)), RowBlock(values[::2, :2], np.arange(0, 60, 2))]
        found = two_samples(blocks, np.arange(60) >= 25, 99, trial)
        alarms += min(p.min() for p in found.p) <= 0.05
    # Binomial(400, 0.05): more than 34 has a chance of 0.001.
    assert 6 <= alarms <= 34


def marked_rows(generator, share):
    """Skewed shares of 49 windows on either side; in a share of the second side's rows one of four is large."""
    values = generator.exponential(size=(800, 49)) * np.linspace(0.1, 1, 49)
    fed = np.flatnonzero((np.arange(800) >= 400) & (generator.random(800) < share))
    values[fed, generator.integers(0, 4, len(fed))] += 2.0
    return values / values.sum(1, keepdims=True)


def test_a_mark_on_few_rows_is_seen_among_the_most_unusual_ones():
    """A rare mark moves no mean; and where there is none, alarms are as rare as promised, over both families."""
    generator, after, every = np.random.default_rng(3), np.arange(800) >= 400, np.arange(800)
    alarms = {share: np.zeros(2) for share in (0.0, 0.05)}
    for share, found in alarms.items():
        for trial in range(60):
            values = marked_rows(generator, share)
            blocks = [RowBlock(values, every), RowBlock(unusual_columns(values), every, "rows")]
            alone, both = (two_samples(some, after, 99, trial) for some in (blocks[:1], blocks))
            found += [alone.p[0].min() <= 0.05, min(p.min() for p in both.p) <= 0.05]
    means, with_rows = alarms[0.05]
    assert means <= 36
    assert with_rows >= 51
    assert (alarms[0.0] <= 9).all()  # Binomial(60, 0.05): more has a chance of 0.001


def test_the_same_table_has_not_changed(written):
    found = compare(written[0], written[0])
    assert (found.changed, found.paired, found.p) == (False, True, 1.0)
    assert str(found).startswith("no change")


def test_two_weeks_of_one_model_have_not_changed(tmp_path):
    for week in (0, 1):
        write(tmp_path / str(week), source(60, seed=week), batch_size=20, part_rows=40)
    names = tmp_path / "0", tmp_path / "1"
    found = compare(*names, paired=False, permutations=500)
    assert not found.changed
    assert not found.paired
    assert found.rows == (60, 60)


class Marked(Images):
    """A bright patch in the corner of some images."""

    def __init__(self, n, seed, share):
        super().__init__(n, seed, ())
        self.x[: int(share * n), :, 8:, 8:] = 6.0


def test_a_patch_is_found_where_it_is(tmp_path):
    names = [f"other {i}" for i in range(80)]
    write(tmp_path / "before", source(80), batch_size=20, part_rows=40)
    write(tmp_path / "after", Listed("made up", names, Marked(80, 5, 0.3)), batch_size=20, part_rows=40)
    found = compare(tmp_path / "before", tmp_path / "after", permutations=500)
    assert found.changed
    windows = {change.name for change in found.significant if change.kind == "window"}
    inside = {f"x {x}–{x + 2}, y {y}–{y + 2}" for x in (8, 10) for y in (8, 10)}
    assert windows & inside
    before, after, p = found.maps
    assert (p <= 0.05)[4:, 4:].any()
    assert after[4:, 4:].sum() > before[4:, 4:].sum()
    picture = tmp_path / "changed.png"
    found.plot(path=picture)
    assert picture.stat().st_size > 10_000


def test_two_models_on_the_same_rows_are_compared_in_pairs(tmp_path):
    samples = source(40)
    write(tmp_path / "a", samples)
    other = Slow()
    with torch.no_grad():
        other.inner[3].weight.mul_(3.0)
    attribute = Attribute(other, summary=Attribute(Slow(), summary=(Windows(2),)).summaries)
    write_attributions(attribute, samples, tmp_path / "b", progress=False)
    with pytest.raises(ConfigurationError, match="differ in summaries"):
        compare(tmp_path / "a", tmp_path / "b")
    scaled = Attribute(other, summary=make().summaries)
    write_attributions(scaled, samples, tmp_path / "c", progress=False)
    found = compare(tmp_path / "a", tmp_path / "c", permutations=200)
    # Three times as large logits are not another reason.
    assert (found.paired, found.changed) == (True, False)
    assert any(one.startswith("model:") for one in found.different)
    with torch.no_grad():
        other.inner[3].weight.view(3, 4, 10, 10)[:, :, :, 4:] = 0  # what is on the right does not count
    write_attributions(scaled, samples, tmp_path / "d", progress=False)
    found = compare(tmp_path / "a", tmp_path / "d", permutations=200)
    assert found.changed
    before, after, p = found.maps
    assert after[:, 3:].sum() == 0 < before[:, 3:].sum()
    assert (p[:, 3:] <= 0.05).all()


def test_an_error_in_one_table_leaves_the_others_in_pairs(tmp_path):
    """Unpaired, a change that is small beside the differences between rows would be lost."""
    rows = Listed("rows", [f"row {i}" for i in range(60)], (torch.randn(60, 3) * 30 ** torch.rand(60, 1)).__getitem__)
    model = nn.Linear(3, 1, bias=False)
    nn.init.ones_(model.weight)
    write_attributions(Attribute(model), rows, tmp_path / "a")
    with torch.no_grad():
        model.weight[0, 0] = 1.1
    write_attributions(Attribute(model), rows, tmp_path / "b")
    broken = Listed("rows", rows.names, lambda i: rows.get(i) / float(i != 7))
    write_attributions(Attribute(model), broken, tmp_path / "c")
    whole = compare(tmp_path / "a", tmp_path / "b", permutations=999)
    found = compare(tmp_path / "a", tmp_path / "c", permutations=999)
    assert (whole.paired, whole.p, whole.rows) == (True, 0.002, (60, 60))
    assert (found.paired, found.p, found.rows) == (True, 0.002, (59, 59))
    assert any(one.startswith("1 rows with an error in one of the tables are left out") for one in found.different)
    assert not compare(tmp_path / "a", tmp_path / "c", permutations=999, paired=False).changed


def test_rows_are_drawn_in_pairs(tmp_path):
    """The second table has other rows as well, in another order: drawn apart, hardly any pair would be one."""
    x = torch.rand(300, 4)
    model = nn.Linear(4, 1, bias=False)
    nn.init.ones_(model.weight)
    first = Listed("rows", [str(i) for i in range(200)], x.__getitem__)
    second = Listed("rows", [str(299 - i) for i in range(300)], x.flip(0).__getitem__)
    for name, rows in (("a", first), ("b", second)):
        write_attributions(Attribute(model), rows, tmp_path / name)
    found = compare(tmp_path / "a", tmp_path / "b", paired=True, rows=50, permutations=99)
    assert found.rows == (50, 50)
    assert all(change.before == pytest.approx(change.after) for change in found.changes if change.kind == "window")
    unpaired = compare(tmp_path / "a", tmp_path / "b", permutations=99)
    assert not unpaired.paired
    assert any(one.startswith("200 rows have the same name in both tables") for one in unpaired.different)


def test_tables_without_names_are_compared_without_pairs(tmp_path):
    """As Ray Data writes them, in whichever order its workers end."""
    import pyarrow.parquet as pq

    attribute = Attribute(nn.Linear(4, 2, bias=False))
    pq.write_table(attribute({"image": torch.rand(40, 4).numpy()}), tmp_path / "a.parquet")
    found = compare(tmp_path / "a.parquet", tmp_path / "a.parquet", permutations=99)
    assert (found.paired, found.changed) == (False, False)
    with pytest.raises(InputError, match="has no column `name`"):
        compare(tmp_path / "a.parquet", tmp_path / "a.parquet", paired=True)


def test_what_cannot_be_compared(tmp_path, written):
    with pytest.raises(DataMissingError, match="no Parquet files"):
        compare(tmp_path / "nothing", written[0])
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(StorageError, match="was not written by"):
        compare(written[0], tmp_path / "other.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(StorageError, match="is damaged"):
        compare(written[0], tmp_path / "torn.parquet")
    with pytest.raises(ConfigurationError, match="2/alpha"):
        compare(written[0], written[0], alpha=0.001, permutations=100)
    write(tmp_path / "others", Listed("made up", [f"b {i}" for i in range(8)], Images(8, 0, ())))
    with pytest.raises(InputError, match="0 rows have the same name"):
        compare(written[0], tmp_path / "others", paired=True)


def answering(weights):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2, bias=False))
    model[1].weight.data = torch.tensor(weights)[:, None] * torch.ones(2, 64)
    return Attribute(model)


def test_what_is_the_same_in_every_pair_has_changed(tmp_path):
    x = torch.rand(60, 1, 8, 8)
    rows = Listed("rows", [str(i) for i in range(60)], x.__getitem__)
    for name, weights in (("a", [2.0, 1.0]), ("b", [1.0, 2.0])):
        write_attributions(answering(weights), rows, tmp_path / name, progress=False)
    found = compare(tmp_path / "a", tmp_path / "b", permutations=199)
    assert found.paired
    assert {(one.kind, one.name) for one in found.significant} == {("class", "0"), ("class", "1")}
    # Rounding is no change, even where it is the same in every row.
    difference = np.full((60, 1), 0.5)
    assert paired([RowBlock(difference, np.arange(60))], 60, 199, 0).p[0][0] == 0.005
    assert paired([RowBlock(0 * difference, np.arange(60))], 60, 199, 0).p[0][0] == 1


def test_rows_that_are_missing_are_said(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b", source(seed=5))
    (tmp_path / "b/part-000003.parquet").unlink()
    found = compare(tmp_path / "a", tmp_path / "b", permutations=99)
    assert any(one.endswith("b has 32 of its 40 rows: the run has not ended") for one in found.different)


def test_rows_without_a_mask_are_no_rows_of_its_share(tmp_path):
    """Masks of every second image, whose share of the magnitude differs on either side; the others have none."""
    generator = torch.Generator().manual_seed(0)
    for name, scale in (("before", 1.0), ("after", 4.0), ("alike", 1.0)):
        x = torch.randn(120, 1, 4, 4, generator=generator)
        x[:, :, :2] *= scale
        mask = torch.zeros(4, 4, dtype=torch.bool)
        mask[:2] = True
        rows = Listed(name, [f"{name} {i}" for i in range(120)], x.__getitem__, masks=Halves(mask))
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2, bias=False))
        nn.init.ones_(model[1].weight)
        found = write_attributions(Attribute(model, summary=InMasks()), rows, tmp_path / name)
        shares = np.abs(x.flatten(1).numpy())
        expected = (shares[:, :8].sum(1) / shares.sum(1))[::2].mean()
        assert found.all["share_mask"]["mean"] == pytest.approx(expected)
        assert found.all["share_mask"]["rows"] == 60
    told = compare(tmp_path / "before", tmp_path / "after", permutations=400).significant
    assert ("region", "mask") in {(change.kind, change.name) for change in told}
    assert not compare(tmp_path / "before", tmp_path / "alike", permutations=400).changed


class Halves:
    """The same mask for every second row."""

    def __init__(self, mask):
        self.mask = mask

    def __call__(self, place):
        return None if place % 2 else self.mask
