"""The callback in a real Trainer of Hugging Face; the numbers are those of the watch on the trained network."""

import pytest
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from axiograd.callbacks import AttributionWatch, WatchTrainer
from axiograd.errors import NotHomogeneousError


class Network(nn.Module):
    def __init__(self, bias=False):
        super().__init__()
        torch.manual_seed(0)
        self.inside = nn.Sequential(nn.Flatten(), nn.Linear(16, 2, bias=bias))

    def forward(self, pixel_values, labels=None):
        logits = self.inside(pixel_values)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer(folder, model, callbacks=(), **settings):
    pixels = torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    data = [{"pixel_values": one, "labels": int(one.sum() > 0)} for one in pixels]
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        eval_strategy="epoch",
        save_strategy="no",
        learning_rate=0.1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        **settings,
    )
    return Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data, callbacks=list(callbacks))


def watched():
    x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    masks = torch.zeros(3, 4, 4)
    masks[:, 0] = 1
    return AttributionWatch({"pixel_values": x}, 1, masks=masks)


@pytest.mark.parametrize("attached", [False, True])
def test_every_evaluation_has_the_numbers(tmp_path, attached):
    model, callback = Network(), WatchTrainer(watched())
    run = trainer(tmp_path, model, () if attached else (callback,))
    if attached:
        callback.attach(run)
    run.train()
    logged = [row for row in run.state.log_history if "eval_attribution_share_in_masks" in row]
    assert {row["step"] for row in logged} == {2, 4}
    look = watched().look(model)
    assert logged[-1]["eval_attribution_share_in_masks"] == pytest.approx(look.share)
    assert logged[0]["eval_attribution_share_in_masks"] != pytest.approx(look.share)
    assert run.evaluate()["eval_attribution_share_in_masks"] == pytest.approx(look.share)
    assert [path.name for path in sorted((tmp_path / "attributions").iterdir())] == [
        "step-0000002.png",
        "step-0000004.png",
    ]
    assert model.training is False  # as evaluate leaves it


def test_what_cannot_be_watched_is_refused_before_training(tmp_path):
    run = trainer(tmp_path, Network(bias=True), [WatchTrainer(watched())])
    with pytest.raises(NotHomogeneousError):
        run.train()
    assert run.state.global_step == 0
