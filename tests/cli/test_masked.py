"""Masks of images in the command; the oracle is Σ_inside A⁺ / Σ A⁺ over what the command itself has stored."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from axiograd.cli.masked import outlined, share_inside
from support.command import axiograd

SMALL = ("--size", "16", "--mean", "0.5", "--std", "0.25")
LEFT = np.s_[:, :12]  # of 20 × 24 pixels; the crop of the middle 16 of 16 × 19 begins at 1.5, rounded to 2


@pytest.fixture
def masks(photos, tmp_path):
    """The left half of all images but one."""
    for path in sorted(photos.rglob("*.png"))[1:]:
        pixels = np.zeros((20, 24), np.uint8)
        pixels[LEFT] = 255
        target = tmp_path / "masks" / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(target)
    return tmp_path / "masks"


def _explained(mine, photos, masks, out, *more):
    command = ("explain", f"{mine}:build", *photos, *SMALL, "-m", "input-x-gradient", "-o", out, "--masks", masks)
    return axiograd(*command, *more)


def _coco(photos, path):
    images = [{"id": i, "file_name": str(p.relative_to(photos))} for i, p in enumerate(sorted(photos.rglob("*.png")))]
    rows = [{"image_id": i["id"], "bbox": [0, 0, 12, 20]} for i in images[1:]]
    path.write_text(json.dumps({"images": images, "annotations": rows}))
    return path


@pytest.mark.parametrize("kind", ["png", "coco", "voc"])
def test_the_share_inside(mine, photos, masks, tmp_path, kind):
    if kind == "coco":
        masks = _coco(photos, tmp_path / "coco.json")
    if kind == "voc":
        for path in sorted(masks.rglob("*.png")):
            box = "<xmin>1</xmin><ymin>1</ymin><xmax>12</xmax><ymax>20</ymax>"
            path.with_suffix(".xml").write_text(f"<annotation><object><bndbox>{box}</bndbox></object></annotation>")
            path.unlink()
    done = _explained(mine, [photos], masks, tmp_path / "o", "--json", "--no-figures", "--no-report")
    assert done.code == 0, done.err
    stored = load_file(tmp_path / "o" / "attributions.safetensors")["input-x-gradient"].double().sum(1).clamp(min=0)
    inside = torch.zeros(16, 19, dtype=torch.bool)
    inside[:, (torch.arange(19) + 0.5) * 24 / 19 < 12] = True  # whose nearest neighbours are in the left half
    expected = (stored * inside[:, 2:18]).sum((1, 2)) / stored.sum((1, 2))
    found = [sample["methods"]["input-x-gradient"]["inside"] for sample in done.json["samples"]]
    assert found[0] is None
    assert found[1:] == pytest.approx(expected[1:].tolist(), abs=1e-6)  # channels are summed in float32
    assert done.json["masks"]["images"] == 5
    assert done.json["masks"]["inside"]["input-x-gradient"] == pytest.approx(float(expected[1:].mean()))
    assert done.json["masks"]["area"] == pytest.approx(float(inside[:, 2:18].double().mean()))


def test_what_people_read(mine, photos, masks, tmp_path):
    done = _explained(mine, [photos], masks, tmp_path / "o")
    assert done.code == 0, done.err
    for words in ("in mask", "inside the masks: Input×Gradient", "5 of 6 images have a mask"):
        assert words in done.out
    assert "inside the mask" in (tmp_path / "o" / "report.html").read_text()


def test_images_named_one_by_one(mine, photos, masks, tmp_path):
    files = [photos / "dog" / "dog0.png", photos / "owl" / "owl1.png"]
    done = _explained(mine, files, masks, tmp_path / "o", "--json", "--no-figures", "--no-report")
    assert done.json["masks"]["images"] == 2
    coco = _coco(photos, tmp_path / "coco.json")
    again = _explained(mine, files, coco, tmp_path / "o", "--json", "--no-figures", "--no-report")
    assert again.json["masks"]["inside"] == done.json["masks"]["inside"]


def test_a_mask_is_turned_with_its_photo(mine, photos, masks, tmp_path):
    """What people see is 20 wide and 24 high, and so is the mask; the file is on its side."""
    photo = photos / "cat" / "cat1.png"
    with Image.open(photo) as image:
        image.rotate(0).save(photo.with_suffix(".jpg"), exif=_orientation(6))
    photo.unlink()
    Image.new("L", (20, 24), 255).save(masks / "cat" / "cat1.png")
    done = _explained(mine, [photos / "cat"], masks / "cat", tmp_path / "o", "--json", "--no-figures")
    assert done.code == 0, done.err
    assert done.json["samples"][1]["methods"]["input-x-gradient"]["inside"] == 1


def _orientation(number):
    exif = Image.Exif()
    exif[0x0112] = number
    return exif


def test_evaluate_localises(mine, photos, masks, tmp_path):
    data = ("--data", photos, *SMALL, "-m", "input-x-gradient", "--json")
    done = axiograd("evaluate", f"{mine}:build", *data, "--masks", masks, "--metrics", "localisation")
    assert done.code == 0, done.err
    (row,) = done.json["results"]
    explained = _explained(mine, [photos], masks, tmp_path / "o", "--json", "--target", "label", "--no-figures")
    assert row["energy inside"]["mean"] == pytest.approx(explained.json["masks"]["inside"]["input-x-gradient"])
    assert (done.json["n_regions"], done.json["n_samples"]) == (5, 6)
    assert {"pointing game", "best IoU"} <= row.keys()


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda masks: masks / "nothing", "no such folder"),
        (lambda masks: (masks / "cat" / "cat1.png").write_bytes(b"no image") and masks, "cat1.png cannot be read"),
        (lambda masks: Image.new("L", (5, 4)).save(masks / "cat" / "cat1.png") or masks, "has 5 × 4 pixels"),
        (lambda masks: masks / "cat" / "cat1.png", "no such folder"),
        (lambda masks: masks.parent / "photos.json", "no such folder"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "evaluate"])
def test_masks_that_cannot_be_used(mine, photos, masks, tmp_path, break_it, words, command):
    where = (
        ["explain", f"{mine}:build", photos]
        if command == "explain"
        else ["evaluate", f"{mine}:build", "--data", photos]
    )
    done = axiograd(*where, *SMALL, "-m", "gradient", "-o", tmp_path / "o", "--masks", break_it(masks))
    assert (done.code, done.out) == (3, "")
    assert words in done.err.replace("\n", " ")


def test_masks_belong_to_images(mine, table, tmp_path):
    options = ("--label", "ill", "--drop", "id", "--missing", "zero", "-o", tmp_path / "o")
    done = axiograd("explain", f"{mine}:table", table, *options, "--masks", tmp_path)
    assert done.code == 2
    assert "masks belong to image files" in done.err
    (tmp_path / "a.txt").write_text("a text")
    done = axiograd("explain", "hf:nothing", tmp_path / "a.txt", "-o", tmp_path / "o", "--masks", tmp_path)
    assert "these are texts" in done.err.replace("\n", " ")


def test_a_mask_outside_of_the_crop():
    assert share_inside(torch.ones(3, 4, 4), torch.zeros(4, 4, dtype=torch.bool)) is None
    mask = torch.zeros(5, 5, dtype=torch.bool)
    mask[1:4, 1:4] = True
    drawn = outlined(torch.full((3, 5, 5), 0.5), mask)[0]
    assert drawn.tolist() == [[0] * 5, [0, 1, 1, 1, 0], [0, 1, 0.5, 1, 0], [0, 1, 1, 1, 0], [0] * 5]


@pytest.mark.parametrize("kind", ["png", "coco"])
def test_attribute_has_the_shares_of_explain(mine, photos, masks, tmp_path, kind):
    pq = pytest.importorskip("pyarrow.parquet")
    masks = _coco(photos, tmp_path / "coco.json") if kind == "coco" else masks
    how = ("--data", photos, *SMALL, "-m", "input-x-gradient", "--masks", masks, "--summary", "pixels")
    done = axiograd("attribute", f"{mine}:build", *how, "--out", tmp_path / "rows", "--json")
    assert done.code == 0, done.err
    table = pq.read_table(tmp_path / "rows")
    maps = np.stack(table["attributions"].to_pylist()).reshape(6, -1, 16, 16).sum(1)
    inside = np.zeros((16, 19), bool)
    inside[:, (np.arange(19) + 0.5) * 24 / 19 < 12] = True
    inside = inside[:, 2:18]
    assert table["share_mask"][0].as_py() is None
    shares = np.abs(maps)[:, inside].sum(1) / np.abs(maps).sum((1, 2))
    assert table["share_mask"].to_pylist()[1:] == pytest.approx(shares[1:], abs=1e-6)
    assert table["sum_mask"].to_pylist()[1:] == pytest.approx(maps[:, inside].sum(1)[1:], abs=1e-5)
    assert table["area_mask"].to_pylist()[1:] == pytest.approx([inside.mean()] * 5)
    explained = _explained(mine, [photos], masks, tmp_path / "o", "--json", "--no-figures", "--no-report")
    expected = [sample["methods"]["input-x-gradient"]["inside"] for sample in explained.json["samples"]]
    assert table["energy_mask"].to_pylist()[1:] == pytest.approx(expected[1:], abs=1e-6)
    assert done.json["all"]["share_mask"]["mean"] == pytest.approx(shares[1:].mean(), abs=1e-6)
    assert done.json["all"]["rows"] == 6
    told = axiograd("attribute", f"{mine}:build", *how, "--out", tmp_path / "rows")
    assert "5 of 6 rows have one" in told.out


def test_attribute_with_masks_that_do_not_fit(mine, photos, masks, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    command = ("attribute", f"{mine}:build", "--data", photos, *SMALL, "-m", "input-x-gradient", "--masks", masks)
    Image.new("L", (5, 4)).save(masks / "cat" / "cat1.png")
    done = axiograd(*command, "--out", tmp_path / "rows")
    assert done.code == 0, done.err
    errors = pq.read_table(tmp_path / "rows")["error"].to_pylist()
    assert ["has 5 × 4 pixels" in (error or "") for error in errors] == [False, True, False, False, False, False]
    (masks / "dog" / "dog0.png").unlink()
    other = axiograd(*command, "--out", tmp_path / "rows")
    assert (other.code, "masks" in other.err) == (3, True)
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 16, 16), np.float32))
    array = ("--data", tmp_path / "x.npy", "--masks", masks, "--out", tmp_path / "new")
    refused = axiograd("attribute", f"{mine}:build", *array, "-m", "input-x-gradient")
    assert (refused.code, "masks belong to image files" in refused.err) == (2, True)
