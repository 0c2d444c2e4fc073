"""Coloured text: everything is there, signed, escaped, and readable."""

import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

from axiograd.report import text_html, text_svg, texts, write_text_page
from axiograd.report.texts import _colours
from axiograd.text import Piece, TextExplanation
from axiograd.text.explanation import TextExplanations
from support.pages import HOSTILE


def explained(text="a <b>wonderful</b> film\n\u202e日本語 & more", **changes):
    words, start = [], 0
    for i, word in enumerate(text.split()):
        start = text.index(word, start)
        words.append(Piece(word, (-1) ** i * (i + 1) / 4, "text", start, start + len(word)))
        start += len(word)
    tokens = (Piece("[CLS]", -0.5, "special"), *words, Piece("[SEP]", 0.25, "special"))
    whole = {"target": "good", "score": 9.0, "method": "Held gradient", "beside": "constants", "probability": 0.9}
    return TextExplanation(text, tokens, tuple(words), **(whole | changes))


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
    shown = Shown(explained()._repr_html_())
    assert "a <b>wonderful</b> film\n⟨U+202E⟩日本語 & more" in shown.text
    assert "Mostly not from the words, which have" in shown.text
    assert "film +0.75 (+8.3% of 9)" in shown.said
    assert any(said.startswith("special token [CLS] −0.5") for said in shown.said)


def test_words_special_tokens_and_constants_add_up_to_the_score():
    bars = texts._parts(explained())
    assert {"special tokens", "constants"} < {bar.name for bar in bars}
    assert sum(bar.value for bar in bars[1:-1]) == pytest.approx(9.0)
    assert bars[-1].value == pytest.approx(9.0)
    assert "score" not in [bar.name for bar in texts._parts(explained(beside=None))]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_from_outside_becomes_markup(hostile, tmp_path):
    one, plain = (
        explained(f"a {hostile} film", target=hostile),
        explained(f"a {'b ' * hostile.count(' ')}b film", target="plain"),
    )
    assert set(Shown(text_html(one)).tags) == set(Shown(text_html(plain)).tags)
    images = [ET.fromstring(text_svg(each)) for each in (one, plain)]
    assert len({frozenset(element.tag for element in image.iter()) for image in images}) == 1
    page = write_text_page([one], tmp_path / "page.html", hostile).read_text()
    assert "script" not in Shown(page).tags
    assert "http" not in page.replace("http-equiv", "")


def test_the_image_holds_every_word_and_fetches_nothing():
    one = explained(" ".join(["wonderful film"] * 60))
    svg = one.to_svg()
    shown = " ".join(" ".join(ET.fromstring(svg).itertext()).split())
    assert shown.count("wonderful") >= 60
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_terminals_show_colours_and_pipes_none():
    drawn, piped = StringIO(), StringIO()
    both = TextExplanations([explained(), explained("another film")])
    Console(file=drawn, force_terminal=True, color_system="truecolor", width=100).print(both)
    Console(file=piped, width=100).print(both)
    assert "48;2;" in drawn.getvalue()
    assert "\x1b" not in piped.getvalue()
    assert "more −1.5" in piped.getvalue()


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


def test_an_empty_colour_range_is_drawn():
    words = (Piece("a", 0.0, "text", 0, 1),)
    flat = TextExplanation("a film", words, words, "x", 0.0, "m", None)
    assert "film" in text_html(flat)
    ET.fromstring(text_svg(flat))
