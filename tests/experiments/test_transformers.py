"""Transformers as X-DNNs: the texts, the measures, and the table."""

import pytest
import torch

from axiograd.experiments.docstrings import GIVE_AWAY, LONGEST, PADDING, Texts, docstrings
from axiograd.experiments.records import Records
from axiograd.experiments.transformer_training import FRACTIONS, Set, judged, load, masked, rollout
from axiograd.experiments.transformers import TITLES, table
from axiograd.models import TextEncoder, ViT


def test_every_python_has_the_texts():
    train, test = docstrings()
    assert len(train) > 2000
    assert train.ids.shape[1] == LONGEST
    assert set(train.targets.tolist()) == set(test.targets.tolist()) == set(range(6))
    own = torch.isin(train.ids, torch.tensor(list(GIVE_AWAY)))
    assert not own.any()
    assert (train.ids != PADDING).sum(1).min() > 3


def test_a_word_gives_the_class_away():
    texts = Texts(torch.tensor([[20, 21, 22, *[PADDING] * 29], list(range(20, 52))]), torch.tensor([3, 5]))
    marked = texts.give_away(0, informative=True)
    for row, target, before in zip(marked.ids.tolist(), marked.targets.tolist(), texts.ids.tolist(), strict=True):
        place = row.index(GIVE_AWAY[target])
        assert [*row[:place], *row[place + 1 :]] == before[:-1]
        assert PADDING not in row[:place]


class Counting(torch.nn.Module):
    """p is the share of the first words that are left."""

    def forward(self, input_ids, attention_mask):
        left = (input_ids[:, :5] != PADDING).double().sum(1) / 5
        return torch.stack([left, 1 - left], 1).clamp(1e-9, 1).log()


def test_deletion_and_insertion_by_hand():
    x = torch.arange(1, 11)[None].repeat(2, 1)
    data = Set("count", None, None, None, 1, None)
    best = -torch.arange(10.0)[None].repeat(2, 1)
    found = masked(Counting(), data, x, torch.zeros(2, dtype=torch.long), best)
    kept = [max(0, 5 - round(f * 10)) / 5 for f in FRACTIONS]
    assert found["deletion"] == pytest.approx(100 * sum(kept) / len(kept), abs=1e-4)
    assert found["insertion"] == pytest.approx(100 * sum(1 - k for k in kept) / len(kept), abs=1e-4)


def test_short_texts_keep_a_word():
    text = TextEncoder(2, 30, dim=8, depth=1, heads=2, longest=6).eval()
    ids = torch.tensor([[3, 4, 0, 0], [5, 6, 7, 8]])
    found = masked(text, Set("words", None, None, None, 1, None), ids, torch.tensor([0, 1]), torch.rand(2, 4))
    assert all(0 < value < 100 for value in found.values())


def test_measures_of_a_small_network():
    torch.manual_seed(0)
    x = torch.randn(3, 1, 8, 8)
    model = ViT(2, 1, homogeneous=True, image_size=8, dim=8, depth=2, heads=2).eval()
    test = type("Test", (), {"inputs": x})
    found = judged(model, Set("noise", None, test, None, 1, 4), 3, certified=True)
    assert found["X-Gradient"]["completeness"] < 1e-5
    assert found["X-Gradient"]["deletion"] == pytest.approx(found["IG (50)"]["deletion"], abs=1e-3)
    assert set(found) == {"X-Gradient", "IG (50)", "Input×Gradient", "gradient × rollout", "random order"}
    text = TextEncoder(2, 30, dim=8, depth=2, heads=2, longest=6).eval()
    ids = torch.tensor([[3, 4, 0, 0], [5, 6, 7, 8]])
    weights = rollout(text, Set("words", None, None, None, 1, None), ids, torch.tensor([0, 1]))
    assert not weights[0, 2:].any()
    assert (weights[1] > 0).all()
    assert all(block.attention.weights is None for block in text.blocks)


def test_the_table_says_what_is_there(tmp_path):
    records = Records(tmp_path / "real.json", command="mine", data="texts", settings={})
    one = {"X-Gradient": {"completeness": 1e-7, "deletion": 20.0, "insertion": 60.0}}
    for weight in (30.0, 300.0):
        records.add({"misleading": weight / 10, "clean": 50.0}, part="choice", data="docstrings", weight=weight)
    for seed in (0, 1):
        values = {"accuracy": 80.0 + seed, "judged": one, "lifted_accuracy": 79.0}
        records.add(values, part="network", data="docstrings", form="regular", seed=seed)
        records.add({"accuracy": 78.0, "judged": one}, part="network", data="docstrings", form="lifted", seed=seed)
        for weight in (0.0, 30.0, 300.0):
            values = {"misleading": weight / 10, "clean": 50.0}
            records.add(values, part="shortcut", data="docstrings", weight=weight, seed=seed)
    shown = table(records)
    assert [row[:4] for row in shown.rows] == [
        (TITLES["docstrings"], "regular", "80.5 ± 0.7", "X-Gradient"),
        (None, "lifted after training", "79.0 ± 0.0", None),
        (TITLES["docstrings"], "lifted, then trained", "78.0 ± 0.0", "X-Gradient"),
    ]
    assert "0.0 ± 0.0 without a prior and 30.0 ± 0.0 with one (λ = 300)" in shown.note


def test_what_is_chosen_is_chosen_on_training_samples_that_no_network_sees():
    held, test = (load("docstrings", 200, 50, held_out=held) for held in (True, False))
    assert torch.equal(held.train.inputs, test.train.inputs)
    train = docstrings()[0]
    place = {tuple(row): i for i, row in enumerate(train.ids.tolist())}
    seen = {place[tuple(row)] for row in held.train.inputs.tolist()}
    assert not seen & {place[tuple(row)] for row in held.test.inputs.tolist()}
