"""Coloured text: everything is there, signed, escaped, and readable."""

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

from axiograd.report import text_html, text_svg, write_text_page
from axiograd.report.texts import _colours
from axiograd.text import Piece, TextExplanation
from axiograd.text.explanation import TextExplanations
from support.pages import HOSTILE


def explained(text="a <b>wonderful</b> film\n\u202e日本語 & more", **changes):
    tokens = [Piece("[CLS]", -0.5, "special")]
    start = 0
    for i, word in enumerate(text.split()):
        start = text.index(word, start)
        tokens.append(Piece(word, (-1) ** i * (i + 1) / 4, "text", start, start + len(word)))
        start += len(word)
    tokens += [Piece("[SEP]", 0.25, "special")]
    words = [token for token in tokens if token.kind == "text"]
    whole = {"target": "good", "score": 2.0, "method": "Held gradient", "beside": "constants", "probability": 0.9}
    return TextExplanation(text, tuple(tokens), tuple(words), **(whole | changes))


class Shown(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.said, self.text = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.said += [value for name, value in attrs if name == "title"]

    def handle_data(self, data):
        self.text += data


def test_html_shows_the_text_as_it_is_with_values_at_the_pointer():
    one = explained()
    shown = Shown(one._repr_html_())
    assert set(shown.tags) == {"div", "b", "span"}
    assert "a <b>wonderful</b> film\n⟨U+202E⟩日本語 & more" in shown.text
    assert f"constants {one.constants:+.3g} = 2" in shown.text
    assert any(said.startswith("film +0.75 (+37.5% of 2)") for said in shown.said)
    assert any(said.startswith("special token [CLS] -0.5") for said in shown.said)
    assert any(said.startswith(f"constants {one.constants:+.3g} (") for said in shown.said)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_from_outside_becomes_markup(hostile, tmp_path):
    one = explained(f"a {hostile} film", target=hostile, versus=hostile, method=hostile)
    assert set(Shown(text_html(one)).tags) <= {"div", "b", "span"}
    root = ET.fromstring(text_svg(one))
    assert {element.tag.partition("}")[2] for element in root.iter()} == {"svg", "rect", "g", "title", "text"}
    page = write_text_page([one], tmp_path / "page.html", hostile).read_text()
    assert "script" not in Shown(page).tags


def test_the_image_holds_every_word_and_its_value():
    one = explained(" ".join(["wonderful film"] * 60))
    root = ET.fromstring(one.to_svg())
    name = "{http://www.w3.org/2000/svg}"
    words = [g.find(f"{name}text").text for g in root.iter(f"{name}g") if g.find(f"{name}title") is not None]
    assert words == ["[CLS]", *one.text.split(), "[SEP]", f"constants {one.constants:+.3g}"]
    right = max(float(r.get("x", 0)) + float(r.get("width").rstrip("%")) for r in list(root.iter(f"{name}rect"))[1:])
    assert right <= float(root.get("width"))
    bottom = max(float(t.get("y")) for t in root.iter(f"{name}text"))
    assert bottom < float(root.get("height"))


def test_terminals_show_colours_and_pipes_none():
    drawn, piped = StringIO(), StringIO()
    both = TextExplanations([explained(), explained(versus="bad")])
    Console(file=drawn, force_terminal=True, color_system="truecolor", width=100).print(both)
    Console(file=piped, width=100).print(both)
    assert "48;2;" in drawn.getvalue()
    assert "\x1b" not in piped.getvalue()
    assert "good rather than bad" in " ".join(piped.getvalue().split())
    assert "more -1.5" in piped.getvalue()


@pytest.mark.parametrize("value", [-1.0, -0.6, -0.2, 0.0, 0.1, 0.5, 0.9, 1.0, 7.0])
def test_letters_stand_out_from_their_colour(value):
    """Contrast of at least 4.5, as WCAG asks for text."""
    back, front = _colours(value, 1.0)

    def luminance(colour):
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(back), luminance(front)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_values_that_are_no_parts_of_the_score_have_no_constants():
    assert explained(beside=None).notes() == ["Held gradient"]
    assert "constants" not in Shown(text_html(explained(beside=None))).text
    assert json.loads(json.dumps(explained().to_dict()))["words"][0]["text"] == "a"


def test_an_empty_colour_range_is_drawn():
    flat = TextExplanation("a film", (), (Piece("a", 0.0, "text", 0, 1),), "x", 0.0, "m", None)
    assert "film" in text_html(flat)
    ET.fromstring(text_svg(flat))
