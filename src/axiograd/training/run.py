"""The loop: epochs of steps, with checkpoints from which it goes on exactly as if it had never stopped."""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from axiograd.errors import ConfigurationError, NotFiniteError
from axiograd.training.batches import Batch, Order, loader
from axiograd.training.finite import not_finite
from axiograd.training.keeper import Keeper
from axiograd.training.mixup import mixup
from axiograd.training.monitor import Bar, Means, MetricsLog
from axiograd.training.objective import Objective, WithPrior, scalar_terms
from axiograd.training.recipe import Recipe
from axiograd.training.seeds import derive, seed_everything
from axiograd.training.state import is_sharded
from axiograd.training.stop import StopSignal
from axiograd.training.validate import Metric, predict, score


@dataclass(frozen=True)
class Settings:
    """What a run is told besides model, data and objective."""

    recipe: Recipe
    seed: int = 0
    validation: Any = None
    metric: Metric = "loss"
    out: Path | None = None
    num_workers: int = 0
    collate: Any = None
    checkpoint_steps: int | None = None
    log_steps: int = 50
    progress: bool | None = None


class Run:
    """One training run: what it needs, where it is, and how it goes on."""

    def __init__(self, fabric: Any, model: nn.Module, data: Any, objective: Objective, settings: Settings) -> None:
        self.fabric, self.objective, self.settings, self.recipe = fabric, objective, settings, settings.recipe
        self.wrapped = fabric.setup_module(model)
        # Fabric's own wrapper refuses torch.autograd.grad in mixed precision, which attribution needs; what it
        # does around forward (autocast, casting inputs) is done in _step, and DDP or FSDP are inside this one
        self.model: nn.Module = self.wrapped._forward_module  # noqa: SLF001
        if isinstance(objective, WithPrior) and is_sharded(self.model):
            raise ConfigurationError(
                "a prior needs second derivatives, and FSDP frees the parameters after the first; use strategy='ddp', "
                "or FSDP with a task loss alone"
            )
        named = list(self.wrapped.module.named_parameters())
        self.optimizer = fabric.setup_optimizers(self.recipe.build_optimizer(named))
        place = {"rank": fabric.global_rank, "world_size": fabric.world_size}
        self.order = Order(len(data), self.recipe.batch_size, seed=settings.seed, **place)
        self.batches = loader(
            data,
            self.order,
            num_workers=settings.num_workers,
            collate=settings.collate,
            pinned=fabric.device.type == "cuda",
        )
        identity: dict[str, Any] = {"seed": settings.seed, "samples": len(data)}
        identity |= {f"loss.{name}": value for name, value in objective.identity().items()}
        identity |= {f"recipe.{name}": value for name, value in asdict(self.recipe).items()}
        self.keeper = Keeper(fabric, self.wrapped, self.optimizer, objective, settings.out, identity)
        objective.to(fabric.device)
        self.step = 0
        self.means = Means()
        self.history: list[dict[str, float]] = []
        self.best: dict[str, float] | None = None
        self.log: MetricsLog | None = None

    @property
    def epoch(self) -> int:
        """The epoch we are in: as many are trained, validated and in the history."""
        return len(self.history)

    @property
    def best_step(self) -> int | None:
        """The step after which validation was best."""
        return None if self.best is None else int(self.best["step"])

    def resume(self, *, wanted: bool) -> int:
        """Go to where the newest checkpoint is; the step that it was made after, 0 at the start."""
        state = self.keeper.resume(wanted=wanted)
        if state is not None:
            self.step, self.history, self.best = state["step"], state["history"], state["best"]
            self.means = Means(state["sums"], state["count"])
        return self.step

    def go(self) -> None:
        """Train to the end of the recipe from wherever the run is."""
        zero, out, total = self.fabric.is_global_zero, self.settings.out, self.recipe.epochs * len(self.order)
        with StopSignal() as stop, Bar(shown=self.settings.progress if zero else False, total=total) as bar:
            self.log = MetricsLog(out, self.step) if out is not None and zero else None
            try:
                while self.epoch < self.recipe.epochs:
                    self._train_epoch(stop, bar)
                    self._close_epoch()
                    self._save()
                    if self._shared({}, stop.requested)[2] and self.epoch < self.recipe.epochs:
                        self._leave()
            finally:
                if self.log is not None:
                    self.log.close()

    def _train_epoch(self, stop: StopSignal, bar: Bar) -> None:
        self.order.at(self.epoch, self.step - self.epoch * len(self.order))
        self.model.train()
        recent = Means()
        for batch in self.batches:
            values, stopping = self._step(batch, stop)
            samples = len(batch) * self.fabric.world_size
            self.means.add(values, samples)
            recent.add(values, samples)
            bar.update(self.step, f"epoch {self.epoch + 1}/{self.recipe.epochs}", recent.values(), recent.speed())
            if self.step % self.settings.log_steps == 0:
                self._report("steps", recent)
                recent = Means()
            if stopping:
                self._save()
                self._leave()
            every, epoch_ends = self.settings.checkpoint_steps, self.step % len(self.order) == 0
            if every and self.step % every == 0 and not epoch_ends:
                self._save()

    def _step(self, batch: Batch, stop: StopSignal) -> tuple[dict[str, float], bool]:
        fabric, seed, where = self.fabric, self.settings.seed, f"epoch {self.epoch + 1}, step {self.step + 1}"
        self.recipe.set_lr(self.optimizer, self.step / len(self.order))
        batch = batch.map(fabric.to_device).cast(fabric.strategy.precision.convert_input)
        if self.recipe.mixup:
            batch = mixup(batch, self.recipe.mixup, derive(seed, "mixup", self.step))
        seed_everything(seed, "step", self.step, fabric.global_rank)
        with fabric.autocast():
            terms = self.objective(self.model, batch.inputs, batch.target, **batch.arguments)
        mine = {name: float(value) for name, value in scalar_terms(terms).items()}
        values, finite, stopping = self._shared(mine, stop.requested)
        if not finite:
            raise not_finite(mine, batch, terms, self.objective.task_loss, where)
        self.objective.backward(fabric, terms)
        norm = fabric.clip_gradients(
            self.wrapped, self.optimizer, max_norm=self.recipe.clip or math.inf, error_if_nonfinite=False
        )
        # the scaler of 16-mixed meets infinite gradients on purpose, and skips those steps
        if not math.isfinite(norm) and fabric.strategy.precision.precision != "16-mixed":
            raise NotFiniteError(
                f"{where}: the loss is finite ({mine}) but the norm of its gradient is {float(norm)}, for "
                f"the samples {batch.indices[:10]} … The weights were not updated and the last good checkpoint stays"
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return {**values, "gradient_norm": float(norm)}, stopping

    def _close_epoch(self) -> None:
        row: dict[str, float] = {"step": self.step, "epoch": self.epoch + 1, **self.means.values()}
        settings = self.settings
        if settings.validation is not None:
            seed_everything(settings.seed, "validation", self.epoch)
            outputs, targets = predict(
                self.fabric,
                self.model,
                settings.validation,
                batch_size=self.recipe.batch_size,
                collate=settings.collate,
            )
            row["validation"] = score(settings.metric, self.objective.task_loss, outputs, targets)
            if self.best is None or row["validation"] > self.best["validation"]:
                self.best = {"step": self.step, "epoch": self.epoch + 1, "validation": row["validation"]}
                self.keeper.remember_best()
        self._report("epoch", self.means, row.get("validation"))
        self.history.append(row)
        self.means = Means()

    def _report(self, kind: str, means: Means, validation: float | None = None) -> None:
        if self.log is not None:
            lr = self.recipe.lr * self.recipe.lr_factor((self.step - 1) / len(self.order))
            place: dict[str, float | int | str] = {
                "kind": kind,
                "step": self.step,
                "epoch": self.epoch + 1,
                "lr": lr,
            }
            last = {
                "samples_per_second": means.speed(),
                "validation": "" if validation is None else validation,
            }
            self.log.write({**place, **means.values(), **last})

    def _shared(self, mine: Mapping[str, float], stop: bool) -> tuple[dict[str, float], bool, bool]:
        """The means of the terms over ranks, whether all are finite, whether any rank was told to stop."""
        finite = all(math.isfinite(value) for value in mine.values())
        if self.fabric.world_size == 1:
            return dict(mine), finite, stop
        packed = torch.tensor([*mine.values(), not finite, stop], dtype=torch.float64, device=self.fabric.device)
        *values, bad, stopping = self.fabric.all_reduce(packed, reduce_op="mean").tolist()
        return dict(zip(mine, values, strict=True)), bad == 0, stopping > 0

    def _save(self) -> None:
        state = {"step": self.step, "history": self.history, "best": self.best}
        state |= {"sums": self.means.sums, "count": self.means.count}
        self.keeper.save(self.step, state, self.best_step)

    def _leave(self) -> None:
        if self.fabric.is_global_zero:
            out = self.settings.out
            kept = f"saved in {out}; run again to go on from there" if out else "nothing saved, as there is no folder"
            print(f"SIGTERM: stopped after step {self.step}, {kept}", file=sys.stderr)  # noqa: T201 - the last word
        raise SystemExit(StopSignal.EXIT_CODE)
