from html.parser import HTMLParser
from types import SimpleNamespace

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
    assert "baseline <b>zero</b>" in html


def test_tables_become_bars():
    html = explanation_html(explanation(torch.tensor([[1.0, -5.0], [1.0, 5.0]])))
    assert html.index(">1</td>") < html.index(">0</td>")


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


def test_of_all_outputs_the_first_is_drawn():
    html = explanation_html(explanation(torch.randn(5, 2, 1, 4, 4), target="all"))
    assert Tags(html).found.count("img") == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(text, violated):
    violated.violations[0].module = violated.violations[0].fix = text
    result = SimpleNamespace(axiom=text, passed=False, violation=1.0, tolerance=0.1, counterexample=text)
    report = SimpleNamespace(method=text, models=text, seed=0, results=[result])
    shown = [
        certificate_html(violated),
        explanation_html(explanation({text: torch.ones(1, 2)}, method=text)),
        axiom_report_html(report),
    ]
    for html in shown:
        assert not {"script", "svg", "img"} & set(Tags(html).found)


def test_a_refusal_names_the_module(violated):
    html = certificate_html(violated)
    for words in ("Not certified: 1 violation.", "<code>fc</code>", "<code>bias=False</code>"):
        assert words in html


def test_notebooks_show_the_three_results_as_html():
    model = torch.nn.Linear(3, 1)
    refused = axiograd.certify(model, torch.ones(2, 3))
    explained = axiograd.InputXGradient(model).explain(torch.ones(2, 3), target=0)
    audited = axiograd.audit(axiograd.InputXGradient, n_networks=1)
    assert refused._repr_html_() == certificate_html(refused)
    assert explained._repr_html_() == explanation_html(explained)
    assert audited._repr_html_() == axiom_report_html(audited)
    for shown in (refused, explained, audited):
        assert {"div", "table"} <= set(Tags(shown._repr_html_()).found)


def test_what_a_notebook_gets_has_no_style_sheet_and_no_script():
    certificate = axiograd.certify(torch.nn.Linear(3, 1, bias=False), torch.ones(2, 3))
    assert certificate._repr_html_().startswith("<div>")
    assert not {"script", "style", "link"} & set(Tags(certificate._repr_html_()).found)


def test_violations_of_one_kind_are_one_line():
    net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(26)))
    html = axiograd.certify(net, torch.randn(2, 4))._repr_html_()
    assert html.count("<tr>") == 2  # the head, and 26 biases
    assert "and 25 more" in html
    assert "<code>25</code>" in html


def test_an_explanation_shows_the_image_beside_its_map():
    x = torch.rand(2, 3, 8, 8)
    html = axiograd.InputXGradient(torch.nn.Flatten()).explain(x, target=0)._repr_html_()
    assert html.count("<img") == 4


def test_results_say_what_they_are():
    net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
    x = torch.randn(3, 4)
    assert "strip" in axiograd.to_xdnn(net, x, how="strip")._repr_html_()
    assert "degree" in axiograd.verify(net, x)._repr_html_()
    assert "completeness" in axiograd.InputXGradient(net).completeness(x, target=0)._repr_html_()
    assert repr(axiograd.IntegratedGradients(net, 16)) == "IntegratedGradients(Sequential, n_steps=16)"
    assert repr(axiograd.XGradient(net)) == "XGradient(Sequential)"
    loss = axiograd.AttributionLoss(torch.nn.functional.cross_entropy, axiograd.priors.L1(), 0.5)
    assert "task=cross_entropy, prior=L1, weight=0.5, method=XGradient, outputs='target'" in repr(loss)
