"""A callback for Hugging Face's Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from axiograd.callbacks.watching import AttributionWatch, Look
from axiograd.errors import MissingExtraError
from axiograd.report import save

try:
    from transformers import TrainerCallback
except ImportError as error:  # pragma: no cover - an extra
    raise MissingExtraError("transformers", "text", "WatchTrainer") from error


class WatchTrainer(TrainerCallback):
    """Adds share in masks and completeness gap of the watched samples to the metrics of every evaluation.

    They are in what `evaluate` returns (as ``eval_attribution_…``, so that the best model can be chosen by them) and in
    the trainer's log; `WatchTrainer.attach(trainer)` sends them to its reporters, too. Pictures are PNG files in
    `folder`, by default in ``attributions`` of the output folder. A network that is not certified is refused before
    training begins.
    """

    def __init__(self, watch: AttributionWatch, *, folder: str | Path | None = None) -> None:
        self.watch = watch
        self.folder = None if folder is None else Path(folder)
        #: What was seen last.
        self.last: Look | None = None
        self._trainer: Any = None

    def attach(self, trainer: Any) -> None:
        """Add this callback to an existing trainer, and log through it."""
        self._trainer = trainer
        trainer.add_callback(self)

    def on_train_begin(self, *_state: Any, model: Any = None, **_rest: Any) -> None:
        """Better now than after an epoch."""
        self.last = self.watch.look(model)

    def on_evaluate(self, args: Any, state: Any, *_control: Any, **given: Any) -> None:
        """Look, and log."""
        self.last = self.watch.look(given["model"])
        numbers = self.last.numbers("eval_attribution_")
        if given.get("metrics") is not None:
            given["metrics"].update(numbers)
        if not state.is_world_process_zero:
            return
        if self._trainer is not None:
            self._trainer.log(dict(numbers))
        else:
            state.log_history.append({**numbers, "step": state.global_step})
        figure = self.last.figure(f"step {state.global_step}")
        if figure is not None:
            folder = self.folder or Path(args.output_dir) / "attributions"
            folder.mkdir(parents=True, exist_ok=True)
            save(figure, folder / f"step-{state.global_step:07d}.png")
