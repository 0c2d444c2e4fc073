"""The loop: epochs of steps, with checkpoints from which it resumes exactly as if it had never stopped."""

import json
import math
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from axiograd._io import layers_of, progress_bar, settings_of
from axiograd.errors import ConfigurationError, NotFiniteError, ProcessLostError
from axiograd.priors.batch_mean import weighing
from axiograd.training.batches import Batch, Order, loader
from axiograd.training.distributed import refuse_what_loses_gradients
from axiograd.training.folder import RunFolder
from axiograd.training.logs import Means, MetricsLog
from axiograd.training.mixup import mixup
from axiograd.training.objective import Objective, WithPrior, not_finite, scalar_terms
from axiograd.training.recipe import Recipe
from axiograd.training.seeds import derive, seed_everything
from axiograd.training.signals import StopSignal, leave
from axiograd.training.validate import Metric, predict, sample_weights, score

#: Seconds until something is saved for the first time, however long an epoch takes.
_FIRST_SAVE = 60.0


@dataclass(frozen=True)
class Settings:
    """What a run is told besides model, data and objective."""

    recipe: Recipe
    seed: int = 0
    validation: Any = None
    metric: Metric = "loss"
    #: Whether the weights that training begins with are among those that validation chooses from.
    judge_start: bool = False
    out: Path | None = None
    num_workers: int = 0
    collate: Any = None
    checkpoint_steps: int | None = None
    checkpoint_minutes: float | None = 10.0
    log_steps: int = 50
    progress: bool | None = None


class Run:
    """One training run: what it needs, where it is, and how it resumes."""

    def __init__(self, fabric: Any, model: nn.Module, data: Any, objective: Objective, settings: Settings) -> None:
        self.fabric, self.objective, self.settings, self.recipe = fabric, objective, settings, settings.recipe
        self.data = data
        layers = layers_of(model)  # before they are sharded, which changes their classes
        self.wrapped = fabric.setup_module(model)
        # Fabric's own wrapper refuses torch.autograd.grad in mixed precision, which attribution needs; what it
        # does around forward (autocast, casting inputs) is done in _part, and DDP or FSDP are inside this one
        self.model: nn.Module = self.wrapped._forward_module  # noqa: SLF001
        if isinstance(objective, WithPrior):
            refuse_what_loses_gradients(self.model)
        named = list(self.wrapped.module.named_parameters())
        self._model_settings = {
            "layers": layers,
            "frozen": [name for name, parameter in named if not parameter.requires_grad],
        }
        self.optimizer = fabric.setup_optimizers(self.recipe.build_optimizer(named))
        self.order = Order(
            len(data),
            self.recipe.batch_size,
            seed=settings.seed,
            rank=fabric.global_rank,
            world_size=fabric.world_size,
            parts=self.recipe.accumulate,
        )
        self.batches = loader(
            data,
            self.order,
            num_workers=settings.num_workers,
            collate=settings.collate,
            pinned=fabric.device.type == "cuda",
        )
        self.folder = RunFolder(fabric, self.wrapped, self.optimizer, objective, settings.out)
        objective.to(fabric.device)
        self.step = 0
        #: Of the epoch, and since the last row of the log.
        self.means, self.recent = Means(), Means()
        self.history: list[dict[str, float]] = []
        self.best: dict[str, float] | None = None
        self.log: MetricsLog | None = None
        self._mark: Mapping[str, Any] | None = None
        self._due = math.inf

    @property
    def epoch(self) -> int:
        """The epoch we are in: as many are trained, validated and in the history."""
        return len(self.history)

    @property
    def best_step(self) -> int | None:
        """The step after which validation was best."""
        return None if self.best is None else int(self.best["step"])

    def identity(self) -> dict[str, Any]:
        """The settings that a checkpoint of this run must have been written with."""
        settings = self.settings
        validated = settings.validation is not None
        found = {
            "seed": settings.seed,
            "data": _data_settings(self.data),
            "collate": settings_of(settings.collate),
            "validation": _data_settings(settings.validation) if validated else None,
            "metric": settings_of(settings.metric) if validated else None,
            "model": self._model_settings,
            "loss": self.objective.identity(),
            "recipe": asdict(self.recipe),
            **({"judge_start": True} if settings.judge_start else {}),
            "precision": str(self.fabric.strategy.precision.precision),
        }
        return dict(json.loads(json.dumps(found)))  # as a checkpoint gives it back

    def resume(self, *, wanted: bool, fork: Path | None = None) -> int:
        """Go to where the newest checkpoint is; the step that it was made after, 0 at the start."""
        state, forks = self.folder.resume(self.identity, wanted=wanted, fork=fork)
        if state is None:
            return 0
        self.step, self.history = state["step"], list(state["history"])
        self.means, self.recent = Means(**state["means"]), Means(**state["recent"])
        self._mark = state["log"]
        if forks:
            self._fork(int(state["steps_per_epoch"]))
        else:
            self.best = state["best"]
            # One that is gone was removed when a later epoch was better, as it will be again.
            if self.epoch < self.recipe.epochs and self.folder.holds(self.best_step):
                self.best = self.folder.sound_best(self.best, self.history)
        return self.step

    def _fork(self, steps_per_epoch: int) -> None:
        """Another run from the same place; scores of validation begin anew, as they may be of other data."""
        if self.epoch >= self.recipe.epochs:
            raise ConfigurationError(
                f"the fork begins after epoch {self.epoch}, and the recipe has epochs = {self.recipe.epochs}; raise it."
            )
        if steps_per_epoch != len(self.order):  # other batches: from the beginning of the epoch
            self.step, self.means, self.recent = self.epoch * len(self.order), Means(), Means()
        self._mark = None if self.folder.forked_elsewhere else self._mark
        self._save()

    def go(self) -> None:
        """Train to the end of the recipe from wherever the run is."""
        zero, out, total = self.fabric.is_global_zero, self.settings.out, self.recipe.epochs * len(self.order)
        shown = self.settings.progress if zero else False
        bar = progress_bar("", total=total, shown=shown, extra="train")
        with StopSignal(interrupts=out is not None) as stop, bar as update:
            self.log = MetricsLog(out, self.step, self._mark) if out is not None and zero else None
            if self.settings.checkpoint_minutes is not None and out is not None:
                self._due = time.monotonic() + min(_FIRST_SAVE, 60 * self.settings.checkpoint_minutes)
            try:
                self._judge_start()
                while self.epoch < self.recipe.epochs:
                    self._train_epoch(stop, update)
                    self._close_epoch()
                    self._save()
                    _, _, stopping, _ = self._shared({}, stop.requested)
                    if stopping and self.epoch < self.recipe.epochs:
                        self._leave(stopping)
            except RuntimeError as error:
                if self.fabric.world_size > 1 and _of_another_process(error):
                    raise self._lost(error) from error
                raise
            finally:
                if self.log is not None:
                    self.log.close()

    def _train_epoch(self, stop: StopSignal, update: Any) -> None:
        self.order.at(self.epoch, self.step - self.epoch * len(self.order))
        self.model.train()
        values: dict[str, float] = {}
        for batch in self.batches:
            part, stopping, due = self._part(batch, stop)
            values = {name: values.get(name, 0.0) + value for name, value in part.items()}
            if not batch.share.last:
                continue
            values["gradient_norm"] = self._update(batch, values)
            self.means.add(values, batch.share.total)
            self.recent.add(values, batch.share.total)
            self._show(update)
            values = {}
            if self.step % self.settings.log_steps == 0:
                self._report("steps", self.recent)
                self.recent = Means()
            if stopping:
                self._save()
                self._leave(stopping)
            every, epoch_ends = self.settings.checkpoint_steps, self.step % len(self.order) == 0
            if not epoch_ends and (due or (every and self.step % every == 0)):
                self._save()

    @property
    def _where(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.step + 1}"

    def _part(self, batch: Batch, stop: StopSignal) -> tuple[dict[str, float], signal.Signals | None, bool]:
        """Gradients of what is computed at once, a batch or one of the parts of a batch."""
        fabric, seed, share = self.fabric, self.settings.seed, batch.share
        self.recipe.set_lr(self.optimizer, self.step / len(self.order))
        batch = batch.map(fabric.to_device).cast(fabric.strategy.precision.convert_input)
        later = (share.number,) if share.number else ()
        if self.recipe.mixup:
            batch = mixup(batch, self.recipe.mixup, derive(seed, "mixup", self.step, *later))
        seed_everything(seed, "step", self.step, fabric.global_rank, *later)
        with fabric.no_backward_sync(self.wrapped, enabled=not share.last):
            with fabric.autocast(), weighing(share.weight, share.of_batch):
                terms = self.objective(self.model, batch.inputs, batch.target, **batch.arguments)
            if share.weight != 1.0:
                terms = self.objective.weighed(terms, share.weight)
            mine = {name: float(value) for name, value in scalar_terms(terms).items()}
            values, finite, stopping, due = self._shared(mine, stop.requested)
            if not finite:
                raise not_finite(mine, batch, terms, self.objective.task_loss, self._where)
            self.objective.backward(fabric, terms)
        if not share.last:
            self.objective.same_step()
        return values, stopping, due

    def _update(self, batch: Batch, values: Mapping[str, float]) -> float:
        """A step of the optimizer; the norm of the gradient."""
        fabric = self.fabric
        norm = fabric.clip_gradients(
            self.wrapped, self.optimizer, max_norm=self.recipe.clip or math.inf, error_if_nonfinite=False
        )
        # the scaler of 16-mixed meets infinite gradients on purpose, and skips those steps
        if not math.isfinite(norm) and fabric.strategy.precision.precision != "16-mixed":
            raise NotFiniteError(
                f"{self._where}: the loss is finite ({dict(values)}) but the norm of its gradient is {float(norm)}, "
                f"for the samples {batch.indices[:10]} … The weights were not updated; the last checkpoint stays."
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return float(norm)

    def _close_epoch(self) -> None:
        row: dict[str, float] = {"step": self.step, "epoch": self.epoch + 1, **self.means.values()}
        settings = self.settings
        if settings.validation is not None:
            seed_everything(settings.seed, "validation", self.epoch)
            row["validation"] = self._validated()
            if self.best is None or row["validation"] > self.best["validation"]:
                self.best = {"step": self.step, "epoch": self.epoch + 1, "validation": row["validation"]}
                self.folder.remember_best()
        self._report("epoch", self.means, row.get("validation"))
        self.history.append(row)
        self.means = Means()

    def _judge_start(self) -> None:
        """What training begins with is the best until something is better."""
        if self.settings.judge_start and self.settings.validation is not None and self.step == 0:
            self.best = {"step": 0, "epoch": 0, "validation": self._validated()}
            self.folder.remember_best()
            self._save()

    def _validated(self) -> float:
        settings = self.settings
        size, collate = self.recipe.batch_size, settings.collate
        outputs, targets = predict(self.fabric, self.model, settings.validation, batch_size=size, collate=collate)
        weights = sample_weights(settings.validation)
        return score(settings.metric, self.objective.task_loss, outputs, targets, weights)

    def _show(self, update: Any) -> None:
        terms = " ".join(
            f"{name} {value:.3g}" for name, value in self.recent.values().items() if name != "gradient_norm"
        )
        note = f"{terms} · {self.recent.speed():,.0f} samples/s"
        update(completed=self.step, description=f"epoch {self.epoch + 1}/{self.recipe.epochs}", note=note)

    def _report(self, kind: str, means: Means, validation: float | None = None) -> None:
        if self.log is not None:
            lr = self.recipe.lr * self.recipe.lr_factor((self.step - 1) / len(self.order))
            place: dict[str, Any] = {"kind": kind, "step": self.step, "epoch": self.epoch + 1, "lr": lr}
            row = {**place, **means.values(), "validation": "" if validation is None else validation}
            self.log.write(row, samples_per_second=means.speed())

    def _shared(
        self, mine: Mapping[str, float], stop: signal.Signals | None
    ) -> tuple[dict[str, float], bool, signal.Signals | None, bool]:
        """Means of the terms over ranks, whether all are finite, which signal some rank got, if it is time to save."""
        finite = all(math.isfinite(value) for value in mine.values())
        due = time.monotonic() >= self._due
        if self.fabric.world_size == 1:
            return dict(mine), finite, stop, due
        flags = [not finite, stop is signal.SIGTERM, stop is signal.SIGINT, due and self.fabric.is_global_zero]
        packed = torch.tensor([*mine.values(), *flags], dtype=torch.float64, device=self.fabric.device)
        *values, bad, term, interrupt, due_there = self.fabric.all_reduce(packed, reduce_op="mean").tolist()
        stopping = signal.SIGTERM if term else signal.SIGINT if interrupt else None
        return dict(zip(mine, values, strict=True)), bad == 0, stopping, due_there > 0

    def _save(self) -> None:
        state = {"step": self.step, "steps_per_epoch": len(self.order), "history": self.history, "best": self.best}
        state |= {"means": self.means.state, "recent": self.recent.state}
        state["log"] = self._mark if self.log is None else self.log.mark
        self.folder.save(self.step, state, self.best_step)
        if self.settings.checkpoint_minutes is not None and self.settings.out is not None:
            self._due = time.monotonic() + 60 * self.settings.checkpoint_minutes

    def _leave(self, stop: signal.Signals) -> None:
        out = self.settings.out
        kept = (
            f"saved in {out}; the same call resumes there" if out else "nothing saved, as there is no folder (out=...)"
        )
        message = f"{stop.name}: stopped after step {self.step} of epoch {self.epoch + 1}, {kept}."
        if self.fabric.is_global_zero:
            print(message, file=sys.stderr)  # noqa: T201 - the last word
        leave(stop, message)

    def _lost(self, error: RuntimeError) -> ProcessLostError:
        out = self.settings.out
        safe = f"Checkpoints in {out} are complete, and the same call resumes from the newest." if out else ""
        first = str(error).strip().splitlines()[0][:200]
        return ProcessLostError(
            f"{self._where}: another of the {self.fabric.world_size} processes is gone, so this one (rank "
            f"{self.fabric.global_rank}) cannot continue: {first}. {safe}"
        )


def _of_another_process(error: RuntimeError) -> bool:
    words = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out")
    return isinstance(error, torch.distributed.DistError) or any(word in str(error).lower() for word in words)


def _data_settings(data: Any) -> dict[str, Any]:
    """Kind and number of samples; tensors in memory by their values."""
    held = {"tensors": settings_of(data.tensors)} if isinstance(data, TensorDataset) else {}
    return {"name": type(data).__qualname__, "samples": len(data), **held}
