"""Killed at any moment and started again, a run ends with the bytes of one that was never killed."""

import random
import time

import pytest
import torch

from axiograd import AttributionDataset
from axiograd.errors import StorageError
from support import children
from support.killable import attribute, in_child, samples


@pytest.fixture(scope="module")
def processes():
    return children.processes()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attribute")
    attribute(folder)
    return content(folder)


def content(folder):
    """All that is kept, but for the locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock" and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def written(folder):
    return sum(path.stat().st_size for path in list(folder.glob("shard-*.safetensors")) if path.exists())


def killed(processes, folder, moments):
    """Start it, and kill it when it has written something more."""
    process = processes.Process(target=in_child, args=(folder, 0.005))
    process.start()
    before, share = written(folder), moments.randrange(1500)
    deadline = time.monotonic() + 60
    while process.is_alive() and written(folder) <= before + share:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.join()


@pytest.mark.parametrize("trial", [0, *(pytest.param(i, marks=pytest.mark.long) for i in range(1, 16))])
def test_killed_at_random_moments(processes, unbroken, tmp_path, trial):
    moments = random.Random(trial)
    for _ in range(2):
        killed(processes, tmp_path, moments)
    attribute(tmp_path)
    assert content(tmp_path) == unbroken


@pytest.mark.parametrize("kind", ["tensors", "read one by one", "stream"])
@pytest.mark.parametrize("finished", [False, True])
def test_another_data_set_is_not_mixed_in(unbroken, tmp_path, kind, finished):
    """Another first batch, or another number of samples."""

    class OneByOne(torch.utils.data.Dataset):
        def __init__(self, x, y):
            self._x, self._y = x, y

        def __len__(self):
            return len(self._x)

        def __getitem__(self, index):
            return self._x[index], self._y[index]

    class Stream(torch.utils.data.IterableDataset):
        def __init__(self, x, y):
            self._rows = list(zip(x, y, strict=True))

        def __iter__(self):
            return iter(self._rows)

    make = {"tensors": torch.utils.data.TensorDataset, "read one by one": OneByOne, "stream": Stream}[kind]
    attribute(tmp_path, make(*samples()))
    if not finished:
        for shard in AttributionDataset(tmp_path).shards[5:]:
            shard.unlink()
    before = content(tmp_path)
    with pytest.raises(StorageError, match="different settings: first batch"):
        attribute(tmp_path, make(*samples(slice(0, 1))))
    x, y = samples()
    for rows in (60, 12):
        wrong = "it has 80 samples" if kind == "stream" else "different settings: batches"
        with pytest.raises(StorageError, match=wrong):
            attribute(tmp_path, make(x[:rows], y[:rows]))
    assert content(tmp_path).items() >= before.items()
    attribute(tmp_path, make(*samples()))
