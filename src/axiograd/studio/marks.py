"""What a person has painted: strokes in image coordinates, where they spread to, and what was taken back.

marks.jsonl   one action per line, appended and safe on the disk before the page is told
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from axiograd._extras import optional
from axiograd._io import writing
from axiograd.datasets.pictures import Mask, read_mask
from axiograd.errors import StorageError

#: "wrong" is "not here", "right" is "here".
Kind = Literal["wrong", "right", "erase"]
#: Strokes are drawn so many times larger, and a pixel belongs to one that covers half of it.
FINE = 4


@dataclass(frozen=True)
class Stroke:
    """A brush's line or a rectangle's two corners, x to the right and y down, in pixels of the image."""

    kind: Kind
    tool: Literal["brush", "rectangle"]
    size: float
    points: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> Stroke:
        """From JSON."""
        points = tuple((float(x), float(y)) for x, y in action["points"])
        return cls(action["kind"], action["tool"], float(action.get("size", 1)), points)

    def raster(self, height: int, width: int) -> Mask:
        """The pixels that it covers; a brush thinner than a pixel covers the pixel that it is in.

        >>> Stroke("wrong", "rectangle", 1, ((0.0, 0.0), (2.0, 1.0))).raster(2, 3).astype(int).tolist()
        [[1, 1, 0], [0, 0, 0]]
        """
        return _raster(self, height, width)


@lru_cache(512)
def _raster(stroke: Stroke, height: int, width: int) -> Mask:
    image = optional("PIL.Image", "studio", "painting", package="pillow").new("L", (FINE * width, FINE * height))
    pen = optional("PIL.ImageDraw", "studio", "painting", package="pillow").Draw(image)
    points = [(FINE * x, FINE * y) for x, y in stroke.points]
    if stroke.tool == "rectangle":
        (x0, x1), (y0, y1) = (sorted(values) for values in zip(points[0], points[-1], strict=True))
        # Pillow's boxes include their last pixels.
        pen.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), fill=255)
        return np.asarray(image.reduce(FINE)) > 127  # noqa: PLR2004  # half of 255
    radius = FINE * max(stroke.size, 1) / 2
    pen.line(points, fill=255, width=round(2 * radius))
    for x, y in points:
        pen.ellipse((x - radius, y - radius, x + radius - 1, y + radius - 1), fill=255)
    covered = np.asarray(image.reduce(FINE)) > 127  # noqa: PLR2004
    for x, y in stroke.points:
        if 0 <= x < width and 0 <= y < height:
            covered[int(y), int(x)] = True
    return covered


def shifted(mask: Mask, down: int, right: int) -> Mask:
    """The mask moved; what leaves the image is lost.

    >>> shifted(np.array([[True, False], [False, False]]), 1, 1).astype(int).tolist()
    [[0, 0], [0, 1]]
    """
    height, width = mask.shape
    moved = np.zeros_like(mask)
    if abs(down) < height and abs(right) < width:
        to = slice(max(down, 0), height + min(down, 0)), slice(max(right, 0), width + min(right, 0))
        of = slice(max(-down, 0), height + min(-down, 0)), slice(max(-right, 0), width + min(-right, 0))
        moved[to] = mask[of]
    return moved


@dataclass
class Marks:
    """All actions in their order; what is undone has no effect, and stays in the file.

    >>> marks = Marks((4, 4))
    >>> marks.add({"do": "stroke", "image": 7, "kind": "wrong", "tool": "rectangle", "points": [[0, 0], [2, 2]]})
    >>> int(marks.masks(7)[0].sum()), marks.masks(8)
    (4, (None, None))
    """

    shape: tuple[int, int]
    file: Path | None = None
    actions: list[dict[str, Any]] = field(default_factory=list)
    #: By image: strokes, or files of imported masks, each with an offset, in the order in which they were made.
    _by_image: dict[int, list[tuple[Stroke | tuple[str, Kind], int, int]]] = field(init=False)

    def __post_init__(self) -> None:
        self._by_image = {}
        for action in self._in_force():
            self._apply(action)

    @classmethod
    def read(cls, file: Path, shape: tuple[int, int]) -> Marks:
        """The marks in a file; a last line that a crash has cut off was never confirmed, and is dropped."""
        actions = []
        if file.exists():
            *lines, rest = file.read_bytes().split(b"\n")
            for number, line in enumerate(lines, start=1):
                try:
                    actions.append(json.loads(line))
                except ValueError as error:
                    raise StorageError(f"{file}, line {number}, is damaged: {error}.") from error
            if rest:
                os.truncate(file, file.stat().st_size - len(rest))
        return cls(shape, file, actions)

    def after(self, count: int) -> Marks:
        """As they were after so many actions, whatever is painted from now on."""
        return Marks(self.shape, self.file, self.actions[:count])

    def add(self, action: Mapping[str, Any]) -> None:
        """Do something: a stroke on an image, a spread of its strokes, or an import of masks."""
        done = {"id": len(self.actions) + 1, **action}
        self._apply(done)
        self._append(done)

    def undo(self, image: int) -> dict[str, Any] | None:
        """Take back what was done last on an image: a stroke, or a spread from there to others."""
        left = [action for action in self._in_force() if action.get("image") == image]
        if not left:
            return None
        self._append({"id": len(self.actions) + 1, "do": "undo", "of": left[-1]["id"]})
        self.__post_init__()
        return left[-1]

    def _in_force(self) -> list[dict[str, Any]]:
        undone = {action["of"] for action in self.actions if action["do"] == "undo"}
        return [action for action in self.actions if action["do"] != "undo" and action["id"] not in undone]

    def _append(self, action: dict[str, Any]) -> None:
        if self.file is not None:
            with writing(self.file, "Nothing that was painted before is lost"):
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with self.file.open("ab") as file:
                    file.write(json.dumps(action).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
        self.actions.append(action)

    def _apply(self, action: Mapping[str, Any]) -> None:
        if action["do"] == "stroke":
            self._by_image.setdefault(int(action["image"]), []).append((Stroke.of(action), 0, 0))
        elif action["do"] == "spread":
            strokes = [Stroke.of(one) for one in action["strokes"]]
            for image, down, right in action["to"]:
                self._by_image.setdefault(int(image), []).extend((stroke, down, right) for stroke in strokes)
        else:
            for image, name, kind in action["files"]:
                self._by_image.setdefault(int(image), []).append(((name, kind), 0, 0))

    def strokes(self, image: int) -> list[Stroke]:
        """Those that were painted on this image itself."""
        return [Stroke.of(one) for one in self._in_force() if one["do"] == "stroke" and one["image"] == image]

    def painted(self) -> list[int]:
        """The images that a person has painted on, in the order of the first stroke."""
        return list(dict.fromkeys(one["image"] for one in self._in_force() if one["do"] == "stroke"))

    def images(self) -> list[int]:
        """All images that something was said about."""
        return sorted(self._by_image)

    def masks(self, image: int) -> tuple[Mask | None, Mask | None]:
        """Where it says "not here", and where "here"; what was painted later lies on top."""
        wrong, right = np.zeros(self.shape, dtype=bool), np.zeros(self.shape, dtype=bool)
        for what, down, across in self._by_image.get(image, ()):
            if isinstance(what, Stroke):
                kind, covered = what.kind, shifted(what.raster(*self.shape), down, across)
            else:
                kind, covered = what[1], self._imported(what[0])
            wrong = wrong | covered if kind == "wrong" else wrong & ~covered
            right = right | covered if kind == "right" else right & ~covered
        return (wrong if wrong.any() else None), (right if right.any() else None)

    def wrong(self, images: Iterable[int]) -> list[int]:
        """Those of the images in which something is marked as "not here"."""
        return [image for image in images if image in self._by_image and self.masks(image)[0] is not None]

    def _imported(self, name: str) -> Mask:
        if self.file is None:
            raise StorageError("imported masks need a session on disk.")
        return read_mask(self.file.parent / name)


def as_dicts(strokes: Sequence[Stroke]) -> list[dict[str, Any]]:
    """As JSON has them."""
    return [asdict(stroke) for stroke in strokes]
