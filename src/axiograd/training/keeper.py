"""A run's folder: what it saves, what it goes on from, and which weights it keeps in the end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from axiograd.errors import ConfigurationError, StorageError
from axiograd.training import checkpoint
from axiograd.training.checkpoint import Checkpoint, Tensors
from axiograd.training.objective import Objective
from axiograd.training.state import (
    is_sharded,
    load_model,
    load_optimizer,
    model_tensors,
    optimizer_tensors,
)


class Keeper:
    """Saves and restores model, optimizer, objective and the run's state; without a folder, the best weights alone.

    `identity` is what must be the same for a checkpoint to belong to this run. With several processes rank 0
    writes, and all of them read: the folder must be one that every machine sees.
    """

    def __init__(
        self,
        fabric: Any,
        wrapped: Any,
        optimizer: Any,
        objective: Objective,
        out: Path | None,
        identity: Mapping[str, Any],
    ) -> None:
        whole = wrapped._forward_module  # noqa: SLF001 - the shards are known to this one
        self.module = whole if is_sharded(whole) else wrapped.module
        self.optimizer = getattr(optimizer, "optimizer", optimizer)
        self.fabric, self.objective, self.out, self.identity = fabric, objective, out, dict(identity)
        self._best: Tensors | None = None

    def resume(self, *, wanted: bool) -> dict[str, Any] | None:
        """Load the newest sound checkpoint into model and optimizer; its state, or None at the start."""
        if self.out is None:
            return None
        if not wanted and checkpoint.steps(self.out):
            raise StorageError(f"{self.out} already holds a run; pass resume=True to go on with it, or another folder")
        found: Checkpoint | None = checkpoint.latest(self.out) if self.fabric.is_global_zero else None
        folder = self.fabric.broadcast(None if found is None else found.folder)
        if folder is None:
            return None
        found = found or checkpoint.read(folder)
        self._check_identity(found)
        load_model(self.module, found.tensors["model"])
        load_optimizer(self.module, self.optimizer, found.tensors["optimizer"])
        self.objective.load(found.tensors["objective"])
        return found.state

    def save(self, step: int, state: Mapping[str, Any], best_step: int | None) -> Path | None:
        """Write a checkpoint, and remove those that are neither recent nor the best."""
        if self.out is None:
            return None
        tensors = {
            "model": model_tensors(self.module),
            "optimizer": optimizer_tensors(self.module, self.optimizer),
            "objective": self.objective.tensors(),
        }
        if self.fabric.is_global_zero:
            checkpoint.write(self.out, step, tensors, {"identity": self.identity, **state})
            checkpoint.prune(self.out, also=[best_step])
        self.fabric.barrier()
        return checkpoint.folder(self.out, step)

    def remember_best(self) -> None:
        """Hold on to the present weights, where no checkpoint will."""
        if self.out is None:
            if is_sharded(self.module):
                raise ConfigurationError("the best weights of a sharded model are kept on disk: pass a folder, out=...")
            self._best = model_tensors(self.module)

    def finish(self, best_step: int | None) -> Path | None:
        """Leave the best weights in the model, and in `model.safetensors`."""
        if self.out is None:
            if self._best is not None:
                load_model(self.module, self._best)
            return None
        if best_step is not None:
            load_model(self.module, checkpoint.read(checkpoint.folder(self.out, best_step)).tensors["model"])
        tensors = model_tensors(self.module)
        if self.fabric.is_global_zero:
            checkpoint.write_tensors(self.out / "model.safetensors", tensors)
        self.fabric.barrier()
        return self.out / "model.safetensors"

    def _check_identity(self, found: Checkpoint) -> None:
        theirs = found.state["identity"]
        different = [
            f"{name} was {theirs.get(name)!r} and is {self.identity.get(name)!r}"
            for name in sorted(theirs.keys() | self.identity.keys())
            if theirs.get(name) != self.identity.get(name)
        ]
        if different:
            raise StorageError(
                f"{found.folder} belongs to another run: {'; '.join(different)}. "
                "Use another folder, or the old settings"
            )
