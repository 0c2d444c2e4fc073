"""A run that is killed and resumed ends with the same bits as one that was never killed."""

import os
import pickle
import signal
import time

import pytest
import torch

from axiograd._io import load_tensors
from axiograd.errors import StorageError
from axiograd.training import Recipe
from support import children
from support.training_run import die_while_writing, make_model, train, train_in_child


@pytest.fixture(scope="module")
def processes():
    return children.processes()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    out = tmp_path_factory.mktemp("unbroken")
    return train(out), load_tensors(out / "model.safetensors"), checkpoint(out)


def checkpoint(out):
    return torch.load(out / "last.ckpt", weights_only=True)


def assert_same(out, result, unbroken):
    expected, weights, last = unbroken
    assert result.history == expected.history
    assert result.best == expected.best
    assert result.steps == expected.steps == 24
    found = load_tensors(out / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in weights.items())
    now = checkpoint(out)
    assert now["optimizer_states"][0]["state"].keys() == last["optimizer_states"][0]["state"].keys()
    for place, state in last["optimizer_states"][0]["state"].items():
        for name, value in state.items():
            assert torch.equal(now["optimizer_states"][0]["state"][place][name], value)
    assert torch.equal(now["state_dict"]["objective._extra_state"], last["state_dict"]["objective._extra_state"])


def wait_until(condition, process):
    for _ in range(6000):
        if condition() or not process.is_alive():
            break
        time.sleep(0.01)
    assert condition()


def test_sigkill_in_the_middle_of_an_epoch(processes, unbroken, tmp_path):
    for _ in range(2):
        before = (tmp_path / "last.ckpt").stat().st_mtime_ns if (tmp_path / "last.ckpt").exists() else 0
        process = processes.Process(target=train_in_child, args=(tmp_path, 0.03))
        process.start()
        wait_until(
            lambda before=before: (
                (tmp_path / "last.ckpt").exists() and (tmp_path / "last.ckpt").stat().st_mtime_ns > before
            ),
            process,
        )
        time.sleep(0.05)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    result = train(tmp_path)
    assert result.resumed_step in {12, 18}
    assert_same(tmp_path, result, unbroken)


@pytest.mark.parametrize("number", [1, 2, 4])  # a best and a last checkpoint in each epoch that is better
def test_sigkill_while_a_checkpoint_is_written(processes, unbroken, tmp_path, number):
    process = processes.Process(target=die_while_writing, args=(tmp_path, number))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert_same(tmp_path, train(tmp_path), unbroken)


def test_ctrl_c_leaves_a_checkpoint(processes, unbroken, tmp_path):
    process = processes.Process(target=train_in_child, args=(tmp_path, 0.05))
    process.start()
    wait_until((tmp_path / "last.ckpt").exists, process)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 128 + signal.SIGINT
    interrupted = torch.load(tmp_path / "interrupted.ckpt", weights_only=True)
    assert interrupted["global_step"] > checkpoint(tmp_path)["global_step"] - 1
    assert make_model().state_dict().keys() <= {name.removeprefix("model.") for name in interrupted["state_dict"]}
    assert_same(tmp_path, train(tmp_path), unbroken)


def test_ctrl_c_is_ctrl_c_and_works_again_afterwards(tmp_path):
    def interrupted(outputs, target):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        raise AssertionError

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, metric=interrupted)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_fewer_epochs_and_then_more(unbroken, tmp_path):
    """The learning rate is constant: under a cosine another number of epochs is another training."""
    recipe = {"optimizer": "adam", "lr": 0.05, "batch_size": 8, "schedule": "constant", "weight_decay": 0.0}
    whole = train(tmp_path / "whole", recipe=Recipe(epochs=4, **recipe), num_workers=1)
    train(tmp_path / "parts", recipe=Recipe(epochs=2, **recipe), num_workers=1)
    parts = train(tmp_path / "parts", recipe=Recipe(epochs=4, **recipe), num_workers=1)
    assert parts.resumed_step == 12
    assert parts.history == whole.history


def test_a_finished_run_is_finished(unbroken, tmp_path):
    first = train(tmp_path, epochs=1)
    again = train(tmp_path, epochs=1)
    assert (again.resumed_step, again.steps, again.history) == (6, 6, first.history)


def test_validation_may_come_late(tmp_path):
    train(tmp_path, epochs=1, validation=None)
    assert train(tmp_path, epochs=1).best is None
    assert train(tmp_path, epochs=2).best["epoch"] == 2


def test_other_settings_are_refused(tmp_path):
    train(tmp_path, epochs=1)
    with pytest.raises(StorageError, match=r"different settings: seed \(there: 11, here: 12\)"):
        train(tmp_path, epochs=1, seed=12)
    with pytest.raises(StorageError, match=r"recipe\.lr \(there: 0\.05, here: 0\.01\)"):
        train(tmp_path, recipe=Recipe(optimizer="adam", epochs=1, batch_size=8, schedule="cosine", weight_decay=0.0))


def test_nothing_in_a_checkpoint_is_executed(tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    tmp_path.joinpath("last.ckpt").write_bytes(pickle.dumps(Payload(), 2))
    with pytest.raises(pickle.UnpicklingError):
        train(tmp_path, epochs=1)
    assert not (tmp_path / "executed").exists()
