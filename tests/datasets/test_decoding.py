"""An image file is read as people see it, or refused with a sentence."""

import numpy as np
import pytest
import torch
from PIL import Image

from axiograd.datasets import IMAGENET, DamagedImageError, image_folder
from axiograd.datasets.images import decode

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (6, 9, 3), dtype=np.uint8)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_a_camera_is_applied(tmp_path, orientation):
    """What a viewer shows is the same photo, however the camera was held."""
    stored = {
        1: PIXELS,
        2: PIXELS[:, ::-1],
        3: PIXELS[::-1, ::-1],
        4: PIXELS[::-1],
        5: PIXELS.transpose(1, 0, 2),
        6: np.rot90(PIXELS, 1),
        7: np.rot90(PIXELS, 2).transpose(1, 0, 2),
        8: np.rot90(PIXELS, 3),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(np.asarray(decode(tmp_path / "a.png")), PIXELS)


@pytest.mark.parametrize("byte_order", ["<u2", ">u2"])
def test_sixteen_bit_grey(tmp_path, byte_order):
    values = np.linspace(0, 65535, 60).astype(np.uint16).reshape(6, 10)
    name = "a.png" if byte_order == "<u2" else "a.tif"
    Image.fromarray(values.astype(byte_order)).save(tmp_path / name)
    found = np.asarray(decode(tmp_path / name)).astype(float)
    assert np.abs(found - (values / 257)[..., None]).max() <= 0.5


def test_what_is_transparent_is_white(tmp_path):
    alpha = np.full((6, 9), 255, np.uint8)
    alpha[:3] = 0
    alpha[3] = 51
    Image.fromarray(np.dstack([PIXELS, alpha])).save(tmp_path / "a.png")
    found = np.asarray(decode(tmp_path / "a.png")).astype(float)
    assert (found[:3] == 255).all()
    assert np.array_equal(found[4:], PIXELS[4:])
    assert np.abs(found[3] - (0.2 * PIXELS[3] + 0.8 * 255)).max() <= 1


def test_palettes(tmp_path):
    palette = Image.new("P", (4, 2), 1)
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.save(tmp_path / "opaque.png")
    assert (np.asarray(decode(tmp_path / "opaque.png")) == [200, 100, 50]).all()
    palette.save(tmp_path / "clear.png", transparency=1)
    assert (np.asarray(decode(tmp_path / "clear.png")) == 255).all()


def test_cmyk(tmp_path):
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "red.jpg", quality=100)
    red, green, blue = np.asarray(decode(tmp_path / "red.jpg")).reshape(-1, 3).mean(0)
    assert red > 240
    assert max(green, blue) < 15


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tif"])
def test_animations_are_refused(tmp_path, suffix):
    frames = [Image.fromarray(RANDOM.integers(0, 256, (8, 8, 3), dtype=np.uint8)) for _ in range(3)]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:])
    with pytest.raises(DamagedImageError, match=r"it holds 3 frames.*\.$"):
        decode(tmp_path / f"a.{suffix}")


def test_numbers_of_unknown_range_are_refused(tmp_path):
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "f.tif")
    Image.fromarray(np.full((4, 4), 10**6, np.int32)).save(tmp_path / "i.tif")
    for name, words in (("f.tif", "floating-point"), ("i.tif", "from 1000000 to 1000000")):
        with pytest.raises(DamagedImageError, match=words):
            decode(tmp_path / name)


def test_huge_images_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    Image.new("1", (20_000, 10_000)).save(tmp_path / "a" / "a.png")
    with pytest.raises(DamagedImageError, match=r"pixels"):
        decode(tmp_path / "a" / "a.png")
    Image.fromarray(PIXELS).save(tmp_path / "a" / "b.png")
    assert len(image_folder(tmp_path, on_damaged="skip").skipped) == 1


def test_tiny_images_are_enlarged():
    assert IMAGENET(Image.new("RGB", (1, 1))).isfinite().all()
    assert torch.equal(IMAGENET(Image.new("RGB", (3, 7))), IMAGENET(Image.new("RGB", (7, 3))))


def test_what_programs_hide_is_no_class_and_no_image(tmp_path):
    for name in (
        "cat/1.png",
        "cat/._1.png",
        "cat/.ipynb_checkpoints/1.png",
        ".ipynb_checkpoints/2.png",
        "__MACOSX/3.png",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    data = image_folder(tmp_path)
    assert (data.classes, len(data)) == (("cat",), 1)


def test_pictures_of_a_folder_are_read_or_refused(tmp_path):
    """None is left out without a word: a still GIF is one picture, an animation and a phone's HEIC are not read."""
    folder = tmp_path / "cat"
    folder.mkdir()
    still = Image.new("RGB", (4, 4))
    still.save(folder / "a.gif")
    assert image_folder(tmp_path)[0][0].shape == (3, 4, 4)
    still.save(folder / "b.gif", save_all=True, append_images=[Image.new("RGB", (4, 4), "red")])
    with pytest.raises(DamagedImageError, match="2 frames"):
        image_folder(tmp_path)[1]
    (folder / "b.gif").rename(folder / "c.heic")
    (folder / "c.heic").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(DamagedImageError, match="save it as JPEG"):
        image_folder(tmp_path)[1]
