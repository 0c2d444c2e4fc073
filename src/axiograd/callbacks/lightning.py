"""A callback for Lightning's Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from axiograd.callbacks.watching import AttributionWatch, Look
from axiograd.errors import ConfigurationError, MissingExtraError
from axiograd.report import save

try:
    from lightning import Callback
except ImportError as error:  # pragma: no cover - an extra
    raise MissingExtraError("lightning", "train", "WatchLightning") from error


class WatchLightning(Callback):
    """Logs share in masks, completeness gap and heat maps of the watched samples after every validation.

    `part` names the attribute of the LightningModule that is the network. Numbers go where `self.log` sends them, so
    that checkpoints and early stopping can go by them; pictures go to loggers that take them (TensorBoard, Weights &
    Biases), and with `folder` to PNG files. A network that is not certified is refused before training begins.
    """

    def __init__(self, watch: AttributionWatch, *, part: str = "model", folder: str | Path | None = None) -> None:
        super().__init__()
        self.watch, self.part = watch, part
        self.folder = None if folder is None else Path(folder)
        #: What was seen last.
        self.last: Look | None = None

    def _look(self, module: Any) -> Look:
        network = getattr(module, self.part, None)
        if not isinstance(network, torch.nn.Module):
            raise ConfigurationError(
                f"part={self.part!r}: {type(module).__name__} has no module of that name; name its network."
            )
        with torch.inference_mode(mode=False):
            self.last = self.watch.look(network)
        return self.last

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's call
        """Better now than after an epoch."""
        self._look(pl_module)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Look, and log."""
        if trainer.sanity_checking:
            return
        look = self._look(pl_module)
        # Every process sees the same samples and the same weights.
        pl_module.log_dict(look.numbers(), rank_zero_only=True, batch_size=1)
        if not trainer.is_global_zero:
            return
        step = trainer.global_step
        pictured = [logger for logger in trainer.loggers if _takes_pictures(logger)]
        if not pictured and self.folder is None:
            return
        figure = look.figure(f"step {step}")
        if figure is None:
            return
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            save(figure, self.folder / f"attributions-{step:07d}.png")
        for logger in pictured:
            if hasattr(logger, "log_image"):
                logger.log_image("attributions", [figure], step=step)
            else:
                logger.experiment.add_figure("attributions", figure, global_step=step)


def _takes_pictures(logger: Any) -> bool:
    return hasattr(logger, "log_image") or hasattr(getattr(logger, "experiment", None), "add_figure")
