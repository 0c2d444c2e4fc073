"""Sums over windows: they add up to what the pixels do, in figures and on the page."""

import numpy as np
import pytest
import torch

from axiograd.errors import ConfigurationError
from axiograd.report import Report, compare, heatmap
from axiograd.report.arrays import in_windows, window_sums


@pytest.mark.parametrize("shape", [(8, 8), (7, 9), (3, 16), (1, 1)])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_sums_agree(shape, size):
    values = np.random.default_rng(0).normal(size=shape)
    sums = window_sums(values, size)
    expected = [
        [values[r : r + size, c : c + size].sum() for c in range(0, shape[1], size)] for r in range(0, shape[0], size)
    ]
    np.testing.assert_allclose(sums, expected, rtol=1e-12)
    np.testing.assert_allclose(sums.sum(), values.sum(), atol=1e-12)
    shown = in_windows(values, size)
    assert shown.shape == values.shape
    assert shown[-1, -1] == sums[-1, -1]


def test_photos_are_shown_in_windows_and_small_images_are_not():
    photo, small = torch.randn(3, 130, 140), torch.randn(1, 28, 28)
    (drawn,) = heatmap(photo).axes[0].images
    np.testing.assert_allclose(drawn.get_array()[:8, :8], photo.double().sum(0)[:8, :8].sum(), rtol=1e-9)
    assert "sums over 8 × 8 pixels" in heatmap(photo).get_supxlabel()
    (raw,) = heatmap(photo, pool=1).axes[0].images
    np.testing.assert_allclose(raw.get_array(), photo.double().sum(0))
    (pixels,) = heatmap(small).axes[0].images
    np.testing.assert_allclose(pixels.get_array(), small[0])
    pooled = compare(small[None], {"a": small[None]}, pool=14)
    np.testing.assert_allclose(pooled.axes[1].images[0].get_array()[0, 0], small[0, :14, :14].double().sum(), rtol=1e-9)
    with pytest.raises(ConfigurationError, match="pool=0"):
        heatmap(small, pool=0)


def test_the_page_sums_too(browser, tmp_path):
    values = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
    report = Report("windows", pool=4)
    report.add_sample("a", values, image=torch.rand(3, 8, 8))
    browser.resize(1200, 900)
    browser.open(report.write(tmp_path / "windows.html"), "#sample-0")
    browser.wait("document.querySelector('dialog').open")
    browser.evaluate("document.querySelector('dialog .large .picture').focus()")
    browser.key("ArrowRight")  # into the middle: row 4, column 4
    read = "document.querySelector('dialog .large .readout').textContent"
    place, value = browser.evaluate(read).split(": ")
    assert place == "row 4–7, column 4–7"
    assert value.endswith(" (sum)")
    shown = float(value.removesuffix(" (sum)").replace("−", "-"))
    assert shown == pytest.approx(float(values[0, 4:, 4:].sum()), abs=16 * 0.008 * float(values.abs().max()))
    browser.evaluate("document.querySelector('dialog button.raw').click()")  # one click to the raw map
    browser.evaluate("document.querySelector('dialog .large .picture').focus()")
    browser.key("ArrowRight")
    assert browser.evaluate(read).startswith("row 4, column 5: ")
    assert browser.complaints == []


def test_paper_shows_every_sample(browser, tmp_path):
    report = Report("paper")
    for i in range(30):
        report.add_sample(f"sample {i}", torch.randn(4, 4))
    browser.open(report.write(tmp_path / "paper.html"))
    drawn = "document.querySelectorAll('.card canvas').length"
    assert browser.evaluate("document.querySelectorAll('.card').length") == 12
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate(drawn) == 30
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate("document.querySelectorAll('.card').length") == 12
    assert browser.complaints == []


def test_pages_beside_a_page(tmp_path):
    html = Report("one", others={"Page 2": "report-2.html"}).to_html()
    assert '<a href="report-2.html">Page 2</a>' in html
