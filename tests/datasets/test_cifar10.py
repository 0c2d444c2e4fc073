"""CIFAR-10 from its binary batches."""

import numpy as np
import pytest
import torch

from axiograd.datasets import cifar10
from axiograd.errors import DataMissingError, StorageError


@pytest.fixture
def images():
    pixels = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    return pixels, np.arange(10)


def test_binary_batches(images, tmp_path):
    pixels, labels = images
    records = np.concatenate([labels[:, None].astype(np.uint8), pixels.transpose(0, 3, 1, 2).reshape(10, -1)], 1)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for i in range(5):
        records[2 * i : 2 * i + 2].tofile(folder / f"data_batch_{i + 1}.bin")
    records[:3].tofile(folder / "test_batch.bin")
    data = cifar10("train", tmp_path)
    torch.testing.assert_close(data.inputs, torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)
    assert data.targets.tolist() == labels.tolist()
    assert len(cifar10("test", tmp_path)) == 3
    (folder / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(StorageError, match=r"test_batch\.bin is damaged"):
        cifar10("test", tmp_path)


def test_a_missing_batch_is_not_a_smaller_data_set(images, tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    record = np.zeros(1 + 3 * 32 * 32, dtype=np.uint8)
    record.tofile(folder / "data_batch_1.bin")
    record.tofile(folder / "test_batch.bin")
    with pytest.raises(DataMissingError, match=r"data_batch_1\.bin, .*data_batch_5\.bin"):
        cifar10("train", tmp_path)
