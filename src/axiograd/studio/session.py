"""A session on disk: what was painted, and the rounds of training with where each came from.

session.json            what it is about, the rounds, which one is shown; written whole after every change
marks.jsonl             what was painted, line by line
rounds/3/               model.safetensors, survey.npz
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axiograd._io import alone, check_writable, digest, require_same_settings, write_atomically
from axiograd.datasets.pictures import Pictures
from axiograd.errors import InputError
from axiograd.studio.clusters import in_turns
from axiograd.studio.marks import Marks
from axiograd.studio.survey import Survey

FORMAT = 2


class Session:
    """Marks and rounds; every change is on the disk before the method returns."""

    def __init__(self, folder: Path, pictures: Pictures, model: str = "model") -> None:
        self.folder, self.pictures = folder, pictures
        about = {
            "format": FORMAT,
            "data": pictures.name,
            "images": len(pictures),
            "names": digest("\n".join(pictures.names)),
            "size": list(pictures.shape),
            "model": model,
        }
        self.state: dict[str, Any] = {"about": about, "rounds": [], "current": 0}
        if (file := folder / "session.json").exists():
            self.state = json.loads(file.read_bytes())
            require_same_settings(folder, self.state.get("about", {}), about, "Choose another folder (--out).")
        self.marks = Marks.read(folder / "marks.jsonl", pictures.shape)
        self._surveys: dict[int, Survey] = {}

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, pictures: Pictures, model: str = "model") -> Iterator[Session]:
        """The session in a folder, which no other studio can open meanwhile."""
        check_writable(folder)
        with alone(folder, ".studio.lock"):
            yield cls(folder, pictures, model)

    def save(self, **changes: Any) -> None:
        """Change the state, and write it."""
        state = self.state | changes
        write_atomically(self.folder / "session.json", (json.dumps(state, indent=1) + "\n").encode())
        self.state = state

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

    def put_round(self, number: int, **content: Any) -> None:
        """A new round, or more about one that is there."""
        if number == len(self.rounds):
            self.save(rounds=[*self.rounds, {"id": number, "verdict": None, "clusters": None, **content}])
        else:
            self.save(rounds=[one | content if one["id"] == number else one for one in self.rounds])

    def weights(self, number: int) -> Path:
        """Where a round's network is."""
        return self.folder / "rounds" / str(number) / "model.safetensors"

    def survey(self, number: int) -> Survey | None:
        """What was seen in a round, if it was looked at."""
        if number not in self._surveys and (file := self.weights(number).with_name("survey.npz")).exists():
            self._surveys = {number: Survey.load(file)}
        return self._surveys.get(number)

    def clusters(self) -> list[dict[str, Any]]:
        """The places that the current round relies on."""
        return (self.round(self.current)["clusters"] or []) if self.rounds else []

    def cluster(self, place: int) -> list[int]:
        """The images of a cluster of the current round."""
        found = self.clusters()
        if not 0 <= place < len(found):
            raise InputError(f"there is no place {place}; there are {len(found)}.")
        rows: list[int] = found[place]["rows"]
        return rows

    def find(
        self,
        *,
        label: int | None = None,
        show: str = "all",
        text: str = "",
        cluster: int | None = None,
    ) -> list[int]:
        """Images by class, by what became of them (right, wrong, marked, painted), by name and by cluster.

        The suspicious ones come first.
        """
        rows: list[int] = list(range(len(self.pictures))) if cluster is None else self.cluster(cluster)
        targets = self.pictures.targets.numpy()
        if label is not None:
            rows = [row for row in rows if targets[row] == label]
        if text:
            rows = [row for row in rows if text.lower() in self.pictures.names[row].lower()]
        if show in {"marked", "painted"}:
            kept = set(self.marks.images() if show == "marked" else self.marks.painted())
            rows = [row for row in rows if row in kept]
        if show in {"right", "wrong"} and (survey := self.survey(self.current)) is not None:
            right = survey.predictions == targets[survey.rows]
            kept = set(survey.rows[right if show == "right" else ~right].tolist())
            rows = [row for row in rows if row in kept]
        if cluster is None:
            turns = in_turns([(one["score"], one["rows"]) for one in self.clusters()])
            order = {row: place for place, row in enumerate(turns)}
            rows.sort(key=lambda row: order.get(row, len(order)))
        return rows
