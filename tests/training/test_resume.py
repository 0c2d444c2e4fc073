"""A run that is killed and goes on ends with the same bits as one that was never killed."""

import multiprocessing
import random
import signal
import sys
import time

import pytest
import torch

from axiograd.errors import StorageError
from axiograd.training import Recipe, checkpoint
from support.training_run import PRELOAD, die_while_writing, train, train_in_child


@pytest.fixture(scope="module")
def processes():
    """Processes that start quickly, because the imports are done once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    out = tmp_path_factory.mktemp("unbroken")
    result = train(out)
    return result, (out / "model.safetensors").read_bytes(), checkpoint.latest(out)


def assert_same(out, result, unbroken):
    expected, weights, last = unbroken
    assert (out / "model.safetensors").read_bytes() == weights
    now = checkpoint.latest(out)
    for name, tensors in last.tensors.items():
        assert tensors.keys() == now.tensors[name].keys()
        assert all(torch.equal(tensor, now.tensors[name][key]) for key, tensor in tensors.items())
    assert result.history == expected.history
    assert result.best == expected.best


def test_sigkill_at_random_moments(processes, unbroken, tmp_path):
    moments, out, steps = random.Random(0), tmp_path / "run", set()
    for attempt in range(5):
        started = tmp_path / f"started-{attempt}"
        process = processes.Process(target=train_in_child, args=(out, 0.03, started))
        process.start()
        wait_until(started.exists, process)
        process.join(timeout=0.7 * moments.random())
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        steps |= {path.name for path in checkpoint.steps(out)}
    assert steps
    assert_same(out, train(out), unbroken)


@pytest.mark.parametrize(("file_number", "share"), [(3, 0.5), (4, 1.0), (5, 0.3), (7, 0.0), (8, 0.9)])
def test_sigkill_while_a_checkpoint_is_written(processes, unbroken, tmp_path, file_number, share):
    process = processes.Process(target=die_while_writing, args=(tmp_path, file_number, share))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-00000004"] * (file_number > 4)
    assert_same(tmp_path, train(tmp_path), unbroken)
    assert not list(tmp_path.glob("tmp-*"))


def test_sigterm_finishes_the_step_saves_and_leaves(processes, unbroken, tmp_path):
    process = processes.Process(target=train_in_child, args=(tmp_path, 0.05, tmp_path / "started"))
    process.start()
    wait_until(lambda: checkpoint.steps(tmp_path), process)
    time.sleep(0.12)
    process.terminate()
    process.join()
    assert process.exitcode == 128 + signal.SIGTERM
    assert checkpoint.latest(tmp_path).step > 4
    assert_same(tmp_path, train(tmp_path), unbroken)


@pytest.mark.parametrize("damaged_file", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(unbroken, tmp_path, damaged_file, damage):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, collate=_interrupting(after=26))
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


def test_other_settings_are_refused(tmp_path):
    train(tmp_path, epochs=1)
    with pytest.raises(StorageError, match=r"recipe\.lr was 0\.05 and is 0\.2"):
        train(tmp_path, recipe=Recipe(lr=0.2, epochs=1, batch_size=8, schedule="cosine"))
    with pytest.raises(StorageError, match="already holds a run"):
        train(tmp_path, epochs=1, resume=False)


def test_a_finished_run_is_not_trained_again(unbroken, tmp_path):
    train(tmp_path)
    again = train(tmp_path)
    assert again.resumed_step == again.steps == 24
    assert_same(tmp_path, again, unbroken)


def test_workers_and_optimizer_resume(tmp_path):
    unbroken = train(tmp_path / "a", optimizer="adam", epochs=2)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "b", optimizer="adam", epochs=2, collate=_interrupting(after=5))
    resumed = train(tmp_path / "b", optimizer="adam", epochs=2, num_workers=1)
    assert resumed.resumed_step == 4
    assert resumed.history == unbroken.history
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_nothing_on_disk_is_pickled(tmp_path):
    train(tmp_path, epochs=1)
    kinds = {path.suffix for path in tmp_path.rglob("*") if path.is_file() and "tensorboard" not in path.parts}
    assert kinds == {".safetensors", ".json", ".csv"}
    assert sys.modules["axiograd.training.checkpoint"].__dict__.keys().isdisjoint({"pickle", "torch"})


def wait_until(condition, process):
    deadline = time.monotonic() + 30
    while not condition():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _interrupting(after):
    """Collate as usual, and be interrupted at one batch."""
    calls = 0

    def collate(items):
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        return torch.utils.data.default_collate(items)

    return collate
