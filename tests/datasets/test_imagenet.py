"""ImageNet folders in miniature, and the photos."""

import numpy as np
import pytest
import torch
from PIL import Image

from axiograd.datasets import imagenet, imagenet_sample
from axiograd.errors import DataMissingError


@pytest.fixture
def miniature(tmp_path):
    random = np.random.default_rng(0)
    for split, count in (("train", 2), ("val", 1)):
        for wnid in ("n02123045", "n01440764"):
            folder = tmp_path / "imagenet" / split / wnid
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(random.integers(0, 256, (260, 300, 3), dtype=np.uint8)).save(folder / f"{i}.JPEG")
    return tmp_path


def test_by_sorted_wnid_at_224(miniature):
    data = imagenet("val", miniature)
    assert data.classes == ("n01440764", "n02123045")
    images, targets = next(iter(torch.utils.data.DataLoader(data, batch_size=2)))
    assert images.shape == (2, 3, 224, 224)
    assert targets.tolist() == [0, 1]
    assert data.name == "ImageNet val"


def test_a_class_that_val_lacks_does_not_shift_the_others(miniature):
    folder = miniature / "imagenet" / "val" / "n01440764"
    (folder / "0.JPEG").unlink()
    folder.rmdir()
    assert imagenet("val", miniature).targets.tolist() == [1]


def test_training_augmentation_changes_with_the_epoch(miniature):
    data = imagenet("train", miniature, augment=True)
    first = data[0][0]
    data.set_epoch(1)
    assert first.shape == (3, 224, 224)
    assert not torch.equal(first, data[0][0])


def test_photos():
    try:
        data = imagenet_sample()
    except DataMissingError as error:
        pytest.skip(str(error))
    assert len(data) == 500
    assert data.name == "500 ImageNet photos, probably training images"
    assert data.targets.tolist() == list(range(0, 1000, 2))
    assert data.classes[0] == "tench"
    assert data[0][0].shape == (3, 224, 224)
