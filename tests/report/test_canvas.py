import sys

import pytest
import torch

from axiograd.errors import ConfigurationError, StorageError
from axiograd.report import _canvas, _files, heatmap, save
from axiograd.report._canvas import new_figure


def test_png_and_pdf_are_written_and_repeatable(tmp_path):
    values = torch.randn(4, 4)
    heatmap(values, path=[tmp_path / "a.png", tmp_path / "deep" / "a.pdf"])
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    pdf = (tmp_path / "deep" / "a.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    save(heatmap(values), [str(tmp_path / "b.png"), str(tmp_path / "b.pdf")])
    assert (tmp_path / "b.pdf").read_bytes() == pdf


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"a\.gif"):
        save(new_figure(1, 1), tmp_path / "a.gif")


def test_an_interruption_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = tmp_path / "a.png"
    target.write_bytes(b"old")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(_files.Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _files.write_atomically(target, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
    assert target.read_bytes() == b"old"


def test_a_folder_in_the_way_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        _files.write_atomically(tmp_path / "file" / "a.png", b"")
    (tmp_path / "a.png").mkdir()
    with pytest.raises(StorageError, match=r"a\.png"):
        _files.write_atomically(tmp_path / "a.png", b"")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "file"]


def test_drawing_needs_no_pyplot(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    heatmap(torch.rand(2, 2), path=tmp_path / "a.png")


def test_long_notes_are_wrapped_to_the_figure():
    figure = new_figure(2, 1)
    _canvas.note_figure(figure, ["word " * 30])
    assert max(map(len, figure.get_supxlabel().splitlines())) <= 2 * _canvas.CHARACTERS_PER_INCH
