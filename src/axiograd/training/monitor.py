"""What a run shows while it goes on: a progress bar, a CSV file, TensorBoard."""

import csv
import io
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from axiograd.errors import MissingExtraError
from axiograd.runs.files import write_atomically

Row = Mapping[str, float | int | str]


class MetricsLog:
    """`metrics.csv` and TensorBoard events in the run's folder, the same rows in both.

    Rows after the step that a run resumes from are dropped: that part of the run is done again.
    """

    def __init__(self, out: Path, resumed_step: int = 0) -> None:
        self.path = out / "metrics.csv"
        self.columns: list[str] = []
        out.mkdir(parents=True, exist_ok=True)
        self._drop_after(resumed_step)
        self._board = _summary_writer(out / "tensorboard", resumed_step)

    def write(self, row: Row) -> None:
        """Append a row; it has a `step`, and the first one ever decides about the columns."""
        fresh = not self.columns
        if fresh:
            self.columns = list(row)
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.columns, extrasaction="ignore")
            if fresh:
                writer.writeheader()
            writer.writerow(row)
        for name, value in row.items():
            if name not in {"step", "kind"} and not isinstance(value, str):
                self._board.add_scalar(f"{row['kind']}/{name}", value, int(row["step"]))

    def close(self) -> None:
        """Flush what TensorBoard holds back."""
        self._board.close()

    def _drop_after(self, step: int) -> None:
        if not self.path.exists():
            return
        # a kill can leave half a line at the end
        with self.path.open(newline="") as file:
            reader = csv.DictReader(file)
            self.columns = list(reader.fieldnames or [])
            rows = [row for row in reader if None not in row.values() and int(row["step"] or step + 1) <= step]
        if not rows:
            self.columns = []
            self.path.unlink()
            return
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns)
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.path, text.getvalue().encode())


class Bar:
    """A line on the terminal: epoch, share done, loss terms, samples per second, time left."""

    def __init__(self, *, shown: bool | None, total: int) -> None:
        self.shown = sys.stderr.isatty() if shown is None else shown
        self._total = total
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self.shown:
            try:
                from rich import console, progress
            except ImportError as error:
                raise MissingExtraError("rich", "train", "a progress bar") from error
            self._progress = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[terms]}"),
                progress.TimeRemainingColumn(),
                console=console.Console(stderr=True),
            )
            self._progress.start()
            self._task = self._progress.add_task("", total=self._total, terms="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, step: int, epoch: str, terms: Mapping[str, float], speed: float) -> None:
        """Show where the run is."""
        if self._progress is not None:
            text = " ".join(f"{name} {value:.3g}" for name, value in terms.items() if name != "gradient_norm")
            self._progress.update(
                self._task, completed=step, description=epoch, terms=f"{text} · {speed:,.0f} samples/s"
            )


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


def _summary_writer(folder: Path, resumed_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "train", "a log for TensorBoard") from error
    return SummaryWriter(str(folder), purge_step=resumed_step + 1 if resumed_step else None)
