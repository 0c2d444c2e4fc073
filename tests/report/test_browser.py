"""The page in a real browser: it is looked at, pointed at, typed at."""

import json
import time

import pytest
import torch

from axiograd.report import Report
from report.conftest import HOSTILE

CLASSES = ("circle", "square")


def ramp(size=4):
    """Attribution of row r, column c: r + c/10, so that a value says where it was read."""
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return (rows + columns / 10).double()


def build(count=30, size=4):
    report = Report("Shapes", model_name="net", headline={"accuracy": ("34 %", "98 %")}, command="axiograd demo")
    report.add_table("Costs", [{"method": "a", "ms": 30.0}, {"method": "b", "ms": 4.0}, {"method": "c", "ms": 100.0}])
    values = ramp(size)
    for i in range(count):
        label = CLASSES[i % 2]
        report.add_sample(
            f"sample {i}",
            {"before": values, "after": -values},
            image=torch.full((3, size, size), 0.5),
            label=label,
            prediction={"before": "circle", "after": label},
            completeness={"before": 1e-8, "after": 10.0 ** (-7 + i % 5)},
            score={"before": 0.5, "after": i / count},
            boxes=[(0, 0, 1, 1)],
            featured=i < 2,
        )
    return report


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return build().write(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def page(browser, path):
    browser.resize(1200, 900)
    browser.open(path)
    yield browser
    assert browser.complaints == []


def names(page):
    return page.evaluate("[...document.querySelectorAll('.card h3')].map(e => e.textContent)")


def choose(page, label, option):
    """Pick an option by its words from the list with this label."""
    page.evaluate(
        f"(() => {{ const box = [...document.querySelectorAll('.filters label')].find(l => "
        f"l.querySelector('span').textContent === {json.dumps(label)}); const s = box.querySelector('select');"
        f"s.value = [...s.options].find(o => o.textContent === {json.dumps(option)}).value;"
        "s.dispatchEvent(new Event('change')); })()"
    )


def count(page):
    return page.evaluate("document.querySelector('.count').textContent")


def pixel(page, selector, row=3, column=3):
    # From a copy: reading the page's own canvas back makes the browser complain.
    return page.evaluate(
        "(() => { const copy = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});"
        f"copy.drawImage(document.querySelector({json.dumps(selector)}), -{column}, -{row});"
        "return [...copy.getImageData(0, 0, 1, 1).data]; })()"
    )


def set_slider(page, selector, value):
    page.evaluate(
        f"(() => {{ const s = document.querySelector({json.dumps(selector)}); s.value = {value};"
        "s.dispatchEvent(new Event('input')); })()"
    )


def test_it_opens_with_the_story_in_pictures(page):
    assert page.evaluate("document.title") == "Shapes"
    assert page.evaluate("document.querySelectorAll('#featured figure').length") == 6
    assert count(page) == "30 samples"
    assert len(names(page)) == 12


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
    page.wait("!document.querySelector('dialog').open")
    assert page.evaluate("location.hash") == "#samples"


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


def test_every_control_is_reached_by_tab_in_the_order_of_the_page(page):
    page.evaluate(
        "document.querySelector('#samples h2').scrollIntoView(); document.querySelector('.search input').focus()"
    )
    tags = []
    for _ in range(9):
        page.key("Tab")
        tags.append(page.evaluate("document.activeElement.tagName + ' ' + (document.activeElement.type ?? '')"))
    lists = ["SELECT select-one"] * 4
    assert tags == [*lists, "INPUT range", "INPUT range", "INPUT checkbox", "INPUT range", "A "]


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
    started = time.monotonic()
    slowest = browser.evaluate(
        """(async () => {
          let slowest = 0;
          const slider = document.querySelector('.sliders .views input');
          for (let step = 0; step < 10; step++) {
            const start = performance.now();
            window.scrollBy(0, 700);
            slider.value = step % 2;
            slider.dispatchEvent(new Event('input'));
            slowest = Math.max(slowest, performance.now() - start);
            await new Promise(requestAnimationFrame);
          }
          return slowest;
        })()"""
    )
    assert slowest < 500, slowest
    assert time.monotonic() - started < 15
    assert browser.complaints == []
