"""Whole data sets on disk: what is stored, and how it is read back."""

import json
import sys
import tracemalloc

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import axiograd
from axiograd import AttributionDataset, attribute_dataset
from axiograd.attribution.captum import CaptumMethod
from axiograd.errors import (
    AxiogradError,
    ConfigurationError,
    InputError,
    MissingExtraError,
    NotFiniteError,
    TargetError,
)
from support.stored import BATCH, N, network, run, samples, shards


@pytest.fixture
def data():
    return samples()


@pytest.fixture
def loader(data):
    return DataLoader(data, batch_size=BATCH)


@pytest.fixture
def model():
    return network()


def test_round_trip_of_attributions_outputs_targets_and_labels(model, data, loader, tmp_path):
    x, y = data.tensors
    method = axiograd.IntegratedGradients(model, 8)
    stored = run(method, loader, tmp_path)
    assert len(shards(tmp_path)) == 3
    assert stored.complete
    assert len(stored) == N
    everything = stored[:]
    torch.testing.assert_close(everything["attributions"], method.attribute(x, y))
    torch.testing.assert_close(everything["outputs"], model(x).detach())
    assert torch.equal(everything["target"], y)
    assert torch.equal(everything["label"], y)
    for i in (0, 7, 8, N - 1, -1):
        assert torch.equal(stored[i]["attributions"], everything["attributions"][i])
        assert stored[i]["target"] == y[i]
    assert torch.equal(stored[6:18]["attributions"], everything["attributions"][6:18])
    with pytest.raises(IndexError, match=f"sample {N} of {N}"):
        stored[N]
    with pytest.raises(IndexError):
        stored[::2]
    batches = list(DataLoader(AttributionDataset(tmp_path), batch_size=5, num_workers=1))
    assert torch.equal(torch.cat([b["attributions"] for b in batches]), everything["attributions"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_of_attributions_is_chosen_and_that_of_outputs_kept(dtype, model, data, loader, tmp_path):
    stored = run(axiograd.InputXGradient(model), loader, tmp_path, dtype=dtype)[:]
    expected = axiograd.InputXGradient(model).attribute(*data.tensors)
    assert stored["attributions"].dtype == dtype
    torch.testing.assert_close(stored["attributions"], expected.to(dtype))
    assert stored["outputs"].dtype == torch.float32


def test_attributions_that_do_not_fit_the_dtype_are_refused(tmp_path):
    with pytest.raises(NotFiniteError, match=r"do not fit into torch.float16"):
        attribute_dataset(
            axiograd.InputXGradient(lambda x: 1e6 * x.sum(1)),
            [torch.ones(1, 2)],
            out=tmp_path,
            target=None,
            dtype=torch.float16,
            progress=False,
        )


@pytest.mark.filterwarnings("ignore:.*given, not proved:axiograd.attribution.InexactWarning")  # the model has biases
@pytest.mark.parametrize(
    "make",
    [
        axiograd.Gradient,
        lambda m: axiograd.XGradient(m, degree=1),
        lambda m: axiograd.IntegratedGradients(m, 4),
        lambda m: CaptumMethod(m, __import__("captum.attr").attr.DeepLift),
    ],
)
def test_predicted_targets(make, model, data, loader, tmp_path):
    x, _ = data.tensors
    stored = run(make(model), loader, tmp_path, target="predicted")[:]
    assert torch.equal(stored["target"], model(x).argmax(1))
    torch.testing.assert_close(stored["attributions"], make(model).attribute(x, model(x).argmax(1)))


def test_predicted_needs_one_forward_pass_where_the_method_does(model, loader, tmp_path):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    run(axiograd.InputXGradient(model), loader, tmp_path, target="predicted")
    assert len(calls) == len(loader)


def test_other_targets(model, data, loader, tmp_path):
    x, _ = data.tensors
    method = axiograd.Gradient(model)
    stored = run(method, loader, tmp_path / "all", target="all")
    torch.testing.assert_close(stored[:]["attributions"].movedim(0, 1), method.attribute(x, "all"))
    assert stored[0]["attributions"].shape == (3, 5)
    assert "target" not in stored[0]
    assert torch.equal(run(method, loader, tmp_path / "one", target=2)[:]["target"], torch.full((N,), 2))
    found = run(method, loader, tmp_path / "call", target=lambda o: o[:, 0] - o[:, 1])[:]["attributions"]
    torch.testing.assert_close(found, method.attribute(x, 0) - method.attribute(x, 1))
    with pytest.raises(TargetError, match="no label"):
        run(method, [x], tmp_path / "none")


class Two(nn.Module):
    def forward(self, a, b, ids=None):
        return torch.stack([a.sum(1) * b.prod(1), b.sum(1)], 1) * (1 if ids is None else ids[:, None])


def test_tuples_mappings_and_split(tmp_path):
    a, b, ids, y = torch.randn(6, 3), torch.randn(6, 2), torch.arange(6), torch.tensor([0, 1] * 3)
    method = axiograd.InputXGradient(Two())
    expected = method.attribute((a, b, ids), y)

    tuples = DataLoader([((a[i], b[i], ids[i]), y[i]) for i in range(6)], batch_size=4)
    stored = run(method, tuples, tmp_path / "tuple")
    torch.testing.assert_close(stored[:]["attributions"], expected)
    assert stored[1]["attributions"][2] is None
    assert stored[1]["attributions"][1].shape == (2,)

    named = DataLoader([{"a": a[i], "b": b[i], "ids": ids[i], "label": y[i]} for i in range(6)], batch_size=4)
    stored = run(method, named, tmp_path / "dict")
    torch.testing.assert_close(stored[:]["attributions"], {"a": expected[0], "b": expected[1]})
    assert stored[0]["attributions"].keys() == {"a", "b"}

    flat = DataLoader(TensorDataset(a, b, ids, y), batch_size=4)
    with pytest.raises(InputError, match="split="):
        run(method, flat, tmp_path / "flat")
    stored = run(method, flat, tmp_path / "split", split=lambda batch: (tuple(batch[:3]), batch[3]))
    torch.testing.assert_close(stored[:]["attributions"], expected)


def test_loaders_and_settings_that_cannot_be_resumed_are_refused(model, data, loader, tmp_path):
    method = axiograd.InputXGradient(model)
    with pytest.raises(ConfigurationError, match="shuffle=False"):
        run(method, DataLoader(data, BATCH, shuffle=True), tmp_path)
    with pytest.raises(ConfigurationError, match="data set, or a tensor"):
        run(axiograd.ExpectedGradients(model, loader), loader, tmp_path)
    with pytest.raises(InputError, match="empty"):
        run(method, [], tmp_path)
    with pytest.raises(InputError, match="one shape"):
        run(axiograd.Gradient(lambda x: x.sum(1)), [torch.ones(2, 3), torch.ones(2, 4)], tmp_path, target=None)
    assert not shards(tmp_path)


def test_memory_does_not_grow_with_the_data_set(tmp_path):
    """Torch's memory is not traced, so tensors that are alive are counted; Python's own is measured."""
    import gc

    alive, traced = [], []

    def batches(n):
        for i in range(n):
            if i % 40 == 0:
                alive.append(sum(o.numel() for o in gc.get_objects() if type(o) is torch.Tensor))
                traced.append(tracemalloc.get_traced_memory()[0])
            yield torch.full((4, 64), float(i))

    tracemalloc.start()
    run(axiograd.Gradient(lambda x: x.sum(1)), batches(200), tmp_path, target=None, shard_bytes=12_000)
    tracemalloc.stop()
    assert max(alive[2:]) <= alive[1] + 10 * 256
    assert traced[-1] - traced[1] < 200_000


def test_shards_are_plain_safetensors_and_progress_is_shown(model, data, loader, tmp_path, capfd):
    run(axiograd.Saliency(model), loader, tmp_path, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "6/6" in err
    tensors = load_file(shards(tmp_path)[0])
    assert tensors.keys() == {"attributions.0", "outputs", "target", "label"}
    assert json.loads((tmp_path / "run.json").read_text())["samples"] == N


@pytest.mark.parametrize("package", ["safetensors", "rich"])
def test_missing_extras_are_named(package, model, loader, tmp_path, monkeypatch):
    for name in list(sys.modules):
        if name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"'{package}'.*axiograd\[storage\]"):
        run(axiograd.Saliency(model), loader, tmp_path, progress=True)
    assert issubclass(MissingExtraError, AxiogradError)
