"""What a run says when the world goes wrong around it, and what it leaves behind."""

import errno
import os
import signal
import socket
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.attribution import InputXGradient
from axiograd.errors import ConfigurationError, StorageError
from axiograd.priors import L1, Gini
from axiograd.training import AttributionLoss, Recipe, checkpoint, fit
from support.children import processes
from support.training_ranks import killed_rank
from support.training_run import train

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("file", [0, 4])  # of the first checkpoint, and of the second
def test_a_disk_that_is_full_or_broken(tmp_path, monkeypatch, number, file):
    written, write = [], Path.write_bytes

    def failing(path, data):
        if path.parent.name.startswith("tmp-step-"):
            written.append(path)
        if len(written) > file:
            write(path, data[: len(data) // 2])
            raise OSError(number, os.strerror(number))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", failing)
    with pytest.raises(StorageError, match=r"Cannot write .*step-0000000\d") as trouble:
        train(tmp_path)
    assert os.strerror(number) in str(trouble.value)
    assert ("step-00000004 is complete" if file else "Nothing is saved yet") in str(trouble.value)
    assert not list(tmp_path.glob("tmp-*"))
    assert len(checkpoint.steps(tmp_path)) == (file > 0)
    monkeypatch.undo()
    assert train(tmp_path).resumed_step == (4 if file else 0)


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    def never(self, index):
        raise AssertionError

    monkeypatch.setattr("support.training_run.Augmented.__getitem__", never)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="is not a writable folder"):
        train(tmp_path / "file" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_foreign_log_is_refused_and_stays(tmp_path):
    (tmp_path / "metrics.csv").write_text("name,score\nme,1\n")
    with pytest.raises(StorageError, match="is not the log of a run"):
        train(tmp_path)
    assert (tmp_path / "metrics.csv").read_text() == "name,score\nme,1\n"


def test_a_rank_that_is_killed(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [processes().Process(target=killed_rank, args=(r, port, tmp_path)) for r in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=60)
        process.kill()
    assert ranks[1].exitcode == -signal.SIGKILL
    said = (tmp_path / "said").read_text()
    assert said.startswith("ProcessLostError: epoch 1, step 4: another of the 2 processes is gone")
    assert f"Checkpoints in {tmp_path / 'run'} are complete, and the same call resumes from the newest." in said
    assert [path.name for path in checkpoint.steps(tmp_path / "run")] == ["step-00000002"]


def test_modes_come_back_after_an_exception():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)).eval()
    model[2].train()

    def fails(outputs, target):
        raise ValueError

    with pytest.raises(ValueError):
        fit(model, (X, Y), loss=fails, recipe=Recipe(epochs=1), accelerator="cpu", progress=False)
    assert [module.training for module in model] == [False, False, True, False]
    assert not model.training


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((F.cross_entropy, L1), r"prior is the class L1; pass an instance, L1\(\.\.\.\)"),
        (
            (F.cross_entropy, "l1"),
            r"prior must be a Prior object such as axiograd\.priors\.L1\(\), got the string 'l1'",
        ),
        ((F.cross_entropy, "right_reasons"), r"axiograd\.priors\.RightReasons\(\)"),
        ((F.cross_entropy, None), "prior is None, which cannot be called"),
        ((nn.CrossEntropyLoss, L1()), "task_loss is the class CrossEntropyLoss"),
        (("cross_entropy", L1()), "task_loss is 'cross_entropy', which cannot be called"),
    ],
)
def test_parts_of_a_loss_that_are_not_what_they_should_be(parts, said):
    with pytest.raises(ConfigurationError, match=said):
        AttributionLoss(*parts)


@pytest.mark.parametrize("prior", [None, L1(), L1() + 0.3 * Gini()])
@pytest.mark.parametrize("n", [24, 21])
def test_accumulated_gradients_are_those_of_the_batch(prior, n):
    """Exactly so but for priors on the batch mean, which see a part at a time: the oracle is a loop by hand."""
    recipe = Recipe(lr=0.1, epochs=2, batch_size=8, momentum=0.0, weight_decay=0.0, schedule="constant")
    found = []
    for parts in (1, 3):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).double()
        loss = F.cross_entropy if prior is None else AttributionLoss(F.cross_entropy, prior, 0.1, InputXGradient)
        settings = {"recipe": recipe.replace(accumulate=parts), "accelerator": "cpu", "progress": False}
        result = fit(model, (X[:n].double(), Y[:n]), loss=loss, **settings)
        assert result.steps == 6
        if prior is not None:
            assert loss.step == 6  # a schedule counts steps of the optimizer
        found.append((model, result.history))
    exact = prior is None or prior.per_sample
    for one, other in zip(found[0][0].parameters(), found[1][0].parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12) == exact
    if exact:
        rows = [[row["total"] for row in history] for _, history in found]
        assert rows[0] == pytest.approx(rows[1], abs=1e-12)


def test_ctrl_c_without_a_folder_is_ctrl_c():
    def interrupted(outputs, target):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        raise AssertionError

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(nn.Linear(4, 2), (X, Y), loss=interrupted, recipe=Recipe(epochs=1), accelerator="cpu", progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
