"""Pages to look at, and what one does on them."""

import json

import torch

from axiograd.report import Report

CLASSES = ("circle", "square")
#: Names that would break a page that does not escape them.
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "line\u2028separator & `tick` ' <!-- <script>",
)


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
