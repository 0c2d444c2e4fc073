"""Weights by name and by file: found, downloaded, read in the published format; what is damaged or dangerous is not."""

import http.server
import os
import pickle
import threading
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from axiograd.errors import ConfigurationError, DataMissingError, StorageError
from axiograd.models import fetch_weights, get_model, list_models, list_weights, read_state_dict
from support.checkpoints import TINY, publish, randomise

PAPER = "https://download.visinf.tu-darmstadt.de/data/2021-neurips-fast-axiomatic-attribution/models/"


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.delenv("AXIOGRAD_DATA", raising=False)
    monkeypatch.delenv("AXIOGRAD_WEIGHTS_URL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_papers_six_checkpoints_and_their_addresses(monkeypatch):
    monkeypatch.delenv("AXIOGRAD_WEIGHTS_URL", raising=False)
    models = ["alexnet", "xalexnet", "vgg16", "xvgg16", "fixup_resnet50", "xfixup_resnet50"]
    paper = [weights for weights in list_weights() if weights.name == "paper"]
    assert [weights.url for weights in paper] == [f"{PAPER}{model}_model_best.pth.tar" for model in models]


def test_all_weights_belong_to_a_model():
    assert {weights.model for weights in list_weights()} <= set(list_models())


def test_without_an_address_the_error_says_where_to_put_the_file(empty):
    with pytest.raises(DataMissingError, match=r"put the file at .*squeezenet1.1_oihw.npz.*AXIOGRAD_WEIGHTS_URL"):
        fetch_weights("squeezenet1_1", "imagenet")


def test_another_file_under_a_known_name_is_refused(empty):
    folder = empty / "axiograd" / "weights"
    folder.mkdir(parents=True)
    (folder / "squeezenet1.1_oihw.npz").write_bytes(b"other")
    with pytest.raises(ConfigurationError, match="SHA-256"):
        get_model("squeezenet1_1", weights="imagenet")


NAME = "xalexnet_model_best.pth.tar"


@pytest.fixture
def server(empty, monkeypatch):
    """Serves the files of a folder; the fixture is that folder, and the requests so far."""
    folder, requests = empty / "served", []
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            requests.append(self.path)

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("AXIOGRAD_WEIGHTS_URL", f"http://127.0.0.1:{httpd.server_port}/")
    torch.save({"state_dict": get_model("xalexnet", **TINY["xalexnet"]).state_dict()}, folder / NAME)
    yield folder, requests
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def test_weights_are_downloaded_into_the_cache_only_when_asked_and_once(server, empty):
    folder, requests = server
    target = empty / "axiograd" / "weights" / NAME
    with pytest.raises(DataMissingError) as caught:
        get_model("xalexnet", weights="paper", **TINY["xalexnet"])
    assert not requests
    assert str(target) in str(caught.value)
    for _ in range(2):
        model = get_model("xalexnet", weights="paper", download=True, **TINY["xalexnet"])
    assert len(requests) == 1
    assert [path.name for path in target.parent.iterdir()] == [NAME]
    assert target.read_bytes() == (folder / NAME).read_bytes()
    torch.testing.assert_close(model.classifier[6].weight, read_state_dict(folder / NAME)["classifier.6.weight"])


def test_what_is_no_checkpoint_or_another_one_is_not_kept(server, empty):
    folder, _ = server
    (folder / NAME).write_bytes((folder / NAME).read_bytes()[:2000])
    with pytest.raises(StorageError, match="not a complete file"):
        fetch_weights("xalexnet", "paper", progress=False)
    (folder / "squeezenet1.1_oihw.npz").write_bytes(b"another")
    with pytest.raises(StorageError, match="does not match the published file"):
        fetch_weights("squeezenet1_1", progress=False)
    assert not list((empty / "axiograd" / "weights").iterdir())


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", None])  # where nobody listens, and where there is no file
def test_a_failed_download_names_address_and_target(server, empty, monkeypatch, address):
    if address is not None:
        monkeypatch.setenv("AXIOGRAD_WEIGHTS_URL", address)
    with pytest.raises(DataMissingError) as caught:
        get_model("xvgg16", weights="paper", download=True)
    assert "/xvgg16_model_best.pth.tar: " in str(caught.value)
    assert str(empty / "axiograd" / "weights" / "xvgg16_model_best.pth.tar") in str(caught.value)


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
    with pytest.raises(StorageError, match="plain tensors"):
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
    with pytest.raises(ConfigurationError, match=r'Unexpected key.*"0.bias", "2.bias".*to_xdnn'):
        get_model("xmlp", hidden=(4,), weights=tmp_path / "mlp.pth")


def test_other_shapes_are_listed(tmp_path):
    torch.save(get_model("xmlp", hidden=(4,)).state_dict(), tmp_path / "mlp.pth")
    with pytest.raises(ConfigurationError, match=r"mismatch for 2.weight.*\[1, 4\].*\[3, 4\].*num_classes"):
        get_model("xmlp", hidden=(4,), num_classes=3, weights=tmp_path / "mlp.pth")
