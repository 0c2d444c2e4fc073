"""Coloured text: for notebooks, pages, terminals, and as an image."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from axiograd._extras import optional
from axiograd._io import write_atomically
from axiograd._names import visible
from axiograd.report.charts import Bar, bars, plain
from axiograd.report.colours import colour
from axiograd.report.templates import fragment, render

#: Of the colour map's range: its ends are too dark to read on.
_STRONGEST = 0.72
#: Characters of a line of the image, and bars of what a score is made of.
_COLUMNS, _BARS = 100, 12


def text_html(explanation: Any) -> str:
    """One text in colours, in HTML that brings its style.

    >>> from axiograd.text import Piece, TextExplanation
    >>> words = (Piece("<b>", 1.0, start=0, end=3),)
    >>> one = TextExplanation("<b>", words, words, "good", 1.0, "Held gradient", "constants")
    >>> ">&lt;b&gt;</span>" in text_html(one)
    True
    """
    return fragment("text", _view(explanation))


def texts_html(explanations: Sequence[Any]) -> str:
    """Several texts below each other, each in its own colours."""
    return "".join(text_html(one) for one in explanations)


def write_text_page(explanations: Sequence[Any], path: str | Path, title: str = "Texts") -> Path:
    """A page that needs no network: every text, its words at the pointer, and what its score is made of."""
    page = render("texts.html", title=title, texts=[_view(one) for one in explanations])
    return write_atomically(path, page.encode("utf-8", "replace"))


def text_rich(explanation: Any) -> Any:
    """The coloured text for a terminal."""
    shown = optional("rich.text", "cli", "coloured text in a terminal").Text()
    shown.append(visible(explanation.headline()), style="bold").append("\n")
    limit = strongest(explanation)
    for piece, coloured in pieces(explanation):
        back, front = _colours(piece.value, limit)
        style = f"{front} on {back}" if coloured else ""
        shown.append(visible(piece.text), style="dim strike" if piece.kind == "outside" else style)
    strong = sorted(explanation.words, key=lambda word: -abs(word.value))[:6]
    values = "  ".join(f"{visible(word.text)} {plain(word.value, signed=True)}" for word in strong)
    shown.append(f"\n{values}\n", style="default")
    shown.append(" · ".join(visible(note) for note in explanation.notes()), style="dim")
    return shown


def texts_rich(explanations: Sequence[Any]) -> Any:
    """Several texts below each other."""
    from rich.text import Text

    return Text("\n\n").join(text_rich(one) for one in explanations)


def text_svg(explanation: Any) -> str:
    """The coloured text as an image: what a terminal shows, on white, without its window."""
    console = optional("rich.console", "cli", "coloured text as an image").Console(
        record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(text_rich(explanation))
    theme = optional("rich.terminal_theme", "cli", "coloured text as an image").TerminalTheme(
        (255, 255, 255), (28, 28, 28), [(28, 28, 28)] * 8
    )
    return console.export_svg(theme=theme, code_format=_SVG)  # type: ignore[no-any-return]


def pieces(explanation: Any) -> Iterator[tuple[Any, bool]]:
    """Everything that is shown, in order, and whether it has a colour: words, what is between them, constants."""
    from axiograd.text.explanation import Piece

    tokens = explanation.tokens
    first = next((i for i, token in enumerate(tokens) if token.kind != "special"), len(tokens))
    for token in tokens[:first]:
        yield from ((token, True), (Piece(" ", 0.0), False))
    done = 0
    for word in explanation.words:
        yield Piece(explanation.text[done : word.start], 0.0), False
        yield word, True
        done = word.end
    yield Piece(explanation.text[done:], 0.0), False
    for token in tokens[first:]:
        if token.kind == "special":
            yield from ((Piece(" ", 0.0), False), (token, True))
    if explanation.beside:
        value = explanation.constants
        yield from ((Piece(" ", 0.0), False), (Piece(explanation.beside, value, "constants"), True))


def strongest(explanation: Any) -> float:
    """The largest value of a word: full colour. Special tokens may be larger, and are clipped."""
    return max((abs(word.value) for word in explanation.words), default=0.0) or 1.0


def _view(explanation: Any) -> dict[str, Any]:
    """What the macro `text` shows."""
    limit = strongest(explanation)
    words = []
    for piece, coloured in pieces(explanation):
        back, front = _colours(piece.value, limit)
        style = f"background:{back};color:{front}" if coloured else ""
        says = _says(piece, explanation) if coloured else ""
        words.append({"text": piece.text, "kind": piece.kind, "style": style, "says": says})
    warning = explanation.warning
    return {
        "headline": explanation.headline().removesuffix(f"; {warning}"),
        "warning": warning[:1].upper() + warning[1:],
        "words": words,
        "notes": explanation.notes(),
        "bars": _parts(explanation),
    }


def _parts(explanation: Any) -> list[Bar]:
    """The words, special tokens and constants as a waterfall that ends at the score."""
    named = [(word.text, word.value) for word in explanation.words if word.kind == "text"]
    named.append(("special tokens", explanation.special))
    if explanation.beside is None:
        return bars([name for name, _ in named], [value for _, value in named], top=_BARS)
    named.append((explanation.beside, explanation.constants))
    return bars([name for name, _ in named], [value for _, value in named], top=_BARS, base=0.0)


def _says(piece: Any, explanation: Any) -> str:
    """What the pointer shows: the value, its part of the score, and the tokens of a word."""
    whole = explanation.score if explanation.beside else 0
    part = f" ({piece.value / whole:+.1%} of {whole:.4g})".replace("-", "−") if whole else ""
    words = f"{piece.text.strip()} {plain(piece.value, signed=True)}{part}"
    inside = [t for t in explanation.tokens if t.kind == "text" and piece.start <= t.start and t.end <= piece.end]
    if piece.kind == "text" and len(inside) > 1:
        words += ": " + ", ".join(f"{token.text} {plain(token.value, signed=True)}" for token in inside)
    return {"special": "special token ", "outside": "not read: "}.get(piece.kind, "") + words


def _colours(value: float, limit: float) -> tuple[str, str]:
    """Background, and black or white on it, whichever is easier to read."""
    red, green, blue = (int(c) for c in colour(np.array([_STRONGEST * np.clip(value / limit, -1, 1)]))[0])
    bright = 0.2126 * _linear(red) + 0.7152 * _linear(green) + 0.0722 * _linear(blue)
    return f"#{red:02x}{green:02x}{blue:02x}", "#111111" if bright > 0.18 else "#ffffff"  # noqa: PLR2004 - equal contrast


def _linear(channel: int) -> float:
    c = channel / 255
    return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4  # noqa: PLR2004 - the definition of sRGB


#: rich's own format has a window around the text, and fonts from the network.
_SVG = """<svg viewBox="-12 -8 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font: {char_height}px/{line_height}px Menlo, "DejaVu Sans Mono", Consolas, monospace; }}
{styles}</style>
<defs>{lines}</defs>
<rect x="-12" y="-8" width="100%" height="100%" fill="#fff"/>
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</svg>
"""
