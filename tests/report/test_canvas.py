import sys

import pytest
import torch

from axiograd.errors import ConfigurationError
from axiograd.report import canvas, heatmap, save
from axiograd.report.canvas import new_figure


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


def test_drawing_needs_no_pyplot(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    heatmap(torch.rand(2, 2), path=tmp_path / "a.png")


def test_long_notes_are_wrapped_to_the_figure():
    figure = new_figure(2, 1)
    canvas.note_figure(figure, ["word " * 30])
    assert max(map(len, figure.get_supxlabel().splitlines())) <= 2 * canvas.CHARACTERS_PER_INCH


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_letters_that_the_font_lacks_are_no_warning(tmp_path, ending):
    heatmap(torch.randn(4, 4), title="水獺", path=tmp_path / f"a.{ending}")  # warnings are errors here
