"""`fit`: train with a task loss or an attribution prior, on one process or many, and never lose a step."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from axiograd._extras import optional
from axiograd._half_precision import require_products
from axiograd._io import check_writable
from axiograd._state import in_mode
from axiograd.training.batches import ensure_dataset
from axiograd.training.loop import Run, Settings
from axiograd.training.objective import Objective, ensure_objective
from axiograd.training.recipe import Recipe
from axiograd.training.seeds import kept_rng
from axiograd.training.validate import Metric


@dataclass(frozen=True)
class FitResult:
    """How a run went.

    `history` has a row per epoch: the means of the loss terms and, with validation, its score (more is better).
    """

    steps: int
    epochs: int
    history: tuple[dict[str, float], ...]
    best: dict[str, float] | None
    resumed_step: int
    seconds: float
    weights: Path | None


def fit(
    model: nn.Module,
    train_data: Any,
    *,
    loss: Objective | Callable[..., Any],
    validation: Any = None,
    metric: Metric = "loss",
    judge_start: bool = False,
    recipe: Recipe | str | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    resume: bool = True,
    fork: str | Path | None = None,
    num_workers: int = 0,
    collate: Callable[[list[Any]], Any] | None = None,
    checkpoint_steps: int | None = None,
    checkpoint_minutes: float | None = 10.0,
    log_steps: int = 50,
    progress: bool | None = None,
    fabric: Any = None,
    accelerator: str = "auto",
    devices: int | str | None = None,
    num_nodes: int | None = None,
    strategy: Any = "auto",
    precision: Any = "32-true",
    metadata: Mapping[str, str] | None = None,
) -> FitResult:
    """Minimise mean task loss + λ·Ω(attribution), equation (1) of the paper, and leave the best weights.

    `loss` is an `AttributionLoss` or a task loss L(outputs, target). `train_data` and `validation` are data sets
    of (inputs, target) or (inputs, target, arguments of the prior), or tuples of tensors. A run with a folder
    `out` resumes from its last checkpoint, to the same bits as if it had never stopped, if its settings are the
    same; `fork` is the folder of another run, whose last checkpoint a new one with other settings
    starts from. `metadata` goes into the header of `model.safetensors`.

    >>> import torch
    >>> x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    >>> model = torch.nn.Linear(3, 1, bias=False)
    >>> result = fit(model, (x, x.sum(1, keepdim=True)), loss=torch.nn.functional.mse_loss, recipe=Recipe(
    ...     epochs=20, batch_size=16, lr=0.1, momentum=0.0, weight_decay=0.0), accelerator="cpu")
    >>> result.steps, result.history[-1]["total"] < 1e-4
    (80, True)
    """
    started = time.perf_counter()
    if out is not None:
        check_writable(Path(out))
    data = ensure_dataset(train_data, "train_data")
    settings = Settings(
        recipe=Recipe.ensure(recipe),
        seed=seed,
        validation=None if validation is None else ensure_dataset(validation, "validation"),
        metric=metric,
        judge_start=judge_start,
        out=None if out is None else Path(out),
        num_workers=num_workers,
        collate=collate,
        checkpoint_steps=checkpoint_steps,
        checkpoint_minutes=checkpoint_minutes,
        log_steps=log_steps,
        progress=progress,
    )
    if fabric is None:
        fabric = launch(accelerator, devices, num_nodes, strategy, precision)
    if fabric.device.type == "cpu":
        require_products(fabric.strategy.precision.precision)
    with kept_rng(), in_mode(model):
        run = Run(fabric, model, data, ensure_objective(loss), settings)
        with run.folder.alone():
            resumed_step = run.resume(wanted=resume, fork=None if fork is None else Path(fork))
            run.go()
            weights = run.folder.finish(run.best, run.history, metadata or {})
    seconds = time.perf_counter() - started
    return FitResult(run.step, run.epoch, tuple(run.history), run.best, resumed_step, seconds, weights)


def launch(
    accelerator: str = "auto",
    devices: int | str | None = None,
    num_nodes: int | None = None,
    strategy: Any = "auto",
    precision: Any = "32-true",
) -> Any:
    """A launched `lightning.fabric.Fabric`; devices and num_nodes are by default what torchrun started."""
    lightning = optional("lightning.fabric", "train", "axiograd.training.fit")
    # Fabric sets WORLD_SIZE for the processes that it starts itself; LOCAL_WORLD_SIZE is torchrun's alone
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    everywhere = int(os.environ["WORLD_SIZE"]) if "LOCAL_WORLD_SIZE" in os.environ else 1
    fabric = lightning.Fabric(
        accelerator=accelerator,
        devices=here if devices is None else devices,
        num_nodes=max(1, everywhere // here) if num_nodes is None else num_nodes,
        strategy=strategy,
        precision=precision,
    )
    fabric.launch()
    return fabric
