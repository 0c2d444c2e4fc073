"""Masks as files that outlive the studio: one grey PNG per image and kind, and COCO's JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from axiograd._io import write_atomically, writing
from axiograd.datasets.images import pillow
from axiograd.datasets.pictures import HERE, NOT_HERE, Mask, Pictures, read_mask
from axiograd.errors import DataMissingError, InputError
from axiograd.studio.marks import Marks

CATEGORIES = {NOT_HERE: 1, HERE: 2}


def write_masks(folder: Path, pictures: Pictures, marks: Marks) -> dict[int, dict[str, str]]:
    """`not-here/NAME.png` and `here/NAME.png`, white where marked, and `coco.json`; the files of each image.

    Images are named as their files are, folder and all, with the ending .png added, so that no two share a name.
    """
    files: dict[int, dict[str, str]] = {}
    annotations: list[dict[str, Any]] = []
    for image in marks.images():
        for kind, mask in zip((NOT_HERE, HERE), marks.masks(image), strict=True):
            if mask is None:
                continue
            name = f"{kind}/{pictures.names[image]}.png"
            _save(folder / name, mask)
            files.setdefault(image, {})[kind] = name
            annotations.append(annotation(len(annotations) + 1, image, CATEGORIES[kind], mask))
    height, width = marks.shape
    coco = {
        "images": [
            {"id": image, "file_name": pictures.names[image], "height": height, "width": width} for image in files
        ],
        "categories": [{"id": number, "name": name} for name, number in CATEGORIES.items()],
        "annotations": annotations,
    }
    write_atomically(folder / "coco.json", (json.dumps(coco) + "\n").encode())
    return files


def _save(path: Path, mask: Mask) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        pillow().fromarray(np.where(mask, 255, 0).astype(np.uint8)).save(path, format="PNG")


def annotation(number: int, image: int, category: int, mask: Mask) -> dict[str, Any]:
    """COCO's entry for a mask, as run lengths down the columns, beginning with what is outside.

    >>> annotation(1, 0, 1, np.array([[False, True], [True, True]]))["segmentation"]["counts"]
    [1, 3]
    """
    flat = mask.flatten(order="F")
    edges = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    left, top = int(columns[0]), int(rows[0])
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "iscrowd": 1,
        "area": int(mask.sum()),
        "bbox": [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top],
        "segmentation": {"size": list(mask.shape), "counts": [0, *counts] if flat[0] else counts},
    }


def find_masks(folder: Path, pictures: Pictures) -> list[tuple[int, Path, str]]:
    """The masks in a folder that belong to the images: image, file, and "wrong" or "right".

    Read are folders as `write_masks` makes them, and plain ones (all "not here"), by the images' names with or without
    their own ending.
    """
    if not folder.is_dir():
        raise DataMissingError(f"there is no folder {folder} with masks.")
    places = [(folder / NOT_HERE, "wrong"), (folder / HERE, "right")]
    if not any(place.is_dir() for place, _ in places):
        places = [(folder, "wrong")]
    index = _by_name(pictures.names)
    found: list[tuple[int, Path, str]] = []
    unknown: list[str] = []
    for place, kind in places:
        for path in sorted(place.rglob("*.png")) if place.is_dir() else ():
            name = path.relative_to(place).as_posix().removesuffix(".png")
            if name in index:
                found.append((index[name], path, kind))
            else:
                unknown.append(name)
    if not found:
        first = f", for example {unknown[0]}.png" if unknown else ""
        raise InputError(f"{folder} holds no mask with the name of an image{first}; an image is {pictures.names[0]}.")
    return found


def _by_name(names: Sequence[str]) -> Mapping[str, int]:
    index = {name: place for place, name in enumerate(names)}
    stems: dict[str, int] = {}
    for place, name in enumerate(names):
        stem = name.rpartition(".")[0] or name
        stems[stem] = -1 if stem in stems else place
    return {stem: place for stem, place in stems.items() if place >= 0} | index


def import_masks(folder: Path, pictures: Pictures, marks: Marks, into: Path) -> int:
    """Copy masks into the session, as one action that can be undone; how many there were."""
    files = []
    number = len(marks.actions) + 1
    for image, path, kind in find_masks(folder, pictures):
        mask = read_mask(path)
        if mask.shape != marks.shape:
            raise InputError(
                f"the mask {path} has {mask.shape[1]} × {mask.shape[0]} pixels, and the images that the model is given "
                f"have {marks.shape[1]} × {marks.shape[0]}."
            )
        name = f"imported/{number}-{image}-{kind}.png"
        _save(into / name, mask)
        files.append([image, name, kind])
    marks.add({"do": "import", "from": str(folder), "files": files})
    return len(files)
