import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from axiograd.datasets import TensorData
from axiograd.errors import ConfigurationError, InputError
from axiograd.training.batches import Batch, Order, WithArguments, ensure_dataset, loader
from support.training_run import Augmented


def indices(order):
    return [list(share.indices) for share in order]


@pytest.mark.parametrize(("n", "batch_size", "world_size"), [(24, 8, 2), (23, 8, 4), (9, 4, 2), (3, 8, 2)])
def test_the_ranks_parts_are_the_batches_of_one_process(n, batch_size, world_size):
    whole = list(Order(n, batch_size, seed=3))
    ranks = [list(Order(n, batch_size, seed=3, rank=r, world_size=world_size)) for r in range(world_size)]
    values = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for batch, *shares in zip(whole, *ranks, strict=True):
        joined = [index for share in shares if share.weight for index in share.indices]
        assert joined == list(batch.indices)
        # The mean over ranks of weighed means is the mean over the batch.
        means = torch.stack([share.weight * values[list(share.indices)].mean() for share in shares])
        torch.testing.assert_close(means.mean(), values[list(batch.indices)].mean())


@pytest.mark.parametrize(("n", "batch_size", "world_size", "parts"), [(24, 8, 1, 3), (23, 8, 2, 3), (3, 8, 2, 4)])
def test_the_parts_of_a_batch_add_up_to_it(n, batch_size, world_size, parts):
    settings = {"seed": 3, "world_size": world_size, "parts": parts}
    ranks = [list(Order(n, batch_size, rank=r, **settings)) for r in range(world_size)]
    values = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole, total, seen = list(Order(n, batch_size, seed=3)), torch.zeros((), dtype=torch.float64), 0.0
    for shares in zip(*ranks, strict=True):
        total += torch.stack([share.weight * values[list(share.indices)].mean() for share in shares]).mean()
        seen += shares[0].of_batch
        assert len({(share.number, share.of_batch, share.last, share.total) for share in shares}) == 1
        if shares[0].last:
            batch = whole.pop(0)
            torch.testing.assert_close(total, values[list(batch.indices)].mean())
            assert seen == pytest.approx(1)
            total, seen = torch.zeros((), dtype=torch.float64), 0.0
    assert not whole


def test_each_epoch_is_a_permutation_of_its_own():
    order = Order(10, 4, seed=1)
    first = indices(order)
    assert sorted(index for batch in first for index in batch) == list(range(10))
    order.at(1)
    second = indices(order)
    assert first != second
    order.at(1, start=2)
    assert indices(order) == second[2:]


def test_augmentation_depends_on_epoch_and_index_alone():
    order, data = Order(12, 5, seed=2), Augmented(12)
    alone = {i: x for batch in loader(data, order) for i, x in zip(batch.indices, batch.inputs, strict=True)}
    split = [Order(12, 6, seed=2, rank=r, world_size=2) for r in range(2)]
    for part in split:
        for batch in loader(data, part, num_workers=1):
            assert all(torch.equal(alone[i], x) for i, x in zip(batch.indices, batch.inputs, strict=True))
    order.at(1)
    later = next(iter(loader(data, order)))
    assert not torch.equal(alone[later.indices[0]], later.inputs[0])


def test_forms_of_a_batch():
    x, y, mask = torch.zeros(2, 3), torch.tensor([0, 1]), torch.ones(2, 3)
    for form in [(x, y, {"mask": mask}), {"inputs": x, "target": y, "mask": mask}]:
        batch = Batch.of(form, [5, 6])
        assert batch.inputs is x
        assert batch.target is y
        assert batch.arguments["mask"] is mask
    assert isinstance(Batch.of([[x, x], y], [0, 1]).inputs, tuple)
    with pytest.raises(InputError, match="gave list of \\(Tensor, Tensor, Tensor\\)"):
        Batch.of([x, y, mask], [0, 1])


def test_columns_of_tensor_data_become_arguments():
    data = TensorData(torch.randn(6, 2), torch.arange(6), name="six", shortcuts=torch.eye(6)[:, :2])
    batch = next(iter(loader(WithArguments(data, mask="shortcuts"), Order(6, 4))))
    rows = list(batch.indices)
    assert torch.equal(batch.inputs, data.inputs[rows])
    assert torch.equal(batch.arguments["mask"], data.shortcuts[rows])
    assert not next(iter(loader(ensure_dataset(data, "data"), Order(6, 4)))).arguments
    with pytest.raises(ConfigurationError, match="has no boxes; it has inputs, targets, shortcuts"):
        WithArguments(data, boxes="boxes")


def test_what_cannot_be_resumed_is_refused():
    tensors = TensorDataset(torch.zeros(3))
    with pytest.raises(ConfigurationError, match=r"pass its \.dataset"):
        ensure_dataset(DataLoader(tensors), "train_data")
    with pytest.raises(ConfigurationError, match="needs __len__ and __getitem__"):
        ensure_dataset((x for x in range(3)), "train_data")
    with pytest.raises(ConfigurationError, match="batch_size 5"):
        Order(10, 5, world_size=2, parts=3)
    with pytest.raises(InputError, match="1 samples"):
        Order(1, 4, world_size=2)


def test_tensors_that_do_not_belong_together_are_refused():
    with pytest.raises(InputError, match="train_data has tensors of 5, 3 samples"):
        ensure_dataset((torch.zeros(5, 2), torch.zeros(3)), "train_data")
    with pytest.raises(InputError, match=r"tuple of \(ndarray, Tensor\).*torch\.from_numpy"):
        ensure_dataset((np.zeros((5, 2)), torch.zeros(5)), "train_data")
