"""`fit`: train with a task loss or an attribution prior on Lightning's Trainer, with checkpoints that resume."""

import copy
import logging
import math
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from axiograd._extras import optional
from axiograd._io import check_writable, save_tensors
from axiograd._state import draws_noticed, in_mode
from axiograd.training.data import ensure_dataset
from axiograd.training.objective import Objective, ensure_objective
from axiograd.training.recipe import Recipe

if TYPE_CHECKING:
    from axiograd.training.module import Metric, TrainingModule

#: What Lightning warns of and `fit` means to do.
_MEANT = (
    "Checkpoint directory .* exists and is not empty",
    r"Found \d+ module\(s\) in eval mode",
    r"The '\w+_dataloader' does not have many workers",
)


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
    data: Any,
    loss: Objective | Callable[..., Any],
    *,
    validation: Any = None,
    metric: "Metric" = "loss",
    judge_start: bool = False,
    recipe: Recipe | str = "alexnet",
    out: str | Path | None = None,
    seed: int = 0,
    num_workers: int = 0,
    collate: Callable[[list[Any]], Any] | None = None,
    progress: bool | None = None,
    metadata: Mapping[str, str] | None = None,
    **trainer: Any,
) -> FitResult:
    """Minimise mean task loss + λ·Ω(attribution), equation (1) of the paper, and leave the best weights.

    `loss` is an `AttributionLoss` or a task loss L(outputs, target). `data` and `validation` are data sets of
    (inputs, target) or (inputs, target, arguments of the prior), or tuples of tensors. After every epoch the folder
    `out` gets `last.ckpt`, from which the same call resumes to the same bits, and `best.ckpt` by validation; at the
    end `model.safetensors`, with `metadata` in its header. With `judge_start`, the weights that training begins with
    are among those that validation chooses from. Further keywords are those of `lightning.Trainer`: accelerator,
    devices, strategy, precision, logger, callbacks …

    >>> x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    >>> model = torch.nn.Linear(3, 1, bias=False)
    >>> result = fit(model, (x, x.sum(1, keepdim=True)), torch.nn.functional.mse_loss, recipe=Recipe(
    ...     epochs=20, batch_size=16, lr=0.1, momentum=0.0, weight_decay=0.0), accelerator="cpu")
    >>> result.steps, result.history[-1]["total"] < 1e-4
    (80, True)
    """
    started = time.perf_counter()
    optional("lightning.pytorch", "train", "axiograd.training.fit")
    from axiograd.training.module import TrainingModule

    module = TrainingModule(
        model,
        ensure_objective(loss),
        Recipe.preset(recipe) if isinstance(recipe, str) else recipe,
        ensure_dataset(data, "data"),
        validation=None if validation is None else ensure_dataset(validation, "validation"),
        metric=metric,
        seed=seed,
        num_workers=num_workers,
        collate=collate,
    )
    with ExitStack() as stack:
        stack.enter_context(_undisturbed(model))
        folder = None if out is None else Path(out)
        if folder is not None:
            check_writable(folder)
            folder.mkdir(parents=True, exist_ok=True)
        elif validation is not None:  # the best weights wait somewhere
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shown = sys.stderr.isatty() if progress is None else progress
        run = _trainer(module, folder, {"enable_progress_bar": shown, **trainer})
        if not model.training:
            model.train()  # parts of a model in train mode that are in eval mode are frozen, and stay so
        before = None
        if judge_start and validation is not None:
            run.validate(module, verbose=False)
            before = module.score, copy.deepcopy(model.state_dict())
        _train(run, module, None if folder is None else folder / "last.ckpt")
        best = None
        if folder is not None and (folder / "best.ckpt").exists():
            best = _load_best(model, folder / "best.ckpt", before)
        run.strategy.barrier()  # nobody takes the folder away while others read
    model.zero_grad()
    weights = None
    if out is not None:
        weights = Path(out) / "model.safetensors"
        if run.is_global_zero:
            save_tensors(weights, model.state_dict(), metadata)
    seconds = time.perf_counter() - started
    return FitResult(
        run.global_step, len(module.history), tuple(module.history), best, module.resumed_step, seconds, weights
    )


def _trainer(module: "TrainingModule", folder: Path | None, given: dict[str, Any]) -> Any:
    """Lightning's Trainer with our checkpoints, and with whatever was given for it."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    from axiograd.training.module import AtomicCheckpoints, Interrupted

    callbacks, plugins = [*(given.pop("callbacks", None) or [])], [*(given.pop("plugins", None) or [])]
    if folder is not None:
        settings: dict[str, Any] = {"save_on_train_epoch_end": True, "enable_version_counter": False}
        callbacks.append(Interrupted(folder / "interrupted.ckpt"))
        if module.validation is not None:
            callbacks.append(ModelCheckpoint(folder, "best", monitor="validation", mode="max", **settings))
        callbacks.append(ModelCheckpoint(folder, "last", **settings))
        plugins.append(AtomicCheckpoints())
    defaults: dict[str, Any] = {
        "logger": False if folder is None else CSVLogger(folder, "logs"),
        "log_every_n_steps": min(50, math.ceil(len(module.data) / module.recipe.batch_size)),
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "limit_val_batches": 0 if module.validation is None else None,
        **_launched(),
    }
    return Trainer(
        **{**defaults, **given},
        max_epochs=module.recipe.epochs,
        use_distributed_sampler=False,
        callbacks=callbacks,
        plugins=plugins,
        enable_checkpointing=folder is not None,
    )


def _launched() -> dict[str, int]:
    """How many processes torchrun has started, here and on all machines."""
    if "LOCAL_WORLD_SIZE" not in os.environ:
        return {"devices": 1}
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    return {"devices": here, "num_nodes": int(os.environ["WORLD_SIZE"]) // here}


def _train(trainer: Any, module: "TrainingModule", last: Path | None) -> None:
    """Train to the end, from the last checkpoint if there is one."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(module, ckpt_path=last if last is not None and last.exists() else None, weights_only=True)
    except SystemExit as stopped:
        if not isinstance(stopped.__context__, KeyboardInterrupt):
            raise
        # Lightning makes an exit of it, and ignores Ctrl-C from then on.
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from stopped


def _load_best(model: nn.Module, path: Path, before: tuple[Any, dict[str, Any]] | None) -> dict[str, float]:
    """Give the model its best weights, which may be those from before, and say of which epoch they are."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    row: dict[str, float] = checkpoint["axiograd"]["history"][-1]
    if before is not None and not row["validation"] > before[0]:
        model.load_state_dict(before[1])
        return {"step": 0, "epoch": 0, "validation": before[0]}
    state = checkpoint["state_dict"].items()
    model.load_state_dict({name.removeprefix("model."): value for name, value in state if name.startswith("model.")})
    return {name: row[name] for name in ("step", "epoch", "validation")}


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """The model's modes and the global generators come back as they were; Lightning says only what matters."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    with in_mode(model), torch.random.fork_rng(), draws_noticed(), warnings.catch_warnings():
        for message in _MEANT:
            warnings.filterwarnings("ignore", message)
        log.setLevel(logging.WARNING)
        try:
            yield
        finally:
            log.setLevel(level)
