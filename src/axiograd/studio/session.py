"""A session on disk: what was painted, and the rounds of training with where each came from.

session.json            what it is about, the rounds, which one is shown; written whole after every change
marks.jsonl             what was painted, line by line
rounds/3/               model.safetensors, survey.npz
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from axiograd._io import alone, check_writable, digest, write_atomically
from axiograd.datasets.pictures import Pictures
from axiograd.errors import InputError, StorageError
from axiograd.studio.clusters import in_turns
from axiograd.studio.marks import Marks
from axiograd.studio.survey import Survey

FORMAT = 1


class Session:
    """Marks and rounds; every change is on the disk before the method returns."""

    def __init__(self, folder: Path, pictures: Pictures, model: str = "model") -> None:
        self.folder, self.pictures = folder, pictures
        self.shape = pictures.shape
        identity = {
            "data": pictures.name,
            "images": len(pictures),
            "names": digest("\n".join(pictures.names)),
            "size": list(self.shape),
            "model": model,
        }
        self.state: dict[str, Any] = {
            "format": FORMAT,
            "identity": identity,
            "rounds": [],
            "current": 0,
            "pending": None,
            "compared": None,
        }
        file = folder / "session.json"
        if file.exists():
            self.state = self._read(file, identity)
        self.marks = Marks.read(folder / "marks.jsonl", self.shape)
        self._survey: tuple[int, Survey | None] = (-1, None)

    @staticmethod
    def _read(file: Path, identity: dict[str, Any]) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(file.read_bytes())
            known = state["format"], state["identity"], state["rounds"], state["current"]
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise StorageError(f"{file} is not the state of a studio: {error!r}.") from error
        if known[0] != FORMAT:
            raise StorageError(f"{file} has format {known[0]}; this version reads format {FORMAT}.")
        for name, value in identity.items():
            if known[1].get(name) != value:
                raise StorageError(
                    f"{file.parent} holds a session with other {name} ({known[1].get(name)}, not {value}): choose "
                    "another folder (--out), and nothing of it is lost."
                )
        return state

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, pictures: Pictures, model: str = "model") -> Iterator[Session]:
        """The session in a folder, which no other studio can open meanwhile."""
        check_writable(folder)
        with alone(folder, ".studio.lock"):
            yield cls(folder, pictures, model)

    def save(self, **changes: Any) -> None:
        """Change the state, and write it."""
        self.state |= changes
        write_atomically(self.folder / "session.json", (json.dumps(self.state, indent=1) + "\n").encode())

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """From the first to the last, each with its parent."""
        found: list[dict[str, Any]] = self.state["rounds"]
        return found

    @property
    def current(self) -> int:
        """The round that is shown and trained from."""
        return int(self.state["current"])

    def round(self, number: int) -> dict[str, Any]:
        """A round by its number."""
        if not 0 <= number < len(self.rounds):
            raise InputError(f"there is no round {number}; there are 0 to {len(self.rounds) - 1}.")
        return self.rounds[number]

    def add_round(self, parent: int | None, **content: Any) -> dict[str, Any]:
        """A new round, which becomes the current one."""
        made = {
            "id": len(self.rounds),
            "parent": parent,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "clusters": [],
            **content,
        }
        self.save(rounds=[*self.rounds, made], current=made["id"], pending=None)
        return made

    def change_round(self, number: int, **content: Any) -> None:
        """More about a round."""
        self.save(rounds=[one | content if one["id"] == number else one for one in self.rounds])

    def go_to(self, number: int) -> None:
        """Show another round, and train from it."""
        self.round(number)
        self.save(current=number)

    def survey(self, number: int) -> Survey | None:
        """What was seen in a round, if it was looked at."""
        if self._survey[0] != number:
            self._survey = (number, Survey.load(self.folder / "rounds" / str(number) / "survey.npz"))
        return self._survey[1]

    def forget_survey(self) -> None:
        """It was made anew."""
        self._survey = (-1, None)

    def cluster(self, place: int) -> list[int]:
        """The images of a cluster of the current round."""
        found = self.round(self.current)["clusters"]
        if not 0 <= place < len(found):
            raise InputError(f"there is no cluster {place}; there are {len(found)}.")
        rows: list[int] = found[place]["rows"]
        return rows

    def find(
        self,
        *,
        label: int | None = None,
        show: str = "all",
        text: str = "",
        cluster: int | None = None,
        sort: str = "suspicious",
    ) -> list[int]:
        """Images by class, by what became of them (right, wrong, unsure, marked, painted), by name, by cluster."""
        rows: list[int] = list(range(len(self.pictures))) if cluster is None else list(self.cluster(cluster))
        if label is not None:
            chosen = np.asarray(self.pictures.targets)
            rows = [row for row in rows if chosen[row] == label]
        if text:
            words = text.lower()
            rows = [row for row in rows if words in self.pictures.names[row].lower()]
        if show in {"marked", "painted"}:
            kept = set(self.marks.images() if show == "marked" else self.marks.painted())
            rows = [row for row in rows if row in kept]
        survey = self.survey(self.current)
        if survey is None:
            return rows
        place = {int(row): at for at, row in enumerate(survey.rows)}
        if show in {"right", "wrong", "unsure"}:
            targets = np.asarray(self.pictures.targets)
            right = survey.predictions == targets[survey.rows]
            keep = {"right": right, "wrong": ~right, "unsure": survey.confidences < 0.6}[show]  # noqa: PLR2004
            rows = [row for row in rows if row in place and keep[place[row]]]
        if sort == "suspicious" and cluster is None:
            order = {row: at for at, row in enumerate(self._suspicious())}
            rows.sort(key=lambda row: (order.get(row, len(order)), row))
        elif sort == "confidence":
            rows.sort(key=lambda row: survey.confidences[place[row]] if row in place else 2.0)
        return rows

    def _suspicious(self) -> list[int]:
        """The images of the clusters that matter, one of each in turn."""
        return in_turns([(one["score"], one["rows"]) for one in self.round(self.current)["clusters"]])
