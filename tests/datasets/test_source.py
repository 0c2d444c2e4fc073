"""Where data is looked for, and what is said when it is not there."""

import pytest

from axiograd.datasets import Entry, catalogue, cifar10, imagenet, imagenet_sample, mnist, nhanes, tiny_imagenet
from axiograd.errors import DataMissingError


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv("AXIOGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def put(folder):
    folder.mkdir(parents=True)
    (folder / "a.csv").touch()
    return folder


def test_root_then_shared_folder_then_cache(nowhere, monkeypatch):
    thing = Entry("thing", "Thing", "https://example.org", "MIT", "", "thing", ["a.csv"])
    assert not thing.located().present
    cached = put(nowhere / "cache" / "axiograd" / "thing")
    assert thing.located().path == cached
    monkeypatch.setenv("AXIOGRAD_DATA", str(nowhere / "shared"))
    assert thing.located().path == cached
    shared = put(nowhere / "shared" / "thing")
    assert thing.located().path == shared
    given = put(nowhere / "mine" / "thing")
    assert thing.located(nowhere / "mine").path == given
    assert thing.located(given).path == given
    assert thing.located(nowhere / "empty").path == shared


@pytest.mark.parametrize("loader", [cifar10, imagenet, imagenet_sample, mnist, nhanes, tiny_imagenet])
def test_what_is_missing_says_where_to_get_it(loader, nowhere):
    with pytest.raises(DataMissingError) as caught:
        loader(root=nowhere / "given")
    message = str(caught.value)
    assert "http" in message
    assert str(nowhere / "given") in message
    assert str(nowhere / "cache" / "axiograd") in message
    assert "AXIOGRAD_DATA" in message


def test_catalogue_without_and_with_data(nowhere, monkeypatch):
    before = {entry.loader: entry for entry in catalogue()}
    assert [name for name, entry in before.items() if entry.present] == ["shapes"]
    assert all(entry.address and entry.licence for entry in before.values())
    sample = nowhere / "cache" / "axiograd" / "imagenet-sample"
    sample.mkdir(parents=True)
    (sample / "labels.csv").touch()
    after = {entry.loader: entry for entry in catalogue()}
    assert after["imagenet_sample"].path == sample
    assert sample in before["imagenet_sample"].looked_in
