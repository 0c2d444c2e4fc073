"""A run that is killed and goes on ends with the same bits as one that was never killed."""

import contextlib
import os
import random
import signal
import time

import pytest
import torch

from axiograd._io import load_tensors
from axiograd.errors import StorageError
from axiograd.training import checkpoint, loop
from support import children
from support.training_run import die_while_writing, train, train_in_child


@pytest.fixture(scope="module")
def processes():
    return children.processes()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    out = tmp_path_factory.mktemp("unbroken")
    result = train(out)
    return result, files(out), checkpoint.latest(out)


def files(out):
    return [(out / name).read_bytes() for name in ("model.safetensors", "metrics.csv")]


def assert_same(out, result, unbroken):
    expected, written, last = unbroken
    assert files(out) == written
    now = checkpoint.latest(out)
    for name, tensors in last.tensors.items():
        assert tensors.keys() == now.tensors[name].keys()
        assert all(torch.equal(tensor, now.tensors[name][key]) for key, tensor in tensors.items())
    assert result.history == expected.history
    assert result.best == expected.best


@pytest.mark.parametrize("trial", [0, *(pytest.param(i, marks=pytest.mark.long) for i in range(1, 25))])
def test_sigkill_at_random_moments(processes, unbroken, tmp_path, trial):
    moments, out, log = random.Random(trial), tmp_path / "run", tmp_path / "run" / "metrics.csv"
    for attempt in range(2):
        process = processes.Process(target=train_in_child, args=(out, 0.01, tmp_path / f"started-{attempt}"))
        process.start()
        # By what is written and not by the clock, which a busy machine does not follow.
        wanted = log.stat().st_size + moments.randrange(700) if log.exists() else moments.randrange(700)
        wait_until(lambda size=wanted: log.exists() and log.stat().st_size >= size, process, may_end=True)
        time.sleep(0.02 * moments.random())
        process.kill()
        process.join()
    assert_same(out, train(out), unbroken)
    assert not list(out.glob("tmp-*"))


@pytest.mark.parametrize(("file_number", "share"), [(3, 0.5), (4, 1.0), (5, 0.3), (7, 0.0), (8, 0.9)])
def test_sigkill_while_a_checkpoint_is_written(processes, unbroken, tmp_path, file_number, share):
    process = processes.Process(target=die_while_writing, args=(tmp_path, file_number, share))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-00000004"] * (file_number > 4)
    assert_same(tmp_path, train(tmp_path), unbroken)
    assert not list(tmp_path.glob("tmp-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_and_ctrl_c_finish_the_step_save_and_leave(processes, unbroken, tmp_path, number):
    process = processes.Process(target=train_in_child, args=(tmp_path, 0.05, tmp_path / "started", tmp_path / "said"))
    process.start()
    wait_until(lambda: checkpoint.steps(tmp_path), process)
    os.kill(process.pid, number)
    process.join()
    said = (tmp_path / "said").read_text()
    step = checkpoint.latest(tmp_path).step
    assert process.exitcode == 128 + number
    assert f"{number.name}: stopped after step {step} of epoch {step // 6 + 1}, saved in {tmp_path}" in said
    assert "the same call resumes there" in said
    assert_same(tmp_path, train(tmp_path), unbroken)


def test_something_is_saved_before_the_first_epoch_ends(monkeypatch, tmp_path):
    monkeypatch.setattr(loop, "_FIRST_SAVE", 0.0)
    with interrupted(after=2), pytest.raises(KeyboardInterrupt):
        train(tmp_path, checkpoint_steps=None)
    assert checkpoint.latest(tmp_path).step == 1  # and the next in ten minutes


@pytest.mark.parametrize("damaged_file", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(unbroken, tmp_path, damaged_file, damage):
    with interrupted(after=13), pytest.raises(KeyboardInterrupt):
        train(tmp_path)
    before, last = checkpoint.steps(tmp_path)[-2:]
    assert (before.name, last.name) == ("step-00000008", "step-00000012")
    path = last / damaged_file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    {
        "truncated": lambda: path.write_bytes(data[: len(data) // 2]),
        "flipped": lambda: path.write_bytes(data),
        "missing": path.unlink,
    }[damage]()
    with pytest.warns(UserWarning, match=rf"{last.name}.*set aside as damaged-{last.name}"):
        result = train(tmp_path)
    assert result.resumed_step == 8
    assert_same(tmp_path, result, unbroken)


def test_a_damaged_best_checkpoint_that_is_not_the_newest(tmp_path):
    with interrupted(after=19), pytest.raises(KeyboardInterrupt):
        train(tmp_path, metric=Scores([0.4, 0.9, 0.5]))  # the best is of epoch 2; of the newest, 18 ends an epoch
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-00000012", "step-00000016", "step-00000018"]
    (tmp_path / "step-00000012" / "model.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"The weights of epoch 2 \(validation 0.9\) are lost"):
        result = train(tmp_path, metric=Scores([0.6]))
    assert result.steps == 24
    assert result.best == {"step": 24, "epoch": 4, "validation": 0.6}
    assert (tmp_path / "damaged-step-00000012").exists()


def test_a_finished_run_keeps_its_weights_when_the_best_checkpoint_is_damaged(tmp_path):
    first = train(tmp_path, metric=Scores([0.4, 0.9, 0.5, 0.6]))
    before = files(tmp_path)
    (tmp_path / "step-00000012" / "model.safetensors").write_bytes(b"")
    again = train(tmp_path, metric=Scores([]))
    assert again.best == first.best == {"step": 12, "epoch": 2, "validation": 0.9}
    assert files(tmp_path) == before
    # Without that file, the best of what is left.
    (tmp_path / "model.safetensors").unlink()
    with pytest.warns(UserWarning, match=r"The weights of epoch 2 \(validation 0.9\) are lost"):
        train(tmp_path, metric=Scores([]))
    weights = checkpoint.read(checkpoint.folder(tmp_path, 24)).tensors["model"]
    assert all(
        torch.equal(weights[name], value) for name, value in load_tensors(tmp_path / "model.safetensors").items()
    )


def test_two_runs_in_one_folder(processes, unbroken, tmp_path):
    process = processes.Process(target=train_in_child, args=(tmp_path, 0.05, tmp_path / "started"))
    process.start()
    wait_until((tmp_path / "metrics.csv").exists, process)
    with pytest.raises(StorageError, match="Another process is writing into"):
        train(tmp_path)
    process.kill()
    process.join()
    assert_same(tmp_path, train(tmp_path), unbroken)  # the dead one does not hold on to the folder


def test_a_finished_run_is_not_trained_again(unbroken, tmp_path):
    train(tmp_path)
    again = train(tmp_path)
    assert again.resumed_step == again.steps == 24
    assert_same(tmp_path, again, unbroken)


def test_workers_and_optimizer_resume(tmp_path):
    unbroken = train(tmp_path / "a", optimizer="adam", epochs=2)
    with interrupted(after=5), pytest.raises(KeyboardInterrupt):
        train(tmp_path / "b", optimizer="adam", epochs=2)
    resumed = train(tmp_path / "b", optimizer="adam", epochs=2, num_workers=1)
    assert resumed.resumed_step == 4
    assert resumed.history == unbroken.history
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_nothing_on_disk_is_pickled(tmp_path):
    train(tmp_path, epochs=1)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and "tensorboard" not in path.parts]
    kinds = {path.suffix for path in written if path.name != ".lock"}
    assert kinds == {".safetensors", ".json", ".csv"}


class Scores:
    """A metric that was decided before."""

    def __init__(self, values):
        self._values = iter(values)

    def __call__(self, outputs, targets):
        return next(self._values)


def wait_until(condition, process, *, may_end=False):
    deadline = time.monotonic() + 60
    while not condition():
        if may_end and not process.is_alive():
            return
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextlib.contextmanager
def interrupted(after):
    """Within it a run is interrupted before the step after so many."""
    update, steps = loop.Run._update, 0

    def counting(self, *arguments):
        nonlocal steps
        steps += 1
        if after is not None and steps > after:
            raise KeyboardInterrupt
        return update(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Run, "_update", counting)
        yield
