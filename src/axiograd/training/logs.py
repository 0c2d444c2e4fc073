"""What a run writes about itself: a CSV file and TensorBoard's events; and running means."""

import contextlib
import csv
import hashlib
import io
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from axiograd._extras import optional
from axiograd._io import write_atomically, writing
from axiograd.errors import StorageError

Row = Mapping[str, float | int | str]
#: With these every log of ours begins.
_FIRST = ("kind", "step", "epoch", "lr")


class MetricsLog:
    """`metrics.csv` and TensorBoard events in the run's folder, the same rows in both.

    The file's length and checksum are part of a checkpoint (`mark`): a run that resumes cuts off what was written
    after it, does that part again, and ends with the bytes of a run that was never stopped. So there is no clock in it;
    speed goes to TensorBoard alone.
    """

    def __init__(self, out: Path, resumed_step: int = 0, mark: Mapping[str, Any] | None = None) -> None:
        self.path = out / "metrics.csv"
        self.columns: list[str] = []
        self._content = hashlib.sha256()
        self._size = 0
        with writing(self.path):
            out.mkdir(parents=True, exist_ok=True)
            self._cut(resumed_step, mark)
            tensorboard = optional("torch.utils.tensorboard", "train", "a log for TensorBoard", package="tensorboard")
            after = resumed_step + 1 if resumed_step else None
            self._board = tensorboard.SummaryWriter(str(out / "tensorboard"), purge_step=after)

    @property
    def mark(self) -> dict[str, Any]:
        """How much of the file there is, for a checkpoint; it is on the disk."""
        if self._size:
            with writing(self.path), self.path.open("rb") as file:
                os.fsync(file.fileno())
        return {"bytes": self._size, "sha256": self._content.hexdigest()}

    def write(self, row: Row, **watched: float) -> None:
        """Append a row; it has a `step`, and the first one ever decides about the columns."""
        text = io.StringIO(newline="")
        if not self.columns:
            self.columns = list(row)
            csv.DictWriter(text, self.columns).writeheader()
        csv.DictWriter(text, self.columns, extrasaction="ignore").writerow(row)
        data = text.getvalue().encode()
        with writing(self.path, "The run's checkpoints are not touched, and the same call resumes."):
            with self.path.open("ab") as file:
                file.write(data)
            for name, value in {**row, **watched}.items():
                if name not in {"step", "kind"} and not isinstance(value, str):
                    self._board.add_scalar(f"{row['kind']}/{name}", value, int(row["step"]))
        self._content.update(data)
        self._size += len(data)

    def close(self) -> None:
        """Flush what TensorBoard holds back."""
        with contextlib.suppress(OSError):  # a full disk was told of when a row was written
            self._board.close()

    def _cut(self, step: int, mark: Mapping[str, Any] | None) -> None:
        if not self.path.exists():
            if mark and mark["bytes"]:
                warnings.warn(
                    f"{self.path} is gone; its rows up to step {step} are lost, later ones follow.", stacklevel=4
                )
            return
        data = self.path.read_bytes()
        if data and not data.startswith(",".join(_FIRST).encode()):
            raise StorageError(
                f"{self.path} is not the log of a run (it begins with {data[:40]!r}). Move it away, or choose another "
                "folder."
            )
        kept = data[: mark["bytes"]] if mark else b""
        if mark and hashlib.sha256(kept).hexdigest() != mark["sha256"]:
            warnings.warn(
                f"{self.path} was changed since the checkpoint at step {step}; whole rows up to it are kept.",
                stacklevel=4,
            )
            kept = _up_to(data, step)
        if not kept:
            self.path.unlink()
        elif kept != data:
            write_atomically(self.path, kept)
        self.columns = kept.decode().splitlines()[0].split(",") if kept else []
        self._content.update(kept)
        self._size = len(kept)


def _up_to(data: bytes, step: int) -> bytes:
    """The header and the whole rows up to a step."""
    header, *lines = data.decode(errors="replace").splitlines(keepends=True)
    at = header.rstrip().split(",").index("step")
    n = header.count(",")
    whole = [line for line in lines if line.endswith("\n") and line.count(",") == n]
    rows = [line for line in whole if line.split(",")[at].isdigit() and int(line.split(",")[at]) <= step]
    return "".join([header, *rows]).encode() if rows else b""


class Means:
    """Running means of named numbers; the sums are part of a checkpoint.

    >>> means = Means()
    >>> means.add({"total": 1.0}, 1); means.add({"total": 4.0}, 2)
    >>> means.values()
    {'total': 3.0}
    """

    def __init__(self, sums: Mapping[str, float] | None = None, count: int = 0) -> None:
        self.sums, self.count = dict(sums or {}), count
        self._since = time.perf_counter()
        self._fresh = 0

    @property
    def state(self) -> dict[str, Any]:
        """What the constructor takes."""
        return {"sums": dict(self.sums), "count": self.count}

    def add(self, values: Mapping[str, float], samples: int) -> None:
        """Count values that are means over so many samples."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * samples
        self.count += samples
        self._fresh += samples

    def values(self) -> dict[str, float]:
        """The means so far."""
        return {name: total / self.count for name, total in self.sums.items()} if self.count else {}

    def speed(self) -> float:
        """Samples per second since these means were begun or resumed."""
        return self._fresh / max(time.perf_counter() - self._since, 1e-9)
