"""The page in a real browser: opened, read on a phone, in the dark, with hostile names."""

import pytest
import torch

from axiograd.report import Report
from support.pages import HOSTILE, choose, count, names, ramp


def test_it_opens_with_the_story_in_pictures(page):
    assert page.evaluate("document.title") == "Shapes"
    assert page.evaluate("document.querySelectorAll('#featured figure').length") == 6
    assert count(page) == "30 samples"
    assert len(names(page)) == 12


def test_a_sample_has_a_page_of_its_own(page):
    page.evaluate("document.querySelector('.card h3 a').focus()")
    page.key("Enter")
    page.wait("document.querySelector('dialog').open")
    assert page.evaluate("document.querySelector('dialog h2').textContent") == "sample 0"
    assert page.evaluate("document.querySelectorAll('dialog .multiples figure').length") == 3
    sums = page.evaluate("[...document.querySelectorAll('dialog tbody tr')].map(r => r.lastElementChild.textContent)")
    assert sums == ["26.4", "−26.4"]
    page.key("ArrowRight")  # the slider has the focus
    assert page.evaluate("document.querySelector('dialog th.chosen').textContent") == "after"
    page.key("n")
    page.wait("document.querySelector('dialog h2').textContent === 'sample 1'")
    assert page.evaluate("location.hash") == "#sample-1"
    page.key("p")
    page.wait("document.querySelector('dialog h2').textContent === 'sample 0'")
    page.key("Escape")
    # The event that sets the address comes a moment after the dialog is closed.
    page.wait("!document.querySelector('dialog').open && location.hash === '#samples'")


def test_arrow_keys_walk_over_the_pixels(browser, path):
    browser.resize(1200, 900)
    browser.open(path, "#sample-3")
    browser.wait("document.querySelector('dialog').open")
    browser.evaluate("document.querySelector('dialog .large .picture').focus()")
    read = []
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowUp", "ArrowUp"):
        browser.key(key)
        read.append(browser.evaluate("document.querySelector('dialog .large .readout').textContent").split(":")[0])
    assert read == [f"row {r}, column {c}" for r, c in ((2, 2), (2, 3), (1, 3), (0, 3), (0, 3))]
    assert browser.evaluate("location.hash") == "#sample-3"
    assert browser.complaints == []


def test_one_scale_for_all_views(browser, tmp_path):
    report = Report("scales")
    report.add_sample("a", {"weak": torch.ones(2, 2), "strong": 4 * torch.ones(2, 2)})
    browser.open(report.write(tmp_path / "scales.html"), "#sample-0")
    ends = "document.querySelector('dialog .ends').textContent"
    assert browser.evaluate(ends) == "−10+1"
    browser.evaluate("document.querySelector('.check input').click()")
    browser.open(tmp_path / "scales.html")
    browser.evaluate("document.querySelector('.check input').click(); location.hash = 'sample-0'")
    browser.wait("document.querySelector('dialog').open")
    assert browser.evaluate(ends) == "−40+4"


def test_features_of_a_table_are_bars(browser, tmp_path):
    report = Report("table")
    features = [f"feature {i}" for i in range(50)]
    report.add_sample(
        "subject", {"a": torch.arange(50.0), "b": -torch.arange(50.0)}, features=features, values=torch.ones(50)
    )
    report.add_sample("zero", torch.zeros(50), features=features)
    browser.resize(390, 844, phone=True)
    browser.open(report.write(tmp_path / "table.html"))
    browser.evaluate("document.querySelector('.card').scrollIntoView()")
    browser.wait("document.querySelector('.bar') !== null")
    assert browser.evaluate("document.querySelector('.bar').title") == "feature 49 = 1: +49"
    assert "44 others add up to +946" in browser.evaluate("document.querySelector('.bars').textContent")
    browser.evaluate("location.hash = 'sample-1'")
    browser.wait("document.querySelector('dialog').open")
    assert browser.complaints == []


def test_headers_sort_their_table(page):
    rows = "[...document.querySelectorAll('#section-0 tbody tr')].map(r => r.cells[0].textContent)"
    for order in (["b", "a", "c"], ["c", "a", "b"]):
        page.evaluate("document.querySelectorAll('#section-0 th button')[1].click()")
        assert page.evaluate(rows) == order
    assert page.evaluate("document.querySelectorAll('#section-0 th')[1].getAttribute('aria-sort')") == "descending"


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_needs_no_sideways_scrolling(browser, path, width):
    browser.resize(width, 844, phone=True)
    browser.open(path)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    browser.evaluate("location.hash = 'sample-0'")
    browser.wait("document.querySelector('dialog').open")
    assert browser.evaluate("document.querySelector('dialog').scrollWidth") <= width
    assert browser.complaints == []


def test_dark_where_the_system_is_dark(browser, path):
    shades = []
    for dark in (False, True):
        browser.resize(800, 600, dark=dark)
        browser.open(path)
        shades.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert shades == ["rgb(251, 250, 248)", "rgb(22, 24, 27)"]


def test_hostile_names_are_shown_and_do_nothing(browser, tmp_path, violated):
    report = Report(HOSTILE[0], lead=HOSTILE[1], certificate={HOSTILE[2]: violated}, command=HOSTILE[3])
    for i, text in enumerate(HOSTILE):
        report.add_sample(
            text, {text: ramp(), HOSTILE[i - 1]: ramp()}, label=text, prediction=HOSTILE[i - 1], details={text: text},
            featured=True,
        )  # fmt: skip
        report.add_sample(text, torch.ones(2), features=[text, "b"])
    browser.resize(1200, 900)
    browser.open(report.write(tmp_path / "hostile.html"), "#sample-1")
    browser.evaluate("document.querySelector('dialog').close(); document.querySelector('.card').scrollIntoView()")
    browser.wait("document.querySelector('.card canvas') !== null")
    assert names(browser) == [text for text in HOSTILE for _ in range(2)]
    choose(browser, "Class", HOSTILE[1])
    assert count(browser) == "2 of 8 samples"
    assert browser.evaluate("document.querySelectorAll('img[src=x], [onload], [onerror]').length") == 0
    assert browser.complaints == []
