import pytest

from axiograd.errors import StorageError
from axiograd.runs import files


def test_an_interruption_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = tmp_path / "a.png"
    target.write_bytes(b"old")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(target, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
    assert target.read_bytes() == b"old"


def test_a_folder_in_the_way_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        files.write_atomically(tmp_path / "file" / "a.png", b"")
    (tmp_path / "a.png").mkdir()
    with pytest.raises(StorageError, match=r"a\.png"):
        files.write_atomically(tmp_path / "a.png", b"")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "file"]


def test_the_block_that_fails_leaves_the_old_file(tmp_path):
    target = tmp_path / "a.json"
    target.write_text("old")

    def fail():
        with files.replacing(target) as building:
            building.write_text("half")
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_files_have_the_permissions_of_any_other_file(tmp_path):
    (tmp_path / "plain").touch()
    files.write_atomically(tmp_path / "new" / "a.png", b"1")
    assert (tmp_path / "new" / "a.png").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for blocked in (tmp_path / "file", tmp_path / "file" / "deep" / "out"):
        with pytest.raises(StorageError, match="is a file"):
            files.check_writable(blocked)
    files.check_writable(tmp_path / "new" / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    # Root may write anywhere, so that a folder without permission has to be feigned.
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    with pytest.raises(StorageError, match="is not writable"):
        files.check_writable(tmp_path / "new" / "out")
