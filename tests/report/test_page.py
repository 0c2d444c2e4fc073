"""The page as a file: everything is in it, escaped, and nothing comes from elsewhere."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import axiograd
from axiograd.errors import InputError
from axiograd.report import Report
from axiograd.report.page import LEVELS, pack, shrink
from support.pages import HOSTILE


class Elements(HTMLParser):
    """What a browser would find."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, content):
        self.text += content

    def canvas(self):
        return next(attributes for tag, attributes in self.tags if tag == "canvas" and "data-levels" in attributes)


def hostile(image, text):
    report = Report(
        text, lead=text, headline={text: text}, command=text, model_name=text, data=text, baseline=text,
        certificate={text: axiograd.certify(torch.nn.Linear(3, 2), torch.ones(1, 3))}, facts={text: text},
        others={text: text},
    )  # fmt: skip
    report.add_step(text, text, numbers={text: (text, text)}, code=text)
    report.add_table(text, [{text: text}], note=text)
    many = {text: image, "other": image}
    report.add_sample(text, many, image=image, label=text, prediction=text, details={text: text}, featured=True)
    report.add_sample(text, torch.ones(2), features=[text, "b"], values=[text, 1.0], label=text)
    return report


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(image, text):
    plain, found = (Elements(hostile(image, each).to_html()) for each in ("plain", text))
    assert [tag for tag, _ in found.tags if tag != "code"] == [tag for tag, _ in plain.tags if tag != "code"]
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)


def test_nothing_is_loaded_from_elsewhere(image):
    report = Report("title")
    report.add_sample("a", image, image=image)
    page = report.to_html()
    links = [attributes[k] for _, attributes in Elements(page).tags for k in ("src", "href") if k in attributes]
    assert all(link.startswith(("data:", "#")) for link in links)
    assert "http" not in page.replace("http-equiv", "")


def unpack(packed, shape):
    """What the page does in JavaScript."""
    levels = np.frombuffer(base64.b64decode(packed["levels"]), dtype=np.int8).reshape(shape).astype(float)
    return np.sign(levels) * (levels / LEVELS) ** 2 * packed["largest"]


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
def test_packed_values_are_within_the_stated_error(scale):
    values = np.random.default_rng(0).standard_normal((7, 5)) ** 3 * scale
    back = unpack(pack(values), values.shape)
    assert np.abs(back - values).max() <= 0.008 * np.abs(values).max()
    assert (np.sign(back) * np.sign(values) >= 0).all()


def test_large_maps_are_stored_in_blocks_that_keep_their_sum():
    values = torch.rand(3, 7, 5)
    report = Report("title", max_side=4)
    report.add_sample("a", values, image=values)
    canvas = Elements(report.to_html()).canvas()
    assert (canvas["height"], canvas["width"], canvas["data-block"]) == ("4", "3", "2")
    view = report.samples[0].views[0]
    assert view.sum == pytest.approx(float(values.double().sum()))
    assert unpack(view.map, (4, 3)).sum() == pytest.approx(view.sum, rel=0.01)
    picture = values.double().movedim(0, -1).numpy()
    assert shrink(picture, 2)[3, 2] == pytest.approx(picture[6, 4])
    assert shrink(picture, 2)[0, 0] == pytest.approx(picture[:2, :2].mean((0, 1)))


def test_the_page_says_what_it_was_told():
    refused = axiograd.certify(torch.nn.Sequential(torch.nn.Linear(3, 2)), torch.ones(1, 3))
    xdnn = axiograd.certify(torch.nn.Linear(3, 2, bias=False), torch.ones(1, 3))
    certificates = {"regular": refused, "X-DNN": xdnn}
    report = Report("title", command="axiograd demo", headline={"accuracy": (34.0, 97.8)}, certificate=certificates)
    report.add_step("first", "uses `certify`", numbers={"n": 12345})
    report.add_table("Costs", [("X-Gradient", 3.0, True), ("IG", 376.0, False)], columns=("method", "ms", "exact"))
    report.add_sample("a", torch.ones(2), completeness=float("inf"), score=float("nan"))
    page = report.to_html()
    for words in (
        "not certified", "<code>0</code>", "bias=False", "of degree 1, exactly", "<code>certify</code>", "12,345",
        "376", "✗ no", "axiograd demo", "97.8", "inf", "nan",
    ):  # fmt: skip
        assert words in page, words
    with pytest.raises(InputError, match="columns"):
        report.add_table("Costs", [(1, 2)], columns=["one"])


def test_rows_are_waterfalls_from_their_base_to_their_score():
    report = Report("patients")
    rng = np.random.default_rng(0)
    for i in range(6):
        row = {"features": ["age", "sex"], "values": [30.0 + i, "f"], "base": 1.0}
        report.add_sample(f"row {i}", rng.normal(size=2), **row)
    bars = report.samples[0].views[0].bars
    assert [bars[0].name, bars[-1].name] == ["base", "score"]
    assert bars[-1].value == pytest.approx(1.0 + report.samples[0].views[0].sum)
    ends = [bar.left + (bar.width if "positive" in bar.kind else 0) for bar in bars[:2]]
    assert ends[0] == pytest.approx(bars[1].left if bars[1].value > 0 else bars[1].left + bars[1].width)
    found = Elements(report.to_html())
    assert sum(tag == "circle" for tag, _ in found.tags) == 6 * 2
    assert "age = 30" in found.text
    report.add_sample("another method", {"Gradient": [1.0, 2.0]}, base=1.0, score=9.0)
    assert [bar.name for bar in report.samples[-1].views[0].bars] == ["feature 1", "feature 0"]  # does not add up


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"attributions": {}}, "no attribution"),
        ({"attributions": {"a": torch.ones(3), "b": torch.ones(2, 2)}}, "mixes"),
        ({"attributions": torch.ones(2, 2), "image": torch.ones(3, 3)}, "differ in size"),
        ({"attributions": torch.ones(3), "features": ["a"]}, "1 names"),
        ({"attributions": torch.ones(3), "values": torch.ones(2)}, "2 values"),
        ({"attributions": {"a": torch.ones(3)}, "prediction": {"b": 1}}, "not among"),
    ],
)
def test_samples_that_do_not_fit_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        Report("title").add_sample("sample", **arguments)


def test_pages_beside_a_page_and_pages_without_anything(tmp_path):
    path = Report("one", others={"Page 2": "report-2.html"}).write(tmp_path / "new" / "report.html")
    assert re.search('<a href="report-2.html">Page 2</a>', path.read_text(encoding="utf-8"))
