"""What of a stored run survives a kill, an interruption or damage, and which folders are refused."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import axiograd
from axiograd import AttributionDataset
from axiograd.attribution import dataset
from axiograd.errors import StorageError
from support.stored import BATCH, Counting, N, network, run, samples, shards


@pytest.fixture
def data():
    return samples()


@pytest.fixture
def loader(data):
    return DataLoader(data, batch_size=BATCH)


@pytest.fixture
def model():
    return network()


class Stream(IterableDataset):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(self.data)


class Reads(TensorDataset):
    """Notes which samples were loaded."""

    def __init__(self, *tensors):
        super().__init__(*tensors)
        self.read = []

    def __getitem__(self, i):
        self.read.append(i)
        return super().__getitem__(i)


@pytest.mark.parametrize("kind", ["loader", "stream", "list"])
def test_an_interrupted_run_goes_on_where_it_was(kind, model, data, tmp_path):
    samples = Reads(*data.tensors)
    make = {
        "loader": lambda: DataLoader(samples, batch_size=BATCH),
        "stream": lambda: DataLoader(Stream(data), batch_size=BATCH),
        "list": lambda: list(DataLoader(data, batch_size=BATCH)),
    }[kind]
    with pytest.raises(KeyboardInterrupt):
        run(Counting(model, stop_at=5), make(), tmp_path)
    assert len(AttributionDataset(tmp_path)) == 4 * BATCH
    assert not AttributionDataset(tmp_path).complete
    before = {p: p.stat().st_mtime_ns for p in shards(tmp_path)}
    samples.read.clear()
    method = Counting(model)
    stored = run(method, make(), tmp_path)
    assert method._batches == 2
    assert {p: p.stat().st_mtime_ns for p in before} == before
    torch.testing.assert_close(stored[:]["attributions"], axiograd.InputXGradient(model).attribute(*data.tensors))
    again = Counting(model)
    assert run(again, make(), tmp_path).complete
    assert again._batches == 0


CHILD = """
import os, sys, time, torch
import axiograd

class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.inner = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    def forward(self, x):
        time.sleep(float(os.environ.get("SLEEP", "0")))  # how long it takes is no part of what the run is
        return self.inner(x)

def run(folder):
    x, y = torch.randn(22, 5, generator=torch.Generator().manual_seed(0)), torch.arange(22) % 3
    references = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    method = axiograd.ExpectedGradients(Slow(), references, 3, generator=torch.Generator().manual_seed(4))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=2)
    return axiograd.attribute_dataset(method, loader, out=folder, shard_bytes=100, progress=False)

if __name__ == "__main__":
    # A good place to look: this process has imported nothing but axiograd.
    print({"captum", "quantus", "safetensors", "rich", "lightning"} & set(sys.modules), flush=True)
    run(sys.argv[1])
"""


def test_kill_9_loses_no_finished_shard_and_a_resumed_random_run_equals_an_uninterrupted_one(tmp_path):
    folder = tmp_path / "broken"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"SLEEP": "0.15"},
    )
    deadline = time.monotonic() + 100
    while len(shards(folder)) < 3:
        assert child.poll() is None, child.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    out, _ = child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert out.strip() == "set()"  # importing axiograd imports no extra
    (folder / "tmp-shard-000000099-000000100.safetensors").write_bytes(b"half a shard")
    partial = AttributionDataset(folder)
    assert not partial.complete
    kept = {s.name: s.stat().st_mtime_ns for s in partial.shards}
    assert len(kept) >= 2

    here = {"__name__": "child"}
    exec(CHILD, here)
    resumed, whole = here["run"](folder), here["run"](tmp_path / "whole")
    assert {name: (folder / name).stat().st_mtime_ns for name in kept} == kept
    assert not list(folder.glob("tmp-*"))
    assert resumed.complete
    assert len(resumed) == N
    assert torch.equal(resumed[:]["attributions"], whole[:]["attributions"])
    assert torch.equal(resumed[:]["outputs"], whole[:]["outputs"])


def test_random_draws_differ_between_batches_and_follow_the_generator(model, loader, tmp_path):
    def stored(name, seed):
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        method = axiograd.RandomAttribution(model, generator=generator)
        state = None if seed is None else generator.get_state()
        found = run(method, loader, tmp_path / name)[:]["attributions"]
        assert seed is None or torch.equal(generator.get_state(), state)
        return found

    first = stored("a", 0)
    assert torch.equal(first, stored("b", 0))
    assert not torch.equal(first, stored("c", 1))
    assert not torch.equal(first[:BATCH], first[BATCH : 2 * BATCH])
    assert not torch.equal(stored("d", None), stored("e", None))
    with pytest.raises(StorageError, match=r"method\.generator"):
        stored("a", 1)
    # Without a generator, the seed of the run is in its index: a deleted shard comes back as it was.
    before = AttributionDataset(tmp_path / "d")[:]["attributions"]
    shards(tmp_path / "d")[1].unlink()
    assert torch.equal(stored("d", None), before)


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete"])
def test_a_damaged_shard_is_named_and_only_it_is_made_again(damage, model, data, loader, tmp_path):
    whole = run(Counting(model), loader, tmp_path)[:]
    victim = shards(tmp_path)[1]
    content = bytearray(victim.read_bytes())
    if damage == "delete":
        victim.unlink()
    elif damage == "truncate":
        victim.write_bytes(content[:-7])
    else:
        content[-7] ^= 1
        victim.write_bytes(content)
    name = r"shard-000000008-000000016\.safetensors"
    message = "no shard with samples 8 to 15" if damage == "delete" else f"{name} is damaged"
    with pytest.raises(StorageError, match=rf"{message}.* run attribute_dataset again"):
        AttributionDataset(tmp_path)[9]
    if damage != "delete":
        with pytest.raises(StorageError, match=rf"{name} is damaged.*delete this file"):
            run(Counting(model), loader, tmp_path)
        victim.unlink()
    method = Counting(model)
    repaired = run(method, loader, tmp_path)
    assert method._batches == 2
    repaired.verify()
    assert torch.equal(repaired[:]["attributions"], whole["attributions"])
    spans = ["000000000-000000008", "000000008-000000016", "000000016-000000022"]
    assert [s.name for s in repaired.shards] == [f"shard-{span}.safetensors" for span in spans]


def test_another_runs_folder_is_refused_with_what_differs(model, data, loader, tmp_path):
    run(axiograd.IntegratedGradients(model, 4), loader, tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    other = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    x, y = data.tensors
    for differs, method, batches, options in (
        (r"method\.n_steps \(there: 4, here: 5\)", axiograd.IntegratedGradients(model, 5), loader, {}),
        (r"method\.name \(there: IntegratedGradients, here: Saliency\)", axiograd.Saliency(model), loader, {}),
        (r"model\.weights \(there: ", axiograd.IntegratedGradients(other, 4), loader, {}),
        ("dtype", axiograd.IntegratedGradients(model, 4), loader, {"dtype": torch.float16}),
        ("target", axiograd.IntegratedGradients(model, 4), loader, {"target": 1}),
        ("baselines", axiograd.IntegratedGradients(model, 4), loader, {"baselines": torch.ones(5)}),
        ("first batch", axiograd.IntegratedGradients(model, 4), DataLoader(TensorDataset(x + 1, y), BATCH), {}),
        ("batches", axiograd.IntegratedGradients(model, 4), DataLoader(TensorDataset(x[:8], y[:8]), BATCH), {}),
    ):
        with pytest.raises(StorageError, match=rf"was written with different settings: .*{differs}"):
            run(method, batches, tmp_path, **options)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_folders_that_cannot_be_used(model, loader, tmp_path, monkeypatch):
    method = axiograd.InputXGradient(model)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Cannot write"):
        run(method, loader, tmp_path / "file")
    with pytest.raises(StorageError, match="holds no attributions"):
        AttributionDataset(tmp_path)
    run(method, loader, tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()
    with pytest.raises(StorageError, match=r"has shard-000000000-000000008.safetensors but no run.json"):
        run(method, loader, tmp_path / "run")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(dataset, "save_tensors", full)
    with pytest.raises(StorageError, match=r"No space left.*Finished shards are kept"):
        run(method, loader, tmp_path / "full")
    monkeypatch.undo()
    assert run(method, loader, tmp_path / "full").complete


def test_two_writers_are_not_let_into_one_folder(model, loader, tmp_path):
    class Meddling(axiograd.InputXGradient):
        def _compute(self, call):
            with pytest.raises(StorageError, match="This process is already writing"):
                run(axiograd.InputXGradient(model), loader, tmp_path)
            return super()._compute(call)

    assert run(Meddling(model), loader, tmp_path).complete
