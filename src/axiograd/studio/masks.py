"""Masks as files that outlive the studio: one grey PNG per image and kind, white where marked."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from axiograd._io import digest, writing
from axiograd.datasets.images import pillow
from axiograd.datasets.pictures import HERE, NOT_HERE, Mask, Pictures, read_mask
from axiograd.errors import DataMissingError, InputError
from axiograd.studio.marks import Kind, Marks


def write_masks(folder: Path, pictures: Pictures, marks: Marks) -> dict[int, dict[str, str]]:
    """`not-here/NAME.png` and `here/NAME.png`; the files of each image.

    Images are named as their files are, folder and all, with the ending .png added, so that no two share a name.
    """
    files: dict[int, dict[str, str]] = {}
    for image in marks.images():
        for kind, mask in zip((NOT_HERE, HERE), marks.masks(image), strict=True):
            if mask is not None:
                name = f"{kind}/{pictures.names[image]}.png"
                _save(folder / name, mask)
                files.setdefault(image, {})[kind] = name
    return files


def _save(path: Path, mask: Mask) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        pillow().fromarray(np.where(mask, 255, 0).astype(np.uint8)).save(path, format="PNG")


def find_masks(folder: Path, pictures: Pictures) -> list[tuple[int, Path, Kind]]:
    """The masks in a folder that belong to the images.

    Read are folders as `write_masks` makes them, and plain ones (all "not here"), by the images' names with or without
    their own ending.
    """
    if not folder.is_dir():
        raise DataMissingError(f"there is no folder {folder} with masks.")
    places: list[tuple[Path, Kind]] = [(folder / NOT_HERE, "wrong"), (folder / HERE, "right")]
    if not any(place.is_dir() for place, _ in places):
        places = [(folder, "wrong")]
    stems = [str(Path(name).with_suffix("")) for name in pictures.names]
    index = {stem: image for image, stem in enumerate(stems) if stems.count(stem) == 1}
    index |= {name: image for image, name in enumerate(pictures.names)}
    named = [
        (path, path.relative_to(place).as_posix().removesuffix(".png"), kind)
        for place, kind in places
        for path in sorted(place.rglob("*.png"))
    ]
    found = [(index[name], path, kind) for path, name, kind in named if name in index]
    if not found:
        first = f", for example {named[0][1]}.png" if named else ""
        raise InputError(f"{folder} holds no mask with the name of an image{first}; an image is {pictures.names[0]}.")
    return found


def import_masks(folder: Path, pictures: Pictures, marks: Marks, into: Path) -> int:
    """Copy masks into a session, unless it has these already; how many were copied."""
    found = [(image, path, kind, read_mask(path)) for image, path, kind in find_masks(folder, pictures)]
    for _, path, _, mask in found:
        if mask.shape != marks.shape:
            raise InputError(
                f"the mask {path} has {mask.shape[1]} × {mask.shape[0]} pixels, and the images that the model is given "
                f"have {marks.shape[1]} × {marks.shape[0]}."
            )
    content = digest(*(part for image, _, kind, mask in found for part in (f"{image} {kind}", mask.tobytes())))
    if any(action.get("content") == content for action in marks.actions):
        return 0
    files = [(image, f"imported/{content}/{image}-{kind}.png", kind) for image, _, kind, _ in found]
    for (_, name, _), (*_, mask) in zip(files, found, strict=True):
        _save(into / name, mask)
    marks.add({"do": "import", "content": content, "files": files})
    return len(files)
