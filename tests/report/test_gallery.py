"""All samples in a real browser: filtered, sorted, slid through, pointed at."""

import pytest
import torch

from axiograd.report import Report
from support.pages import build, choose, count, names, pixel, set_slider


def test_showing_more_and_all(page):
    page.evaluate("document.querySelector('.more button').click()")
    assert len(names(page)) == 30


def test_pictures_exist_only_near_the_window(browser, tmp_path):
    browser.resize(1200, 800)
    browser.open(build(200, 2).write(tmp_path / "many.html"))
    browser.evaluate("[...document.querySelectorAll('.more button')].at(-1).click()")
    browser.wait("document.querySelectorAll('.card canvas').length > 0")
    assert len(names(browser)) == 200
    assert browser.evaluate("document.querySelectorAll('.card canvas').length") < 40
    browser.evaluate("document.querySelector('.card:last-child').scrollIntoView()")
    browser.wait("document.querySelector('.card:last-child canvas') !== null")
    browser.wait(
        "document.querySelector('.card canvas') === null || document.querySelectorAll('.card canvas').length < 40"
    )
    assert browser.evaluate("document.querySelector('.card:first-child canvas') === null")
    assert browser.complaints == []


def test_filters_narrow_and_combine(page):
    choose(page, "Class", "square")
    assert count(page) == "15 of 30 samples"
    choose(page, "Prediction", "wrong: before")
    assert count(page) == "15 of 30 samples"
    choose(page, "Prediction", "wrong: after")
    assert count(page) == "0 of 30 samples"
    page.evaluate("document.querySelector('.more button').click()")
    assert count(page) == "30 samples"
    choose(page, "Completeness error", "1e−6 to 1e−3")
    assert count(page) == "18 of 30 samples"
    choose(page, "Completeness error", "up to 1e−6")
    assert count(page) == "12 of 30 samples"


def test_sorting(page):
    choose(page, "Sort by", "largest completeness error")
    assert names(page)[:3] == ["sample 4", "sample 9", "sample 14"]
    choose(page, "Sort by", "highest score")
    assert names(page)[:1] == ["sample 29"]
    choose(page, "Sort by", "name")
    assert names(page)[:3] == ["sample 0", "sample 1", "sample 2"]


def test_slash_goes_to_the_filter_and_typing_filters(page):
    page.key("/")
    page.type("sample 2")
    assert page.evaluate("document.activeElement.value") == "sample 2"
    assert count(page) == "12 of 30 samples"  # 2, 12, 20 to 29
    page.key("v")  # a letter here, not a command
    assert page.evaluate("document.activeElement.value") == "sample 2v"


def test_the_slider_of_a_card_moves_that_card_alone(page):
    page.evaluate("document.querySelector('.card').scrollIntoView()")
    page.wait("document.querySelectorAll('.card canvas').length > 2")
    first, second = ".card:nth-child(1)", ".card:nth-child(2)"
    before = pixel(page, f"{first} canvas"), pixel(page, f"{second} canvas")
    page.evaluate(f"document.querySelector('{first} input').focus()")
    page.key("ArrowRight")
    after = pixel(page, f"{first} canvas"), pixel(page, f"{second} canvas")
    assert after[0] != before[0]
    assert after[1] == before[1]
    assert page.evaluate(f"document.querySelector('{first} input').getAttribute('aria-valuetext')") == "after"


def test_the_slider_of_all_and_its_key(page):
    page.evaluate("document.querySelector('.grid').scrollIntoView()")
    page.wait("document.querySelectorAll('.card canvas').length === 12")
    set_slider(page, ".sliders .views input", 1)
    assert page.evaluate("[...document.querySelectorAll('.card .views input')].every(i => i.value === '1')")
    chips = page.evaluate("document.querySelector('.card:nth-child(2) .chips').textContent")
    assert chips == "✓ square 0.0333"
    page.key("v")
    assert page.evaluate("[...document.querySelectorAll('.card .views input')].every(i => i.value === '0')")
    assert page.evaluate("document.querySelector('.card:nth-child(2) .chips').textContent") == "square✗ circle 0.5"


def test_blending_from_image_to_heatmap(page):
    page.evaluate("document.querySelector('.card').scrollIntoView()")
    page.wait("document.querySelector('.card canvas') !== null")
    opacity = {}
    for blend in (0, 50, 100):
        set_slider(page, ".sliders .blend input", blend)
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        opacity[blend] = pixel(page, ".card canvas", 0, 0)[3], pixel(page, ".card canvas", 3, 3)[3]
    assert opacity[0] == (0, 0)
    assert opacity[50] == (0, 255)  # no attribution leaves the image, the largest covers it
    assert opacity[100] == (255, 255)
    assert pixel(page, ".card canvas", 0, 0)[:3] == [248, 247, 244]
    assert pixel(page, ".card canvas", 3, 3)[:3] == [110, 38, 4]


def test_pointing_reads_the_value(page):
    page.evaluate("document.querySelector('.card').scrollIntoView()")
    page.wait("document.querySelector('.card .picture') !== null")
    page.point(".card .picture", 0.9, 0.6)
    text = page.evaluate("document.querySelector('.card .readout').textContent")
    place, _, value = text.partition(": ")
    assert place == "row 2, column 3"
    assert float(value) == pytest.approx(2.3, abs=0.008 * 3.3)


def test_every_control_is_reached_by_tab_in_the_order_of_the_page(page):
    page.evaluate(
        "document.querySelector('#samples h2').scrollIntoView(); document.querySelector('.search input').focus()"
    )
    tags = []
    for _ in range(10):
        page.key("Tab")
        tags.append(page.evaluate("document.activeElement.tagName + ' ' + (document.activeElement.type ?? '')"))
    lists = ["SELECT select-one"] * 4
    assert tags == [*lists, "INPUT range", "INPUT range", "INPUT range", "INPUT checkbox", "INPUT range", "A "]


def test_five_hundred_samples_stay_fluid(browser, tmp_path):
    report = Report("many")
    generator = torch.Generator().manual_seed(0)
    for i in range(500):
        a = torch.randn(2, 64, 64, generator=generator)
        report.add_sample(f"s{i}", {"before": a[0], "after": a[1]}, label=str(i % 7), completeness=1e-6)
    path = report.write(tmp_path / "many.html")
    assert path.stat().st_size < 8_000_000
    browser.resize(1200, 900)
    browser.open(path)
    browser.evaluate("[...document.querySelectorAll('.more button')].at(-1).click()")
    browser.wait("document.querySelectorAll('.card canvas').length > 0")
    # What is drawn for one move of the slider, counted: the cards in sight and near it, not all 500.
    drawn = browser.evaluate(
        """(async () => {
          let drawn = 0, most = 0;
          const put = CanvasRenderingContext2D.prototype.putImageData;
          CanvasRenderingContext2D.prototype.putImageData = function (...words) {
            drawn += 1;
            return put.apply(this, words);
          };
          const slider = document.querySelector('.sliders .views input');
          for (let step = 0; step < 10; step++) {
            drawn = 0;
            window.scrollBy(0, 700);
            slider.value = step % 2;
            slider.dispatchEvent(new Event('input'));
            await new Promise(requestAnimationFrame);
            most = Math.max(most, drawn);
          }
          return most;
        })()"""
    )
    assert 0 < drawn < 100, drawn
    assert browser.complaints == []


def test_the_score_stands_beside_the_class_that_it_is_of(browser, tmp_path):
    report = Report("targets")
    for name, target in (("as predicted", "cat"), ("another", "dog")):
        report.add_sample(name, torch.ones(2, 2), label="cat", prediction="cat", score=-1.5, details={"target": target})
    browser.open(report.write(tmp_path / "targets.html"))
    chips = "[...document.querySelectorAll('.card')].map(c => [...c.querySelectorAll('.chip')].map(s => s.textContent))"
    assert browser.evaluate(chips) == [["✓ cat −1.5"], ["✓ cat", "for dog −1.5"]]
