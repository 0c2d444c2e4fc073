"""What a person has painted: strokes in image coordinates, where they spread to, and what was taken back.

marks.jsonl   one action per line, appended and safe on the disk before the page is told
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from axiograd._io import writing
from axiograd.datasets.pictures import Mask, read_mask
from axiograd.errors import InputError, StorageError

#: "wrong" is "not here", "right" is "here".
Kind = Literal["wrong", "right", "erase"]
KINDS, TOOLS = ("wrong", "right", "erase"), ("brush", "rectangle")
#: A stroke of more points is a mistake, or an attack on the memory.
MOST_POINTS = 20_000


@dataclass(frozen=True)
class Stroke:
    """A brush's line or a rectangle's two corners, x to the right and y down, in pixels of the image."""

    kind: Kind
    tool: Literal["brush", "rectangle"]
    size: float
    points: tuple[tuple[float, float], ...]

    @classmethod
    def ensure(cls, given: Mapping[str, Any]) -> Stroke:
        """From what a page sends, which may be anything."""
        try:
            kind, tool, size = given["kind"], given["tool"], float(given.get("size", 1))
            points = tuple((float(x), float(y)) for x, y in given["points"][: MOST_POINTS + 1])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"that is not a stroke: {error!r}.") from error
        if kind not in KINDS or tool not in TOOLS or not 0 < len(points) <= MOST_POINTS or not 0 < size < math.inf:
            raise InputError(f"that is not a stroke: {kind!r} with a {tool!r} of size {size} and {len(points)} points.")
        if not all(math.isfinite(value) for point in points for value in point):
            raise InputError("that is not a stroke: its points are not finite.")
        if tool == "rectangle" and len(points) != 2:  # noqa: PLR2004
            raise InputError(f"a rectangle has two corners, not {len(points)}.")
        return cls(kind, tool, size, points)

    def raster(self, height: int, width: int) -> Mask:
        """The pixels whose centres it covers; a brush that is thinner than a pixel covers the pixel that it is in.

        >>> Stroke("wrong", "rectangle", 1, ((0.0, 0.0), (2.0, 1.0))).raster(2, 3).astype(int).tolist()
        [[1, 1, 0], [0, 0, 0]]
        """
        return _raster(self, height, width)


@lru_cache(4096)
def _raster(stroke: Stroke, height: int, width: int) -> Mask:
    x, y = np.arange(width)[None] + 0.5, np.arange(height)[:, None] + 0.5
    if stroke.tool == "rectangle":
        (x0, y0), (x1, y1) = stroke.points
        inside = (x > min(x0, x1)) & (x < max(x0, x1)) & (y > min(y0, y1)) & (y < max(y0, y1))
        return np.asarray(inside)
    covered = np.zeros((height, width), dtype=bool)
    radius = max(stroke.size / 2, 0.5)
    pairs = list(zip(stroke.points, stroke.points[1:], strict=False)) or [(stroke.points[0], stroke.points[0])]
    for (x0, y0), (x1, y1) in pairs:
        length = (x1 - x0) ** 2 + (y1 - y0) ** 2
        along = np.clip(((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length, 0, 1) if length else 0.0
        covered |= (x - x0 - along * (x1 - x0)) ** 2 + (y - y0 - along * (y1 - y0)) ** 2 <= radius**2
    for px, py in stroke.points:
        if 0 <= px < width and 0 <= py < height:
            covered[int(py), int(px)] = True
    return covered


def shifted(mask: Mask, down: int, right: int) -> Mask:
    """The mask moved; what leaves the image is lost.

    >>> shifted(np.array([[True, False], [False, False]]), 1, 1).astype(int).tolist()
    [[0, 0], [0, 1]]
    """
    if not down and not right:
        return mask
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
    >>> _ = marks.add({"do": "stroke", "image": 7, "kind": "wrong", "tool": "rectangle", "points": [[0, 0], [2, 2]]})
    >>> int(marks.masks(7)[0].sum()), marks.masks(8)
    (4, (None, None))
    """

    shape: tuple[int, int]
    file: Path | None = None
    actions: list[dict[str, Any]] = field(default_factory=list)
    #: By image: strokes, or files of imported masks, each with an offset, in the order in which they were made.
    _by_image: dict[int, list[tuple[Stroke | tuple[str, Kind], int, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path, shape: tuple[int, int]) -> Marks:
        """The marks in a file; a last line that a crash has cut off was never confirmed, and is dropped."""
        marks = cls(shape, file)
        if file.exists():
            lines = file.read_bytes().split(b"\n")
            whole = b"\n".join(lines[:-1])
            for number, line in enumerate(lines[:-1], start=1):
                try:
                    marks.actions.append(json.loads(line))
                except ValueError as error:
                    raise StorageError(f"{file}, line {number}, is damaged: {error}.") from error
            if lines[-1]:
                file.write_bytes(whole + b"\n" if whole else b"")
        marks._replay()  # its own
        return marks

    def add(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Do something: a stroke, a spread of strokes, or an import of masks."""
        if action["do"] == "stroke":
            Stroke.ensure(action)
        done = {"id": len(self.actions) + 1, **action}
        self._append(done)
        self._apply(done)
        return done

    def undo(self) -> dict[str, Any] | None:
        """Take the last action back that is not taken back yet."""
        undone = self._undone()
        left = [one for one in self.actions if one["do"] != "undo" and one["id"] not in undone]
        if not left:
            return None
        self._append({"id": len(self.actions) + 1, "do": "undo", "of": left[-1]["id"]})
        self._replay()
        return left[-1]

    def _undone(self) -> set[int]:
        return {one["of"] for one in self.actions if one["do"] == "undo"}

    def _append(self, action: dict[str, Any]) -> None:
        if self.file is not None:
            with writing(self.file, "Nothing that was painted before is lost"):
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with self.file.open("ab") as file:
                    file.write(json.dumps(action).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
        self.actions.append(action)

    def _replay(self) -> None:
        self._by_image = {}
        undone = self._undone()
        for action in self.actions:
            if action["do"] != "undo" and action["id"] not in undone:
                self._apply(action)

    def _apply(self, action: Mapping[str, Any]) -> None:
        if action["do"] == "stroke":
            self._by_image.setdefault(int(action["image"]), []).append((Stroke.ensure(action), 0, 0))
        elif action["do"] == "spread":
            strokes = [Stroke.ensure(one) for one in action["strokes"]]
            for image, down, right in action["to"]:
                at = self._by_image.setdefault(int(image), [])
                at += [(stroke, int(down), int(right)) for stroke in strokes]
        elif action["do"] == "import":
            for image, name, kind in action["files"]:
                self._by_image.setdefault(int(image), []).append(((name, kind), 0, 0))

    def strokes(self, image: int) -> list[Stroke]:
        """Those that were painted on this image itself."""
        undone = self._undone()
        return [
            Stroke.ensure(one)
            for one in self.actions
            if one["do"] == "stroke" and one["image"] == image and one["id"] not in undone
        ]

    def painted(self) -> list[int]:
        """The images that a person has painted on, in the order of the first stroke."""
        undone = self._undone()
        return list(dict.fromkeys(a["image"] for a in self.actions if a["do"] == "stroke" and a["id"] not in undone))

    def images(self) -> list[int]:
        """All images that something was said about."""
        return sorted(self._by_image)

    def masks(self, image: int) -> tuple[Mask | None, Mask | None]:
        """Where it says "not here", and where "here"; what was painted later lies on top."""
        found = self._by_image.get(image)
        if not found:
            return None, None
        wrong, right = np.zeros(self.shape, dtype=bool), np.zeros(self.shape, dtype=bool)
        for what, down, across in found:
            if isinstance(what, Stroke):
                kind, covered = what.kind, shifted(what.raster(*self.shape), down, across)
            else:
                kind, covered = what[1], self._imported(what[0])
            wrong = wrong | covered if kind == "wrong" else wrong & ~covered
            right = right | covered if kind == "right" else right & ~covered
        return (wrong if wrong.any() else None), (right if right.any() else None)

    def _imported(self, name: str) -> Mask:
        if self.file is None:
            raise StorageError("imported masks need a session on disk.")
        mask = read_mask(self.file.parent / name)
        if mask.shape != self.shape:
            raise StorageError(f"the mask {name} has {mask.shape} pixels, the images have {self.shape}.")
        return mask


def covered(marks: Marks, images: Iterable[int]) -> float:
    """How much of the images is marked as "not here", the largest share."""
    shares = [0.0 if (wrong := marks.masks(image)[0]) is None else float(wrong.mean()) for image in images]
    return max(shares, default=0.0)


def as_dicts(strokes: Sequence[Stroke]) -> list[dict[str, Any]]:
    """As JSON has them."""
    return [
        {"kind": one.kind, "tool": one.tool, "size": one.size, "points": [list(p) for p in one.points]}
        for one in strokes
    ]
