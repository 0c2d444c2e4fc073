"""Checkpoints in the published format load; what is damaged, foreign or dangerous does not."""

import os
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from axiograd.errors import ConfigurationError, StorageError
from axiograd.models import get_model, read_state_dict
from support.checkpoints import TINY, publish, randomise


@pytest.mark.parametrize("name", TINY)
def test_published_format_loads_and_gives_the_same_outputs(name, tmp_path):
    original = randomise(get_model(name, **TINY[name]))
    x = torch.randn(2, 3, 64, 64)
    expected = original(x)
    keys = publish(original, tmp_path / f"{name}_model_best.pth.tar")
    assert any("module." in key for key in keys)
    loaded = get_model(name, weights=tmp_path / f"{name}_model_best.pth.tar", **TINY[name]).eval()
    torch.testing.assert_close(loaded(x), expected)


def test_weights_by_name_are_found_in_the_root(tmp_path, monkeypatch):
    monkeypatch.delenv("AXIOGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    original = randomise(get_model("xalexnet", **TINY["xalexnet"]))
    weight = original.classifier[6].weight.clone()
    (tmp_path / "weights").mkdir()
    publish(original, tmp_path / "weights" / "xalexnet_model_best.pth.tar")
    for name in ("paper", "default", "xalexnet_model_best.pth.tar"):
        loaded = get_model("xalexnet", weights=name, root=tmp_path, **TINY["xalexnet"])
        torch.testing.assert_close(loaded.classifier[6].weight, weight)


def test_old_format_loads(tmp_path):
    model = get_model("xmlp", hidden=(4,))
    torch.save({"state_dict": model.state_dict()}, tmp_path / "old.pth.tar", _use_new_zipfile_serialization=False)
    assert set(read_state_dict(tmp_path / "old.pth.tar")) == {"0.weight", "2.weight"}


def test_safetensors_load(tmp_path):
    model = get_model("xmlp", hidden=(4,))
    save_file(model.state_dict(), tmp_path / "x.safetensors")
    loaded = get_model("xmlp", hidden=(4,), weights=tmp_path / "x.safetensors")
    torch.testing.assert_close(loaded[0].weight, model[0].weight)


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def test_code_in_a_checkpoint_is_not_executed(tmp_path):
    marker = tmp_path / "executed"
    torch.save({"state_dict": {}, "extra": Payload(str(marker))}, tmp_path / "evil.pth.tar")
    with pytest.raises(StorageError, match="not executed"):
        read_state_dict(tmp_path / "evil.pth.tar")
    np.savez(tmp_path / "evil.npz", x=np.array([Payload(str(marker))], dtype=object))
    with pytest.raises(StorageError, match="plain arrays"):
        read_state_dict(tmp_path / "evil.npz")
    assert not marker.exists()
    # The payload is live: plain unpickling would have run it.
    pickle.loads(pickle.dumps(Payload(str(marker))))
    assert marker.exists()


@pytest.mark.parametrize("suffix", [".pth", ".npz", ".safetensors"])
@pytest.mark.parametrize("kept", [0, 100, 0.6])
def test_a_cut_file_is_reported_with_its_path(suffix, kept, tmp_path):
    path = tmp_path / f"cut{suffix}"
    state = {"x": torch.arange(500.0)}
    if suffix == ".pth":
        torch.save(state, path)
    elif suffix == ".npz":
        np.savez(path, x=state["x"].numpy())
    else:
        save_file(state, path)
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(StorageError, match=f"cut{suffix}"):
        read_state_dict(path)


def test_not_a_state_dict(tmp_path):
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(StorageError, match="holds a list"):
        read_state_dict(tmp_path / "list.pth")


def test_weights_with_biases_do_not_enter_an_x_model(tmp_path):
    torch.save(get_model("mlp", hidden=(4,)).state_dict(), tmp_path / "mlp.pth")
    with pytest.raises(ConfigurationError, match=r"unexpected 0.bias, 2.bias.*to_xdnn"):
        get_model("xmlp", hidden=(4,), weights=tmp_path / "mlp.pth")


def test_other_shapes_are_listed(tmp_path):
    torch.save(get_model("xmlp", hidden=(4,)).state_dict(), tmp_path / "mlp.pth")
    with pytest.raises(ConfigurationError, match=r"2.weight: file \(1, 4\), model \(3, 4\).*num_classes"):
        get_model("xmlp", hidden=(4,), num_classes=3, weights=tmp_path / "mlp.pth")
