"""Which weights are known, and what is said of those that are missing or have changed."""

import pytest

from axiograd.errors import ConfigurationError, DataMissingError
from axiograd.models import fetch_weights, get_model, list_models, list_weights

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
