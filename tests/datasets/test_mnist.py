"""MNIST and Fashion-MNIST."""

import gzip
import struct

import pytest
import torch

from axiograd.datasets import fashion_mnist, mnist
from axiograd.datasets.sources import read_idx
from axiograd.errors import ConfigurationError, DataMissingError, StorageError


@pytest.mark.parametrize(("loader", "mean"), [(mnist, 0.1325), (fashion_mnist, 0.2868)])
def test_test_split(loader, mean):
    try:
        data = loader("test")
    except DataMissingError as error:
        pytest.skip(str(error))
    assert data.inputs.shape == (10_000, 1, 28, 28)
    assert (data.inputs.min(), data.inputs.max()) == (0, 1)
    # The published mean of the test images.
    assert data.inputs.mean().item() == pytest.approx(mean, abs=1e-3)
    assert len(data.names) == 10
    assert data.targets.bincount().sum() == 10_000
    if loader is fashion_mnist:
        assert data.targets.bincount().tolist() == [1000] * 10


def idx(shape, values):
    return gzip.compress(bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values))


def test_idx_files(tmp_path):
    (tmp_path / "x.gz").write_bytes(idx((2, 1, 2), [1, 2, 3, 255]))
    assert torch.equal(read_idx(tmp_path / "x.gz"), torch.tensor([[[1, 2]], [[3, 255]]], dtype=torch.uint8))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no gzip",
        gzip.compress(b""),
        gzip.compress(b"\0\0\x09\x01"),
        idx((3,), [1, 2]),
        idx((2,), [1, 2])[:-9],
    ],
    ids=["empty", "not compressed", "empty inside", "other type", "too few values", "cut off"],
)
def test_damaged_idx_files_are_named(tmp_path, content):
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(StorageError, match=r"x\.gz"):
        read_idx(tmp_path / "x.gz")


def test_split_is_checked():
    with pytest.raises(ConfigurationError, match="split='val'"):
        mnist("val")
