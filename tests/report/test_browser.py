"""The page in a real browser: opened, toggled, pointed at, on a phone, with hostile names."""

import numpy as np
import pytest
import torch

from axiograd.report import Report
from axiograd.report.colours import TINT, colour
from support.pages import HOSTILE, build, ramp


@pytest.fixture
def opened(page, path):
    page.goto(path.as_uri())
    page.wait_for_selector(".grid .picture[data-show]")
    return page


def pixel(tab, selector, row, column):
    """Of a canvas, as [red, green, blue, alpha]."""
    return tab.eval_on_selector(
        selector,
        """(canvas, [row, column]) => {
          const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
          copy.drawImage(canvas, 0, 0);
          return [...copy.getImageData(column, row, 1, 1).data];
        }""",
        [row, column],
    )


def test_it_opens_on_heat_maps(opened):
    first = opened.locator(".featured canvas").first.bounding_box()
    assert first["y"] + first["height"] < 900
    assert opened.locator(".featured figure").count() == 6
    assert opened.locator(".count").inner_text() == "30 samples"


def test_toggles_change_view_and_picture(opened):
    canvas = ".grid .card:first-child .view.chosen canvas"
    assert pixel(opened, canvas, 0, 0) == [0, 0, 0, 0]  # no attribution leaves the grey image
    red, green, blue = (int(c) for c in colour(np.array(TINT)))
    assert pixel(opened, canvas, 3, 3) == pytest.approx([red, green, blue, 255], abs=1)
    opened.get_by_text("heat map", exact=True).click()
    assert pixel(opened, canvas, 3, 3) == [110, 38, 4, 255]
    opened.get_by_text("after", exact=True).first.click()
    opened.locator(".toggle").get_by_text("after", exact=True).click()
    assert pixel(opened, canvas, 3, 3) == [8, 48, 107, 255]


def test_the_colour_bar_has_the_colours_that_the_pictures_reach(opened):
    bar = ".colour-bar canvas"
    assert pixel(opened, bar, 0, 0) == pytest.approx(
        [*(int(c) for c in colour(torch.tensor(-TINT).numpy())), 255], abs=3
    )
    assert pixel(opened, bar, 0, 128)[:3] == pytest.approx([128] * 3, abs=3)
    opened.get_by_text("heat map", exact=True).click()
    assert pixel(opened, bar, 0, 0)[:3] == pytest.approx([8, 48, 107], abs=2)


def test_pointing_reads_the_value_and_windows_add_up(page, tmp_path):
    values = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
    report = Report("windows", pool=4)
    report.add_sample("a", values, image=torch.rand(3, 8, 8))
    page.goto(report.write(tmp_path / "windows.html").as_uri())
    picture = page.locator(".grid .picture")
    side = picture.bounding_box()["width"]
    picture.hover(position={"x": 0.6 * side, "y": 0.6 * side})  # row 4, column 4
    place, value = page.locator(".grid output").inner_text().split(": ")
    assert place == "row 4–7, column 4–7"
    largest = float(values.abs().max())
    assert float(value.replace("−", "-")) == pytest.approx(float(values[0, 4:, 4:].sum()), abs=16 * 0.008 * largest)
    page.select_option("select[name=side]", "1")
    picture.hover(position={"x": 3, "y": 3})
    assert page.locator(".grid output").inner_text().startswith("row 0, column 0: ")


def test_a_chosen_sample_shows_all_views_and_numbers(opened):
    opened.locator(".card h3 a").first.click()
    card = opened.locator(".card:target")
    assert card.locator("figure:visible").count() == 3
    assert "26.4" in card.inner_text()
    assert card.locator(".end").all_inner_texts() == ["±3.29", "±3.29"]
    card.get_by_text("Close").click()
    assert opened.locator(".card:target").count() == 0


def test_one_scale_for_all_views(page, tmp_path):
    report = Report("scales")
    report.add_sample("a", {"weak": torch.ones(2, 2), "strong": 4 * torch.ones(2, 2)})
    page.goto(report.write(tmp_path / "scales.html").as_uri() + "#sample-0")
    page.wait_for_selector(".grid .picture[data-show]")
    assert page.locator(".end").all_inner_texts() == ["±1", "±4"]
    page.check("input[name=shared]")
    assert page.locator(".end").all_inner_texts() == ["±4", "±4"]


def test_finding_and_sorting(opened):
    opened.select_option("select[name=sort]", "error")
    names = opened.locator(".card h3 a")
    assert names.all_inner_texts()[:3] == ["sample 4", "sample 9", "sample 14"]
    opened.select_option("select[name=sort]", "score")
    assert names.first.inner_text() == "sample 29"
    opened.fill("input[name=find]", "sample 2")
    assert opened.locator(".count").inner_text() == "12 of 30 samples"


def test_pictures_are_painted_when_they_come_near(page, tmp_path):
    page.goto(build(200, 2).write(tmp_path / "many.html").as_uri())
    page.wait_for_selector(".grid .picture[data-show]")
    assert 0 < page.locator(".grid .picture[data-show]").count() < 100
    last = page.locator(".grid .card").last
    last.scroll_into_view_if_needed()
    page.wait_for_selector(".grid .card:last-child .picture[data-show]")


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_needs_no_sideways_scrolling(page, path, tmp_path, width):
    page.set_viewport_size({"width": width, "height": 844})
    table = Report("table")
    for i in range(6):
        table.add_sample(f"row {i}", torch.arange(12.0) - i, features=[f"feature {j}" for j in range(12)], base=1.0)
    for address in (path.as_uri(), f"{path.as_uri()}#sample-0", table.write(tmp_path / "table.html").as_uri()):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_hostile_names_are_shown_and_do_nothing(page, tmp_path, refused):
    report = Report(HOSTILE[0], lead=HOSTILE[1], certificate={HOSTILE[2]: refused}, command=HOSTILE[3])
    for i, text in enumerate(HOSTILE):
        views = {text: ramp(), HOSTILE[i - 1]: ramp()}
        report.add_sample(text, views, label=text, prediction=HOSTILE[i - 1], details={text: text}, featured=True)
        report.add_sample(text, torch.ones(2), features=[text, "b"])
    page.goto(report.write(tmp_path / "hostile.html").as_uri() + "#sample-1")
    assert page.locator(".card h3 a").all_text_contents() == [text for text in HOSTILE for _ in range(2)]
    assert page.locator("img[src=x], [onload], [onerror]").count() == 0
