"""The LightningModule that `fit` trains: an objective's total, mixup, validation, and the history of the epochs."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

from axiograd._io import replacing, require_same_settings, settings_of, writing
from axiograd.errors import ConfigurationError, NotFiniteError
from axiograd.training.connected import refuse_what_loses_gradients
from axiograd.training.data import SAMPLE_WEIGHT, Batch, loader, seed_epoch
from axiograd.training.loss import AttributionLoss
from axiograd.training.objective import Objective, TaskLoss, call_model, each_loss, weighted
from axiograd.training.recipe import Recipe

Metric = Literal["loss", "accuracy"] | Callable[[Tensor, Tensor], float]

#: Samples that an error names.
_FEW = 10


class TrainingModule(LightningModule):
    """A model, what it minimises, and the data; the order and all random numbers of an epoch follow from (seed, epoch).

    So the seed and the number of the epoch in a checkpoint say how a run continues.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        recipe: Recipe,
        data: Any,
        *,
        validation: Any = None,
        metric: Metric = "loss",
        seed: int = 0,
        num_workers: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.objective, self.recipe = model, objective.train(), recipe
        self.data, self.validation, self.metric = data, validation, metric
        self.seed, self.num_workers, self.collate = seed, num_workers, collate
        self.settings = {
            "seed": seed,
            "samples": len(data),
            # Without the step, which is where the loss is and not what it is.
            "loss": {name: value for name, value in settings_of(objective).items() if name != "step"},
            "recipe": {name: value for name, value in asdict(recipe).items() if name != "epochs"},
        }
        self.history: list[dict[str, float]] = []
        self.resumed_step = 0
        self._judged: list[tuple[Tensor, Tensor, Tensor | None]] = []
        #: Of the last validation.
        self.score: float | None = None

    # Data and optimizer

    def train_dataloader(self) -> DataLoader[Batch]:
        """This rank's part of the samples, in another order in every epoch."""
        batches = self._loader(self.data, shuffle=True)
        # Lightning starts the workers of a resumed run before it counts the last epoch as completed.
        progress: Any = self.trainer.fit_loop.epoch_progress.current
        self._begin(batches, progress.processed)
        return batches

    def val_dataloader(self) -> DataLoader[Batch]:
        """This rank's part of the samples to validate with."""
        return self._loader(self.validation, shuffle=False)

    def _loader(self, data: Any, *, shuffle: bool) -> DataLoader[Batch]:
        return loader(
            data,
            self.recipe.batch_size,
            shuffle=shuffle,
            seed=self.seed,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
            num_workers=self.num_workers,
            collate=self.collate,
            pin_memory=self.trainer.strategy.root_device.type == "cuda",
        )

    def configure_optimizers(self) -> Any:
        """The recipe's optimizer, and its learning rate after each step."""
        optimizer = self.recipe.build_optimizer(self.model.named_parameters())
        # Lightning's estimate would start the workers of the first epoch, before it is known which one that is.
        batches = math.ceil(len(self.data) / self.recipe.batch_size)
        steps = math.ceil(batches / self.trainer.accumulate_grad_batches)
        rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.recipe.lr_factor(step / steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}

    # Training

    def on_train_start(self) -> None:
        """Refuse a strategy that would lose the gradients of a prior."""
        if not isinstance(self.objective, TaskLoss):
            refuse_what_loses_gradients(self.trainer.strategy.model)

    def on_train_epoch_start(self) -> None:
        """Begin the epoch with random numbers of its own, whatever came before it."""
        seed_epoch(self.seed, self.current_epoch, self.global_rank)
        self._begin(self.trainer.train_dataloader, self.current_epoch)

    def _begin(self, batches: Any, epoch: int) -> None:
        batches.sampler.set_epoch(epoch)
        batches.generator.manual_seed(self.seed + epoch)
        if hasattr(self.data, "set_epoch"):
            self.data.set_epoch(epoch)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:  # noqa: ARG002 - Lightning's signature
        """The total of one batch."""
        inputs, arguments = batch.inputs, dict(batch.arguments)
        task_loss = weighted(self.objective.task_loss, arguments.pop(SAMPLE_WEIGHT, None))
        if self.recipe.mixup:
            inputs, task_loss, target = mixup(batch, task_loss, self.recipe.mixup)
            if isinstance(self.objective, AttributionLoss) and self.objective.outputs == "target":
                arguments["attribution_target"] = target
        try:
            with _minimising(self.objective, task_loss):
                terms = self.objective(self.model, inputs, batch.target, **arguments)
        except NotFiniteError as error:
            raise self._not_finite(batch, str(error)) from error
        values = {name: value.detach() for name, value in vars(terms).items() if _is_scalar(value)}
        if not bool(values["total"].isfinite()):
            found = [getattr(terms, name, None) for name in ("outputs", "attributions")]
            with torch.no_grad(), suppress(ConfigurationError, RuntimeError):  # a loss of the whole batch
                found.append(each_loss(task_loss, terms.outputs, batch.target))
            named = ", ".join(f"{name} = {float(value)}" for name, value in values.items() if not value.isfinite())
            raise self._not_finite(batch, named, *found)
        self.log_dict(values, on_step=True, on_epoch=True, prog_bar=True, sync_dist=True, batch_size=len(batch.indices))
        total: Tensor = terms.total
        return total

    def _not_finite(self, batch: Batch, what: str, *found: Any) -> NotFiniteError:
        """An error that names the samples with a value that is not finite; all of the batch if there is none."""
        wrong = torch.zeros(len(batch.indices), dtype=torch.bool)
        for tensor in tree_leaves((batch.inputs, batch.target, batch.arguments, found)):
            if isinstance(tensor, Tensor) and tensor.ndim and len(tensor) == len(wrong):
                wrong |= (~tensor.detach().isfinite()).reshape(len(wrong), -1).any(1).cpu()
        chosen = [index for index, bad in zip(batch.indices, wrong.tolist(), strict=True) if bad] or batch.indices
        samples = ", ".join(map(str, sorted(chosen)[:_FEW])) + (" …" if len(chosen) > _FEW else "")
        return NotFiniteError(
            f"epoch {self.current_epoch + 1}, step {self.global_step + 1}, sample {samples} of the data set: {what}. "
            "The weights were not updated; look at these samples, or use a smaller learning rate, gradient clipping, "
            "or a higher precision."
        )

    def on_train_epoch_end(self) -> None:
        """Write down the means of the terms, and the score."""
        row: dict[str, float] = {"step": self.global_step, "epoch": self.current_epoch + 1}
        for name, value in self.trainer.callback_metrics.items():
            if name.endswith("_epoch"):
                row[name.removesuffix("_epoch")] = float(value)
        if self.score is not None:
            row["validation"] = self.score
        self.history.append(row)

    # Validation

    def on_validation_epoch_start(self) -> None:
        """Forget the samples of the last validation."""
        self._judged = []

    def validation_step(self, batch: Batch, batch_idx: int) -> None:  # noqa: ARG002 - Lightning's signature
        """Keep the outputs of one batch."""
        target = self.objective.validation_target(batch.inputs, batch.target)
        outputs = call_model(self.model, batch.inputs)
        self._judged.append((outputs, torch.as_tensor(target), batch.arguments.get(SAMPLE_WEIGHT)))

    def on_validation_epoch_end(self) -> None:
        """Judge all outputs together."""
        outputs, targets, weights = (
            None if parts[0] is None else self._gathered(torch.cat(parts)) for parts in zip(*self._judged, strict=True)
        )
        assert outputs is not None and targets is not None  # noqa: S101, PT018 - only weights may be missing
        self._judged = []
        self.score = score(self.metric, self.objective.task_loss, outputs, targets, weights)
        self.log("validation", self.score, sync_dist=True)

    def _gathered(self, mine: Tensor) -> Tensor:
        """Rank r of R has the samples r, r + R, …; all of them, in the data set's order."""
        if self.trainer.world_size > 1:
            everywhere: Any = self.all_gather(mine)
            mine = everywhere.transpose(0, 1).flatten(0, 1)[: len(self.validation)]
        return mine.cpu()

    # Checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Beside weights, optimizer and the objective's own state: the history, and the settings that led there."""
        checkpoint["axiograd"] = {"history": self.history, "settings": self.settings}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Continue there, if it was written with these settings."""
        advice = "Use the old settings, or choose another folder."
        require_same_settings(Path("The last checkpoint"), checkpoint["axiograd"]["settings"], self.settings, advice)
        self.history = list(checkpoint["axiograd"]["history"])
        self.resumed_step = checkpoint["global_step"]


class Interrupted(Callback):
    """Ctrl-C or an error leaves a checkpoint of that moment; from Lightning's own, the next run would resume."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Lightning calls it."""
        trainer.save_checkpoint(self.path)


class AtomicCheckpoints(TorchCheckpointIO):
    """Checkpoints written beside their place and renamed; Lightning moves them from /tmp, which may be a copy."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:  # noqa: ARG002
        """Write one file."""
        with writing(Path(path)), replacing(Path(path)) as building:
            torch.save(checkpoint, building)


@contextmanager
def _minimising(objective: Objective, task_loss: Callable[..., Tensor]) -> Iterator[None]:
    """The objective with the task loss of one batch, whose samples are weighted or mixed."""
    attributes = vars(objective)  # `setattr` would refuse a function where the loss is a module
    before = attributes.get("task_loss")
    attributes["task_loss"] = task_loss
    try:
        yield
    finally:
        del attributes["task_loss"]
        if before is not None:
            attributes["task_loss"] = before


def mixup(
    batch: Batch, task_loss: Callable[..., Tensor], alpha: float
) -> tuple[Any, Callable[..., Tensor], Callable[[Tensor], Tensor] | None]:
    """x ← m·x + (1 − m)·x′ with m ~ Beta(α, α) and x′ another sample of the batch.

    With it come the task loss m·L(F, y) + (1 − m)·L(F, y′) and, for classes, the mixture m·F_y + (1 − m)·F_y′ that is
    attributed. Zhang, Cisse, Dauphin, Lopez-Paz: mixup, beyond empirical risk minimization, 2018.

    >>> batch = Batch(torch.eye(2), torch.tensor([0, 1]), {}, [0, 1])
    >>> inputs, _, _ = mixup(batch, nn.functional.cross_entropy, 0.7)
    >>> torch.allclose(inputs.sum(1), torch.ones(2))
    True
    """
    if batch.arguments:
        raise ConfigurationError(
            f"mixup and arguments of samples ({', '.join(batch.arguments)}) do not go together: "
            "a mask or box belongs to one image, not to a mixture of two; set mixup = 0."
        )
    first = batch.target
    m = float(torch.distributions.Beta(alpha, alpha).sample())
    other = torch.randperm(len(first)).to(first.device)
    second = first[other]

    def loss(outputs: Any, target: Any) -> Tensor:
        del target  # the first of the two
        return m * task_loss(outputs, first) + (1 - m) * task_loss(outputs, second)

    def mixed_class(outputs: Tensor) -> Tensor:
        if outputs.numel() == len(outputs):  # one output: the mixture of it with itself
            return outputs.flatten()
        chosen = [outputs.gather(1, classes[:, None])[:, 0] for classes in (first, second)]
        return m * chosen[0] + (1 - m) * chosen[1]

    return _mixed(batch.inputs, other, m), loss, None if first.is_floating_point() else mixed_class


def _mixed(inputs: Any, other: Tensor, m: float) -> Any:
    if isinstance(inputs, Tensor):
        return m * inputs + (1 - m) * inputs[other]
    if isinstance(inputs, Mapping):
        return {name: _mixed(value, other, m) for name, value in inputs.items()}
    return tuple(_mixed(value, other, m) for value in inputs)


def score(
    metric: Metric,
    task_loss: Callable[..., Tensor],
    outputs: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
) -> float:
    """The metric as a number of which more is better (so the loss comes negated); a mean that samples' weights enter.

    >>> outputs, targets = torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0])
    >>> score("accuracy", nn.functional.cross_entropy, outputs, targets)
    0.5
    >>> score("accuracy", nn.functional.cross_entropy, outputs, targets, torch.tensor([3.0, 1.0]))
    0.75
    """
    if weights is not None:
        if not weights.sum() > 0:
            raise ConfigurationError("the weights of all validation samples are zero: none of them counts.")
        weights = weights.double() / weights.double().mean()
    if callable(metric):
        return float(metric(outputs, targets))
    if metric == "loss":
        return -float(weighted(task_loss, weights)(outputs, targets))
    if metric != "accuracy":
        raise ConfigurationError(f"metric is {metric!r}; it must be 'loss', 'accuracy' or a callable.")
    right = _is_right(outputs, targets).double()
    return float((right if weights is None else right * weights).mean())


def _is_right(outputs: Tensor, targets: Tensor) -> Tensor:
    n = len(outputs)
    if outputs.numel() == targets.numel() == n:  # one logit, and whether it is the class
        return (outputs.flatten() > 0) == (targets.flatten() > 0.5)  # noqa: PLR2004 (targets are 0 and 1)
    if targets.shape == outputs.shape and targets.is_floating_point():  # a teacher's outputs: agreement
        targets = targets.argmax(1)
    if targets.is_floating_point() or targets.shape != (n,):
        raise ConfigurationError(
            f"accuracy needs one class index per sample, not {targets.dtype} of shape {tuple(targets.shape)}; "
            "give a callable (outputs, targets) -> float."
        )
    return outputs.argmax(1) == targets


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0
