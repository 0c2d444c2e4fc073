import errno
import os

import pytest

from axiograd import _io
from axiograd.errors import StorageError


def test_an_interruption_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = tmp_path / "a.png"
    target.write_bytes(b"old")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(_io.Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _io.write_atomically(target, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
    assert target.read_bytes() == b"old"


def test_a_folder_in_the_way_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        _io.write_atomically(tmp_path / "file" / "a.png", b"")
    (tmp_path / "a.png").mkdir()
    with pytest.raises(StorageError, match=r"a\.png"):
        _io.write_atomically(tmp_path / "a.png", b"")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "file"]


def test_the_block_that_fails_leaves_the_old_file(tmp_path):
    target = tmp_path / "a.json"
    target.write_text("old")

    def fail():
        with _io.replacing(target) as building:
            building.write_text("half")
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_files_have_the_permissions_of_any_other_file(tmp_path):
    (tmp_path / "plain").touch()
    _io.write_atomically(tmp_path / "new" / "a.png", b"1")
    assert (tmp_path / "new" / "a.png").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for blocked in (tmp_path / "file", tmp_path / "file" / "deep" / "out"):
        with pytest.raises(StorageError, match="is not a writable folder"):
            _io.check_writable(blocked)
    _io.check_writable(tmp_path / "new" / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]

    def read_only(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    # Root may write anywhere, so that a disk that is mounted read-only has to be simulated.
    monkeypatch.setattr(_io.Path, "write_bytes", read_only)
    with pytest.raises(StorageError, match=os.strerror(errno.EROFS)):
        _io.check_writable(tmp_path / "new" / "out")


def test_the_bar_shows_what_is_done_and_a_note(capsys):
    with _io.progress_bar("epoch 1/2", total=10, shown=True) as update:
        update(completed=3, note="task 0.5 · 12 samples/s")
    shown = " ".join(capsys.readouterr().err.split())
    assert "epoch 1/2" in shown
    assert "3/10" in shown
    assert "task 0.5" in shown


def test_no_terminal_no_bar(capsys):
    for shown in (False, None):
        with _io.progress_bar("epochs", total=10, shown=shown) as update:
            update(advance=1)
    assert not capsys.readouterr().err


def test_the_message_names_what_changed(tmp_path):
    found = {"model": {"layers": ["a", "b"], "seed": 1}, "steps": 8}
    _io.require_same_settings(tmp_path, found, {"model": {"layers": ("a", "b"), "seed": 1}, "steps": 8}, "")
    with pytest.raises(StorageError, match=r"model\.seed \(there: 1, here: 2\); more \(there: nothing, here: x\)"):
        _io.require_same_settings(tmp_path, found, {**found, "model": {**found["model"], "seed": 2}, "more": "x"}, "")
