"""Masks that follow their images; the oracle is an image that is its own mask."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import axiograd
from axiograd.datasets import image_folder
from axiograd.errors import AxiogradError


@pytest.fixture
def photos(tmp_path):
    """White boxes on black, at places that differ: what is white in an image is what its mask covers."""
    draw = np.random.default_rng(0)
    boxes = {}
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "masks" / name).mkdir(parents=True)
        for i in range(3):
            pixels = np.zeros((40, 60), dtype=np.uint8)
            x0, y0 = (int(v) for v in draw.integers(4, 20, 2))
            pixels[y0 : y0 + 16, x0 : x0 + 24] = 255
            boxes[f"{name}/{i}.png"] = (x0, y0, x0 + 24, y0 + 16)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
            Image.fromarray(pixels).save(tmp_path / "masks" / name / f"{i}.png")
    return tmp_path, boxes


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("kind", ["png", "coco", "voc"])
def test_masks_go_where_their_images_go(photos, kind, augment):
    root, boxes = photos
    masks = root / "masks"
    if kind == "coco":
        masks = root / "coco.json"
        images = [{"id": i, "file_name": name} for i, name in enumerate(boxes)]
        rows = [
            {"image_id": i, "bbox": [x0, y0, x1 - x0, y1 - y0]} for i, (x0, y0, x1, y1) in enumerate(boxes.values())
        ]
        masks.write_text(json.dumps({"images": images, "annotations": rows}))
    if kind == "voc":
        masks = root / "voc"
        for name, (x0, y0, x1, y1) in boxes.items():
            (masks / name).parent.mkdir(parents=True, exist_ok=True)
            corners = f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax>"
            text = f"<annotation><object><bndbox>{corners}</bndbox></object></annotation>"
            (masks / name).with_suffix(".xml").write_text(text)
    data = image_folder(root / "photos", size=20, augment=augment, masks=masks)
    for epoch in range(3):
        data.set_epoch(epoch)
        for image, _, arguments in data:
            white, inside = image[0] > 0.5, arguments["inside"][0] > 0
            assert bool(arguments["has_inside"])
            # resizing blurs the rim of the image, by a pixel at most
            assert (white != inside).float().mean() < 0.12
    assert data[0][2]["inside"].shape == (1, 20, 20)


def test_what_masks_mean(photos):
    root, _ = photos
    here = image_folder(root / "photos", masks=root / "masks")[0][2]["inside"]
    only = image_folder(root / "photos", masks=root / "masks", masks_mean="only-here")[0][2]
    wrong = image_folder(root / "photos", masks=root / "masks", masks_mean="not-here")[0][2]
    assert torch.equal(only["mask"], 1 - here)
    assert torch.equal(wrong["mask"], here)
    (root / "masks" / "cat" / "0.png").unlink()
    assert not image_folder(root / "photos", masks=root / "masks")[0][2]["has_inside"]


def test_a_prior_is_told(photos):
    root, _ = photos
    data = image_folder(root / "photos", size=16, masks=root / "masks")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 2, bias=False))
    loss = axiograd.AttributionLoss(nn.functional.cross_entropy, axiograd.priors.Energy(), 1.0)
    recipe = axiograd.training.Recipe(epochs=2, batch_size=3, lr=0.01)
    result = axiograd.training.fit(model, data, loss=loss, recipe=recipe, accelerator="cpu", progress=False)
    assert result.history[-1]["prior"] < result.history[0]["prior"]


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda root: root / "nothing", "no such folder"),
        (lambda root: root / "photos" / "none", "no such folder"),
        (lambda root: (root / "empty").mkdir() or root / "empty", "has no mask for any image"),
        (lambda root: (root / "c.json").write_text("{}") and root / "c.json", "COCO's annotations"),
    ],
)
def test_masks_that_cannot_be_used(photos, break_it, words):
    root, _ = photos
    with pytest.raises(AxiogradError, match=words):
        image_folder(root / "photos", masks=break_it(root))


def test_a_mask_of_another_size(photos):
    root, _ = photos
    Image.new("L", (5, 5)).save(root / "masks" / "cat" / "0.png")
    with pytest.raises(AxiogradError, match="save it in the same size"):
        image_folder(root / "photos", masks=root / "masks")[0]


def test_boxes_of_another_folder_are_not_taken(photos):
    root, boxes = photos
    coco = root / "coco.json"

    def write(*names):
        images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
        rows = [{"image_id": i, "bbox": [0, 0, 9, 9]} for i, _ in enumerate(names)]
        coco.write_text(json.dumps({"images": images, "annotations": rows}))
        return image_folder(root / "photos", masks=coco)

    assert list(write("images/cat/0.png", "bird/1.png").masks.found) == [str(root / "photos" / "cat" / "0.png")]
    with pytest.raises(AxiogradError, match="may belong to any of 2 images"):
        write("0.png")
    with pytest.raises(AxiogradError, match="has two masks for"):
        write("a/cat/0.png", "b/cat/0.png")
    assert len(boxes) == 6


def test_one_file_for_two_images(photos):
    root, _ = photos
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    (root / "flat").mkdir()
    (root / "flat" / "0.xml").write_text(f"<annotation>{box}</annotation>")
    with pytest.raises(AxiogradError, match="give the folder of its image too"):
        image_folder(root / "photos", masks=root / "flat")
    assert len(image_folder(root, masks=_voc(root / "voc", "cat/0"))) > 0
    (root / "voc" / "photos" / "cat" / "0.xml").write_bytes(b"\xff\xfe")
    with pytest.raises(AxiogradError, match="VOC's annotation"):
        image_folder(root, masks=root / "voc")


def _voc(folder, name):
    """An image without an object, and one with."""
    for stem, box in (
        (name, "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"),
        ("dog/0", ""),
    ):
        path = folder / "photos" / f"{stem}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"<annotation>{box}</annotation>")
    return folder
