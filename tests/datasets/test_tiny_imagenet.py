"""Tiny ImageNet with boxes, in both layouts."""

import numpy as np
import pytest
import torch
from PIL import Image

from axiograd.datasets import tiny_imagenet
from axiograd.errors import DataMissingError
from axiograd.metrics import boxes_to_masks


def test_twenty_classes_with_boxes():
    try:
        data = tiny_imagenet("val")
    except DataMissingError as error:
        pytest.skip(str(error))
    assert len(data) == 1000
    assert data.targets.bincount().tolist() == [50] * 20
    assert list(data.classes) == sorted(data.classes)
    assert data.boxes.shape == (1000, 4)
    assert (data.boxes[:, :2] < data.boxes[:, 2:]).all()
    assert data.boxes.max() <= 64
    loaded = data.load([0, 999])
    assert loaded.inputs.shape == (2, 3, 64, 64)
    assert torch.equal(loaded.boxes, data.boxes[[0, 999]])
    masks = boxes_to_masks(data.boxes, 64, 64)[:, None]
    x0, y0, x1, y1 = data.boxes.T
    assert torch.equal(masks.sum((1, 2, 3)), (x1 - x0) * (y1 - y0))


@pytest.fixture
def original_layout(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    wnids = ["n02", "n01"]
    (root / "val" / "images").mkdir(parents=True)
    (root / "wnids.txt").write_text("\n".join(wnids))
    lines = []
    for i, wnid in enumerate(wnids):
        folder = root / "train" / wnid / "images"
        folder.mkdir(parents=True)
        picture = Image.fromarray(np.full((64, 64, 3), 50 * i, dtype=np.uint8))
        picture.save(folder / f"{wnid}_0.JPEG")
        (folder.parent / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t{i}\t2\t30\t40\n")
        picture.save(root / "val" / "images" / f"val_{i}.JPEG")
        lines.append(f"val_{i}.JPEG\t{wnid}\t{i}\t1\t20\t21")
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines))
    return tmp_path


def test_two_hundred_classes_in_the_original_layout(original_layout):
    train, val = (tiny_imagenet(split, original_layout, classes=200) for split in ("train", "val"))
    assert train.classes == val.classes == ("n01", "n02")
    assert train.targets.tolist() == [0, 1]
    assert train.boxes.tolist() == [[1, 2, 31, 41], [0, 2, 31, 41]]  # the files' boxes include their last pixel
    assert val.targets.tolist() == [1, 0]
    assert val.boxes.tolist() == [[0, 1, 21, 22], [1, 1, 21, 22]]
    torch.testing.assert_close(val[1][0], train[0][0])
