"""The callback in a real Trainer of Lightning, with what its logger has written as the oracle."""

import csv
from pathlib import Path

import lightning
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from axiograd.callbacks import AttributionWatch, WatchLightning
from axiograd.errors import ConfigurationError, NotHomogeneousError


class Module(lightning.LightningModule):
    def __init__(self, bias=False):
        super().__init__()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2, bias=bias))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.model(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class PictureLogger(CSVLogger):
    """Takes pictures as that of Weights & Biases does."""

    def log_image(self, key, images, step):
        images[0].savefig(Path(self.log_dir) / f"{key}-{step}.png")


def fit(module, callback, logger=False):
    x = torch.randn(16, 1, 4, 4)
    loader = DataLoader(TensorDataset(x, (x.sum((1, 2, 3)) > 0).long()), batch_size=8)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=logger,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    trainer.fit(module, loader, loader)
    return trainer


def test_numbers_and_pictures_reach_the_logger(tmp_path):
    torch.manual_seed(0)
    watch = AttributionWatch(torch.randn(3, 1, 4, 4), 1, masks=torch.ones(3, 4, 4))
    callback = WatchLightning(watch, folder=tmp_path / "png")
    trainer = fit(Module(), callback, PictureLogger(tmp_path, name="run"))
    assert trainer.callback_metrics["attribution_share_in_masks"] == pytest.approx(1)
    assert callback.last.gap == pytest.approx(float(trainer.callback_metrics["attribution_completeness_gap"]))
    assert [path.name for path in sorted((tmp_path / "png").iterdir())] == [
        "attributions-0000002.png",
        "attributions-0000004.png",
    ]
    logged = Path(trainer.logger.log_dir)
    assert {path.name for path in logged.glob("*.png")} == {"attributions-2.png", "attributions-4.png"}
    with (logged / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["attribution_completeness_gap"]]
    assert len(rows) == 2


def test_what_cannot_be_watched_is_refused_before_training():
    watch = AttributionWatch(torch.randn(3, 1, 4, 4), 1)
    with pytest.raises(NotHomogeneousError):
        fit(Module(bias=True), WatchLightning(watch))
    with pytest.raises(ConfigurationError, match="part='network'"):
        fit(Module(), WatchLightning(watch, part="network"))
