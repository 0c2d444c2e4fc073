"""Notebooks: the page's macros with their style, and no script."""

from html.parser import HTMLParser

import pytest
import torch

import axiograd
from axiograd.report import axiom_report_html, certificate_html, explanation_html
from support.pages import HOSTILE


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)


def explanation(attributions, target=0, method="XGradient"):
    return axiograd.Explanation(torch.zeros(2, 2), attributions, target, method)


def test_images_become_pictures():
    html = explanation_html(explanation(torch.randn(10, 3, 6, 6)))
    assert Tags(html).found.count("img") == 8
    assert "first 8 of 10" in html
    beside = axiograd.InputXGradient(torch.nn.Flatten()).explain(torch.rand(2, 3, 8, 8), target=0)
    assert Tags(beside._repr_html_()).found.count("img") == 4
    first = explanation_html(explanation(torch.randn(5, 2, 1, 4, 4), target="all"))
    assert Tags(first).found.count("img") == 2  # of all outputs the first


def test_tables_become_bars():
    html = explanation_html(explanation(torch.tensor([[1.0, -5.0], [1.0, 5.0]])))
    assert html.index(">feature 1<") < html.index(">feature 0<")


@pytest.mark.parametrize(
    "attributions",
    [
        torch.zeros(2, 1, 3, 3),
        torch.zeros(0, 1, 3, 3),
        torch.full((1, 2), float("nan")),
        torch.zeros(3),
        torch.zeros(1, 2, 3),
        (torch.zeros(2, 2), torch.zeros(2, 1, 2, 2)),
        {"x": torch.zeros(2, 2)},
    ],
)
def test_every_structure_is_shown(attributions):
    assert "XGradient" in explanation_html(explanation(attributions))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(text):
    html = explanation_html(explanation({text: torch.ones(1, 2)}, method=text))
    assert not {"script", "svg", "img", "link"} & set(Tags(html).found)


def test_results_show_themselves(refused):
    net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
    x = torch.randn(3, 4)
    audited = axiograd.audit(axiograd.InputXGradient, n_networks=1)
    assert refused._repr_html_() == certificate_html(refused)
    assert audited._repr_html_() == axiom_report_html(audited)
    assert "✓ yes" in audited._repr_html_()
    assert "strip" in axiograd.to_xdnn(net, x, how="strip")._repr_html_()
    assert "degree" in axiograd.verify(net, x)._repr_html_()
    assert "completeness" in axiograd.InputXGradient(net).completeness(x, target=0)._repr_html_()


def test_violations_of_one_kind_are_one_line():
    net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(26)))
    html = axiograd.certify(net, torch.randn(2, 4))._repr_html_()
    assert html.count("<tr>") == 2  # the head, and 26 biases
    assert "and 25 more" in html
    assert "<code>25</code>" in html


def test_rows_of_a_table_are_waterfalls():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"age": [30, 50], "sex": ["f", "m"]}, index=["ann", "bob"])
    schema = axiograd.datasets.Schema.fit(frame)
    model = torch.nn.Linear(3, 1, bias=False)
    html = axiograd.tables.explain(model, frame, schema)._repr_html_()
    for words in ("ann", "age = 30", ">base<", ">score<"):
        assert words in html
