"""Image files: classes, damage, workers."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from axiograd.datasets import PIXELS, Augment, DamagedImageError, image_folder
from axiograd.errors import ConfigurationError, DataMissingError


@pytest.fixture
def tree(tmp_path):
    random = np.random.default_rng(0)
    for name in ("cat", "ant"):
        folder = tmp_path / name
        folder.mkdir()
        for i in range(4):
            pixels = random.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{i}.{'jpg' if i % 2 else 'png'}")
        (folder / "notes.txt").write_text("no image")
    return tmp_path


def test_classes_are_the_sorted_folders(tree):
    data = image_folder(tree)
    assert data.classes == ("ant", "cat")
    assert data.targets.tolist() == [0] * 4 + [1] * 4
    image, target = data[5]
    assert image.shape == (3, 20, 24)
    assert target == 1
    assert data.load([5, 0]).targets.tolist() == [1, 0]
    torch.testing.assert_close(data.load().inputs[5], image)


def test_given_classes_fix_the_index(tree):
    assert image_folder(tree, classes=["bee", "cat", "ant"]).targets.tolist() == [2] * 4 + [1] * 4
    with pytest.raises(ConfigurationError, match=r"not among the classes given: \['ant'"):
        image_folder(tree, classes=["cat"])


DAMAGE = {
    "cut.jpg": lambda content: content[: len(content) // 2],
    "cut.png": lambda content: content[: len(content) // 2],
    "empty.jpg": lambda content: b"",
    "text.png": lambda content: b"<html>not found</html>",
    "broken.png": lambda content: content[:60] + bytes(40) + content[100:],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_images_are_reported_with_their_path(tree, name):
    source = tree / "cat" / ("1.jpg" if name.endswith("jpg") else "0.png")
    (tree / "ant" / name).write_bytes(DAMAGE[name](source.read_bytes()))
    data = image_folder(tree)
    assert len(data) == 9
    with pytest.raises(DamagedImageError, match=f"ant/{name} cannot be decoded.*on_damaged='skip'"):
        data.load()


def test_damaged_images_are_skipped_only_on_request_and_recorded(tree):
    for name, spoil in DAMAGE.items():
        source = tree / "cat" / ("1.jpg" if name.endswith("jpg") else "0.png")
        (tree / "ant" / name).write_bytes(spoil(source.read_bytes()))
    data = image_folder(tree, on_damaged="skip")
    assert len(data) == 8
    assert data.targets.tolist() == [0] * 4 + [1] * 4
    assert {skipped.path.name for skipped in data.skipped} == set(DAMAGE)
    assert all(skipped.reason for skipped in data.skipped)
    assert "5 skipped" in repr(data)
    data.load()


def test_a_file_that_vanishes_is_named(tree):
    data = image_folder(tree)
    (tree / "ant" / "0.png").unlink()
    with pytest.raises(DataMissingError, match=r"ant/0\.png"):
        data[0]


def test_worker_processes_give_the_images_of_one_process(tree):
    def epoch(workers, number, seed=0):
        data = image_folder(tree, transform=Augment(size=8, then=PIXELS), seed=seed)
        data.set_epoch(number)
        loader = DataLoader(data, batch_size=3, num_workers=workers)
        return torch.cat([images for images, _ in loader])

    alone = epoch(0, 0)
    assert torch.equal(alone, epoch(2, 0))
    assert not torch.equal(alone, epoch(0, 1))
    assert not torch.equal(alone, epoch(0, 0, seed=1))


def test_living_workers_see_the_epoch(tree):
    data = image_folder(tree, transform=Augment(size=8, then=PIXELS))
    loader = DataLoader(data, batch_size=8, num_workers=1, persistent_workers=True)
    epochs = []
    for number in (0, 1, 0):
        data.set_epoch(number)
        epochs.append(next(iter(loader))[0])
    assert torch.equal(epochs[0], epochs[2])
    assert not torch.equal(epochs[0], epochs[1])


def test_folders_without_images(tmp_path):
    with pytest.raises(DataMissingError, match="holds no images"):
        image_folder(tmp_path)
    with pytest.raises(DataMissingError, match="no folder"):
        image_folder(tmp_path / "x")


def test_load_needs_one_size(tree):
    Image.new("RGB", (5, 5)).save(tree / "ant" / "z.png")
    with pytest.raises(ConfigurationError, match="different shapes"):
        image_folder(tree).load()
