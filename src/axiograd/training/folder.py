"""A run's folder: who may write there, which run it holds, what it resumes from, and which weights it keeps."""

import json
import math
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from axiograd._io import alone, digest, load_tensors, read_header, require_same_settings, save_tensors, writing
from axiograd.errors import AxiogradError, ConfigurationError, StorageError
from axiograd.training import checkpoint
from axiograd.training.checkpoint import (
    Checkpoint,
    Tensors,
    is_sharded,
    load_model,
    load_optimizer,
    model_tensors,
    optimizer_tensors,
)
from axiograd.training.objective import Objective

Result = TypeVar("Result")
Row = Mapping[str, float]


class RunFolder:
    """Saves and restores model, optimizer, objective and the run's state; without a folder, the best weights alone.

    With several processes rank 0 writes, and all of them read: the folder must be one that every machine sees.
    """

    def __init__(self, fabric: Any, wrapped: Any, optimizer: Any, objective: Objective, out: Path | None) -> None:
        whole = wrapped._forward_module  # noqa: SLF001 - the shards are known to this one
        self.module = whole if is_sharded(whole) else wrapped.module
        self.optimizer = getattr(optimizer, "optimizer", optimizer)
        self.fabric, self.objective, self.out = fabric, objective, out
        #: What must be the same for a checkpoint to belong to this run; on rank 0.
        self.identity: dict[str, Any] = {}
        self.forked: dict[str, Any] | None = None
        self._best: Tensors | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Refuse to enter while another process writes there."""
        with ExitStack() as stack:
            if self.out is not None:
                out = self.out
                self._on_zero(lambda: stack.enter_context(alone(out)))
            yield

    def resume(
        self, identify: Callable[[], dict[str, Any]], *, wanted: bool, fork: Path | None
    ) -> tuple[dict[str, Any] | None, bool]:
        """Load the newest sound checkpoint; its state, or None at the start, and whether that makes another run."""
        if self.out is None:
            if fork is not None:
                raise ConfigurationError(f"fork={str(fork)!r} needs a folder for the new run: pass out=... as well.")
            return None, False
        out = self.out
        folder, forks = self._on_zero(lambda: self._find(out, identify(), wanted=wanted, fork=fork))
        if folder is None:
            return None, False
        found = checkpoint.read(folder)
        load_model(self.module, found.tensors["model"])
        if forks:
            self._load_what_fits(found)
            self.forked = {"from": str(folder), "earlier": found.state.get("forked")}
        else:
            load_optimizer(self.module, self.optimizer, found.tensors["optimizer"])
            self.objective.load(found.tensors["objective"])
            self.forked = found.state.get("forked")
        return found.state, forks

    def _find(
        self, out: Path, identity: dict[str, Any], *, wanted: bool, fork: Path | None
    ) -> tuple[Path | None, bool]:
        """The checkpoint to start from, and whether that makes another run of it."""
        self.identity = identity
        if not wanted and checkpoint.steps(out):
            raise StorageError(f"{out} already holds a run; pass resume=True to resume it, or another folder.")
        found = checkpoint.latest(out)
        if found is not None and found.state["identity"] == identity:
            return found.folder, False
        inside = fork is not None and fork.resolve() == out.resolve()
        if found is not None and not inside:
            advice = (
                "Use the old settings, or another folder; or start from that checkpoint with the new settings: "
                f"fit(..., out=NEW, fork={str(out)!r}), on the command line --out NEW --fork {shlex.quote(str(out))}."
            )
            require_same_settings(found.folder, found.state["identity"], identity, advice)
        if fork is None:
            return None, False
        source = found if inside else checkpoint.latest(fork, aside=False)
        if source is None:
            raise StorageError(f"{fork} holds no sound checkpoint to fork from.")
        return source.folder, True

    def _load_what_fits(self, found: Checkpoint) -> None:
        """For a fork: the optimizer's memory if it is of the same kind; of the loss where it is, not what it is."""
        theirs, mine = (one.get("recipe", {}).get("optimizer") for one in (found.state["identity"], self.identity))
        if not self.fabric.broadcast(theirs == mine):
            warnings.warn(f"the fork begins with a new optimizer ({mine}, not {theirs}).", stacklevel=3)
        else:
            try:
                load_optimizer(self.module, self.optimizer, found.tensors["optimizer"])
            except (StorageError, ValueError, RuntimeError) as error:
                warnings.warn(f"the fork begins with a new optimizer: {error}", stacklevel=3)
        own, saved = self.objective.tensors(), found.tensors["objective"]
        position = {name: saved[name] for name in own if name.endswith("_extra_state") and name in saved}
        if position:
            self.objective.load(own | position)

    @property
    def forked_elsewhere(self) -> bool:
        """Whether the run started from a checkpoint in another folder."""
        return (
            self.forked is not None
            and self.out is not None
            and Path(self.forked["from"]).resolve().parent != self.out.resolve()
        )

    def save(self, step: int, state: Mapping[str, Any], best_step: int | None) -> None:
        """Write a checkpoint, and remove those that are neither recent nor the best."""
        if self.out is None:
            return
        out = self.out
        tensors = {
            "model": model_tensors(self.module),
            "optimizer": optimizer_tensors(self.module, self.optimizer),
            "objective": self.objective.tensors(),
        }
        whole = {"identity": self.identity, "forked": self.forked, **state}

        def write() -> None:
            checkpoint.write(out, step, tensors, whole)
            checkpoint.prune(out, also=[best_step])

        self._on_zero(write)

    def remember_best(self) -> None:
        """Hold on to the present weights, where no checkpoint will."""
        if self.out is None:
            if is_sharded(self.module):
                raise ConfigurationError("the best weights of a sharded model are kept on disk: pass a folder, out=...")
            self._best = model_tensors(self.module)

    def holds(self, step: int | None) -> bool:
        """Whether there is a checkpoint of that step, sound or not."""
        out = self.out
        return step is not None and out is not None and self._on_zero(lambda: checkpoint.folder(out, step).exists())

    def sound_best(self, best: Row | None, history: Sequence[Row]) -> dict[str, float] | None:
        """The best epoch whose weights can still be read; where that is not the best one, say what is lost."""
        if self.out is None or best is None:
            return None if best is None else dict(best)
        out = self.out
        return self._on_zero(lambda: self._sound(out, best, history))

    def finish(self, best: Row | None, history: Sequence[Row], about: Mapping[str, str]) -> Path | None:
        """Leave the best weights in the model, and in `model.safetensors` with what is said about them."""
        if self.out is None:
            if self._best is not None:
                load_model(self.module, self._best)
            return None
        out, target = self.out, self.out / "model.safetensors"
        kept = self._on_zero(lambda: None if best is None else _kept(target, int(best["step"])))
        if kept is not None:  # a finished run: the file is the one copy that cannot have been pruned
            load_model(self.module, kept)
            return target
        sound = self.sound_best(best, history)
        if sound is not None:
            load_model(self.module, checkpoint.read(checkpoint.folder(out, int(sound["step"]))).tensors["model"])
        tensors = model_tensors(self.module)
        step = int(sound["step"]) if sound is not None else history[-1]["step"] if history else 0

        def write() -> None:
            header = {**about, "axiograd.run": json.dumps({"step": step, "weights": digest(tensors)})}
            with writing(target, "The checkpoints are complete, and the same call writes it."):
                save_tensors(target, tensors, header)

        self._on_zero(write)
        return target

    def _sound(self, out: Path, best: Row, history: Sequence[Row]) -> dict[str, float] | None:
        rows = sorted(
            (row for row in history if math.isfinite(row.get("validation", math.nan))),
            key=lambda row: -row["validation"],
        )
        for row in [best, *(row for row in rows if row["step"] != best["step"])]:
            path = checkpoint.folder(out, int(row["step"]))
            if not path.exists() and row is not best:
                continue  # removed in time, as it was not the best
            try:
                checkpoint.read(path)
            except StorageError as error:
                aside = checkpoint.set_aside(path).name if path.exists() else "missing"
                warnings.warn(
                    f"{error} The weights of epoch {int(row['epoch'])} (validation {row['validation']:.6g}) are lost "
                    f"({aside}); the best that are left are kept instead.",
                    stacklevel=2,
                )
            else:
                return {name: row[name] for name in ("step", "epoch", "validation")}
        return None

    def _on_zero(self, work: Callable[[], Result]) -> Result:
        """Do it on rank 0; all ranks get the result, or raise what it raised, and none waits forever."""
        result: Any = None
        error: AxiogradError | None = None
        if self.fabric.is_global_zero:
            try:
                result = work()
            except AxiogradError as raised:
                if self.fabric.world_size == 1:
                    raise
                error = raised
        if self.fabric.world_size > 1:
            result, error = self.fabric.broadcast((result, error))
        if error is not None:
            raise error
        answer: Result = result
        return answer


def _kept(path: Path, step: int) -> Tensors | None:
    """The weights of a file that an earlier call wrote for this step, if it was not modified."""
    if not path.exists():
        return None
    try:
        tensors, header = load_tensors(path), json.loads(read_header(path).get("axiograd.run", "{}"))
    except (StorageError, ValueError):
        return None
    return tensors if header == {"step": step, "weights": digest(tensors)} else None
