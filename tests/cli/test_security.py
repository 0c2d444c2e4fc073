"""Nothing that is loaded is run, nothing is fetched without being asked, nothing leaves its folder."""

import json
import os
import pickle
import re
import socket
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import axiograd as library
from axiograd._io import load_tensors
from axiograd.errors import StorageError
from support.command import axiograd

SOURCE = Path(library.__file__).parent


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@pytest.fixture
def marker(tmp_path):
    """The folder that a payload makes when it runs."""
    live = tmp_path / "live"
    pickle.loads(pickle.dumps(Payload(str(live))))
    assert live.exists()
    return tmp_path / "executed"


@pytest.mark.parametrize("spec", ["mlp", "{mine}:table"])
@pytest.mark.parametrize("suffix", [".pt", ".pth.tar", ".safetensors", ".npz"])
def test_a_malicious_pickle_is_not_run(mine, tmp_path, marker, spec, suffix):
    file = tmp_path / f"evil{suffix}"
    torch.save({"state_dict": {}, "extra": Payload(str(marker))}, file)
    done = axiograd("check", spec.format(mine=mine), "--weights", file)
    assert done.code == 3
    assert f"evil{suffix}" in done.err
    assert "Traceback" not in done.err
    assert not marker.exists()


def test_a_file_of_weights_is_no_pickle(tmp_path, marker):
    file = tmp_path / "model.safetensors"
    torch.save({"x": Payload(str(marker))}, file)
    with pytest.raises(StorageError, match=r"model\.safetensors"):
        load_tensors(file)
    assert not marker.exists()


def test_members_of_archives_are_read_and_never_extracted(tmp_path):
    """NPZ and PyTorch files are zip archives: names that climb out of the folder, and links, stay names."""
    inside = tmp_path / "inside"
    inside.mkdir()
    array = tmp_path / "a.npy"
    np.save(array, np.ones(3, dtype=np.float32))
    with zipfile.ZipFile(inside / "evil.npz", "w") as archive:
        archive.write(array, "../climbed.npy")
        link = zipfile.ZipInfo("link.npy")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    before = sorted(tmp_path.rglob("*"))
    done = axiograd("check", "mlp", "--weights", inside / "evil.npz")
    assert done.code in {2, 3}
    assert sorted(tmp_path.rglob("*")) == before


def test_no_code_of_ours_unpacks_archives_or_unpickles():
    text = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    banned = r"extractall|unpack_archive|pickle\.loads?\(|allow_pickle=True|weights_only=False|\beval\(\w|\bexec\("
    for path, code in text.items():
        assert not re.search(banned, code), path
        # `library.torch.load` is that of safetensors.
        assert not re.search(r"(?<!library\.)torch\.load\((?![^)]*weights_only=True)", code), path


def test_nothing_is_fetched_without_being_asked(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.delenv("AXIOGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = axiograd("check", "xalexnet", "--weights", "paper")
    assert done.code == 3
    assert "--download" in done.err
    assert "https://" in done.err
    assert axiograd("datasets").code == 0
    assert axiograd("evaluate", "mlp", "--data", "nhanes", "-m", "gradient").code == 3


def test_only_a_spec_with_a_colon_runs_python(tmp_path, monkeypatch, marker):
    (tmp_path / "mlp.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")
    (tmp_path / "xmlp").write_text("")
    monkeypatch.chdir(tmp_path)
    for spec in ("mlp", "xmlp", "mlp.py"):
        axiograd("check", spec)
    assert not marker.exists()


def _evil(path, **changes):
    """A file of weights whose recipe has been changed."""
    recipe = {
        "spec": "xmlp",
        "how": "strip",
        "shape": [4],
        "settings": {"in_channels": 4, "hidden": [8], "num_classes": 2},
        "weights": None,
        "examples": "",
        "version": "1",
        "format": 1,
    }
    text = changes.pop("text", None) or json.dumps(recipe | changes)
    state = {"0.weight": torch.zeros(8, 4), "2.weight": torch.zeros(2, 8)}
    save_file(state, path, metadata={"axiograd.conversion": text})
    return path


def test_an_honest_recipe_is_built(tmp_path):
    assert axiograd("check", _evil(tmp_path / "a.safetensors")).code == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"weights": "paper", "download": True, "root": "{here}"}, "spec": "xalexnet"},
        {"settings": {"weights": "{here}/other.pt"}},
        {"settings": {"root": "{here}"}},
        {"settings": {"hidden": [10**9, 10**9]}},
        {"settings": {"hidden": [90_000, 90_000]}},
        {"settings": {"hidden": 8}},
        {"settings": {"hidden": "8"}},
        {"settings": {"hidden": [[8]]}},
        {"settings": {"hidden": [float("nan")]}},
        {"settings": {"homogeneous": False}},
        {"settings": {"width": 10**4}, "spec": "xvgg16", "shape": [3, 32, 32]},
        {"shape": 4},
        {"spec": "../../etc/passwd"},
        {"format": "1"},
        {"more": 1},
        {"text": "[" * 100_000},
        {"text": '{"a":' * 50_000 + "1" + "}" * 50_000},
        {"text": "null"},
        {"text": "{"},
    ],
    ids=lambda changes: str(changes)[:60],
)
@pytest.mark.parametrize("as_weights", [False, True])
def test_a_recipe_that_asks_for_more_than_an_architecture(tmp_path, monkeypatch, changes, as_weights):
    def refuse(*_, **__):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    settings = changes.get("settings")
    if isinstance(settings, dict):
        here = {k: v.format(here=tmp_path) if isinstance(v, str) else v for k, v in settings.items()}
        changes = changes | {"settings": here}
    file = _evil(tmp_path / "evil.safetensors", **changes)
    done = axiograd("check", "xmlp", "--weights", file) if as_weights else axiograd("check", file)
    assert done.code in {2, 3}, done.out
    assert "Traceback" not in done.err
    assert "evil.safetensors" in done.err
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_file_tells_the_users_python_nothing(mine, tmp_path):
    file = _evil(tmp_path / "evil.safetensors", spec="net.py:build", settings={"path": "/etc/passwd"})
    done = axiograd("check", f"{mine}:table", "--weights", file)
    assert done.code == 2
    assert "--set path=" in done.err


@pytest.mark.parametrize("name", ["os:system", "subprocess:run", "torch.hub:load"])
def test_a_spec_or_a_configuration_starts_no_shell(tmp_path, name):
    marker = tmp_path / "executed"
    toml = tmp_path / "run.toml"
    options = f'options = {{ command = "mkdir {marker}" }}'
    toml.write_text(f'out = "o"\n[model]\nname = "{name}"\n{options}\n[data]\nname = "shapes"\n')
    for command in (("train", toml, "--dry-run"), ("train", toml), ("check", name, "--set", f"command=mkdir {marker}")):
        done = axiograd(*command)
        assert done.code == 2
        assert "is not yours" in done.err
    assert not marker.exists()
