"""Coloured text: for notebooks, pages, terminals, and as an image; values at the pointer, everything escaped."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from axiograd._extras import optional
from axiograd._io import write_atomically
from axiograd._names import visible
from axiograd.report._escape import text as escape
from axiograd.report.colours import colour

#: Of the colour map's range: its ends are too dark to read on.
_STRONGEST = 0.72
_FONT = "font-family:system-ui,-apple-system,Segoe UI,Roboto,sans-serif;line-height:1.9;color:#1c1c1c;background:#fff"
_QUIET = "color:#666;font-size:85%"
_SPECIAL = "border:1px solid #bbb;border-radius:4px;font-size:75%;padding:0 3px;color:#555"
#: Width of a character of the SVG's monospaced font, its line height, and characters per line.
_WIDE, _LINE, _COLUMNS = 8.43, 30, 96


def text_html(explanation: Any) -> str:
    """One text in colours, in HTML that needs no style sheet.

    >>> from axiograd.text import Piece, TextExplanation
    >>> words = (Piece("<b>", 1.0, start=0, end=3),)
    >>> one = TextExplanation("<b>", words, words, "good", 1.0, "Held gradient", "constants")
    >>> "<b>&lt;" in text_html(one), "&lt;" in text_html(one)
    (False, True)
    """
    limit = strongest(explanation)
    parts = [_html_piece(piece, explanation, limit) for piece in laid_out(explanation)]
    notes = " · ".join(escape(note) for note in explanation.notes())
    return (
        f'<div style="{_FONT};padding:6px 8px"><div><b>{escape(explanation.headline())}</b></div>'
        f'<div style="white-space:pre-wrap">{"".join(parts)}</div><div style="{_QUIET}">{notes}</div></div>'
    )


def texts_html(explanations: Sequence[Any]) -> str:
    """Several texts below each other, each in its own colours."""
    return "".join(text_html(one) for one in explanations)


def write_text_page(explanations: Sequence[Any], path: str | Path, title: str = "Texts") -> Path:
    """A page that needs no network: every text, its words at the pointer, its tokens in a table."""
    bodies = "".join(f"<section>{text_html(one)}{_table(one)}</section>" for one in explanations)
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        '<p class="legend"><span class="minus">against</span><span class="zero">no effect</span>'
        '<span class="plus">for</span> the answer in bold; each text in its own colours, the strongest word at full '
        f"colour. Values at the pointer or by the tab key.</p>{bodies}</body></html>\n"
    )
    return write_atomically(path, page.encode("utf-8", "replace"))


def text_svg(explanation: Any) -> str:
    """The coloured text as an image; values are titles, which browsers show at the pointer."""
    limit, rows = strongest(explanation), _LineRows()
    for piece in laid_out(explanation):
        rows.add(piece, explanation, limit)
    notes = [line for note in explanation.notes() for line in _wrapped(note, 110)]
    height = 44 + rows.height() + 18 * len(notes) + 10
    width = round(_WIDE * _COLUMNS) + 32
    head = _svg_text(16, 26, explanation.headline(), "font-weight:bold;font-size:15px")
    foot = "".join(
        _svg_text(16, 44 + rows.height() + 16 + 18 * i, line, "font-size:12px;fill:#666")
        for i, line in enumerate(notes)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="14">'
        f'<rect width="100%" height="100%" fill="#fff"/>{head}<g>{"".join(rows.drawn)}</g>{foot}</svg>\n'
    )


def text_rich(explanation: Any) -> Any:
    """The coloured text for a terminal."""
    limit = strongest(explanation)
    shown = optional("rich.text", "cli", "coloured text in a terminal").Text()
    shown.append(visible(explanation.headline()), style="bold").append("\n")
    for piece in laid_out(explanation):
        if piece.kind == "outside":
            style = "dim strike"
        elif piece.value or piece.kind != "text":
            back, front = _colours(piece.value, limit)
            style = f"{front} on {back}" + (" italic" if piece.kind != "text" else "")
        else:
            style = ""
        shown.append(visible(piece.text), style=style)
    strong = sorted(explanation.words, key=lambda word: -abs(word.value))[:6]
    values = "  ".join(f"{visible(word.text)} {word.value:+.3g}" for word in strong)
    shown.append(f"\n{values}\n", style="default")
    shown.append(" · ".join(visible(note) for note in explanation.notes()), style="dim")
    return shown


def texts_rich(explanations: Sequence[Any]) -> Any:
    """Several texts below each other."""
    from rich.text import Text

    return Text("\n\n").join(text_rich(one) for one in explanations)


def laid_out(explanation: Any) -> Iterator[Any]:
    """Everything that is shown, in order: special tokens, words, the text between them, and constants."""
    from axiograd.text.explanation import Piece

    tokens = explanation.tokens
    first = next((i for i, t in enumerate(tokens) if t.kind == "text"), len(tokens))
    for token in tokens[:first]:
        yield token
        yield Piece(" ", 0.0)
    done = 0
    for word in explanation.words:
        if word.start > done:
            yield Piece(explanation.text[done : word.start], 0.0)
        yield word
        done = word.end
    if done < len(explanation.text):
        yield Piece(explanation.text[done:], 0.0)
    for token in tokens[first:]:
        if token.kind == "special":
            yield Piece(" ", 0.0)
            yield token
    if explanation.beside:
        yield Piece(" ", 0.0)
        yield Piece(f"{explanation.beside} {explanation.constants:+.3g}", explanation.constants, "constants")


def strongest(explanation: Any) -> float:
    """The largest value of a word: full colour. Special tokens and constants may be larger, and are clipped."""
    return max((abs(word.value) for word in explanation.words), default=0.0) or 1.0


def _colours(value: float, limit: float) -> tuple[str, str]:
    """Background, and black or white on it, whichever is read more easily."""
    red, green, blue = (int(c) for c in colour(np.array([_STRONGEST * np.clip(value / limit, -1, 1)]))[0])
    bright = 0.2126 * _linear(red) + 0.7152 * _linear(green) + 0.0722 * _linear(blue)
    return f"#{red:02x}{green:02x}{blue:02x}", "#111111" if bright > 0.18 else "#ffffff"  # noqa: PLR2004 - equal contrast


def _linear(channel: int) -> float:
    c = channel / 255
    return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4  # noqa: PLR2004 - the definition of sRGB


def _says(piece: Any, explanation: Any) -> str:
    """What the pointer shows: the value, its part of the score, and the tokens of a word."""
    score = explanation.score
    part = f" ({piece.value / score:+.1%} of {score:.4g})" if score and explanation.beside else ""
    if piece.kind == "constants":
        return f"{piece.text}{part}: what is not from tokens"
    words = f"{piece.text.strip()} {piece.value:+.4g}{part}"
    inside = [t for t in explanation.tokens if t.end and piece.start <= t.start < piece.end]
    if piece.kind == "text" and len(inside) > 1:
        words += ": " + ", ".join(f"{t.text} {t.value:+.3g}" for t in inside)
    return {"special": "special token ", "outside": "not read: "}.get(piece.kind, "") + words


def _html_piece(piece: Any, explanation: Any, limit: float) -> str:
    shown = escape(piece.text)
    if piece.kind == "outside":
        return f'<s style="color:#888" title="{escape(_says(piece, explanation))}">{shown}</s>'
    if piece.kind == "text" and not piece.value and (not piece.end or not piece.text.strip()):
        return shown
    back, front = _colours(piece.value, limit)
    style = f"background:{back};color:{front};border-radius:3px;padding:1px 2px"
    if piece.kind != "text":
        style = f"{_SPECIAL};background:{back};color:{front}"
    words = escape(_says(piece, explanation))
    return f'<span style="{style}" title="{words}" data-says="{words}" tabindex="0">{shown}</span>'


def _table(explanation: Any) -> str:
    rows = "".join(
        f"<tr><td>{escape(t.text)}</td><td>{escape(t.kind)}</td><td>{t.value:+.5g}</td></tr>"
        for t in explanation.tokens
    )
    return (
        f"<details><summary>{len(explanation.tokens)} tokens</summary><table><thead><tr><th>token</th><th>kind</th>"
        f"<th>value</th></tr></thead><tbody>{rows}</tbody></table></details>"
    )


class _LineRows:
    """Words in lines of a fixed number of columns."""

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self._column, self._row = 0, 0

    def height(self) -> int:
        return (self._row + 1) * _LINE

    def add(self, piece: Any, explanation: Any, limit: float) -> None:
        coloured = piece.kind != "text" or bool(piece.end)
        for number, line in enumerate(visible(piece.text).split("\n")):
            if number:
                self._row, self._column = self._row + 1, 0
            for part in _wrapped(line, _COLUMNS) if coloured else [line]:
                self._place(part if coloured or self._column else part.lstrip(), piece, explanation, limit, coloured)

    def _place(self, part: str, piece: Any, explanation: Any, limit: float, coloured: bool) -> None:
        size = _width(part)
        if self._column and self._column + size > _COLUMNS:
            self._row, self._column = self._row + 1, 0
            part = part if coloured else part.lstrip()
            size = _width(part)
        if not part:
            return
        x, y = 16 + self._column * _WIDE, 44 + self._row * _LINE
        self._column += size
        if not coloured:
            if part.strip():
                self.drawn.append(_svg_text(x, y + 19, part, "fill:#1c1c1c"))
            return
        back, front = ("#ffffff", "#888888") if piece.kind == "outside" else _colours(piece.value, limit)
        edge = ' stroke="#999"' if piece.kind in {"special", "constants"} else ""
        strike = ";text-decoration:line-through" if piece.kind == "outside" else ""
        self.drawn.append(
            f"<g><title>{escape(_says(piece, explanation))}</title>"
            f'<rect x="{x - 1:.1f}" y="{y + 3}" width="{size * _WIDE + 2:.1f}" height="22" rx="3" fill="{back}"{edge}/>'
            f"{_svg_text(x, y + 19, part, f'fill:{front}{strike}')}</g>"
        )


def _svg_text(x: float, y: float, content: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" style="white-space:pre;{style}" xml:space="preserve">{escape(content)}</text>'


def _width(content: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in content)


def _wrapped(content: str, columns: int) -> list[str]:
    """Pieces of at most so many columns, broken at spaces where there are some."""
    lines = [""]
    for word in content.split(" ") if _width(content) > columns else [content]:
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if _width(joined) <= columns or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    return [line[i : i + columns] for line in lines for i in range(0, max(len(line), 1), columns)]


_STYLE = (
    "body{font-family:system-ui,-apple-system,Segoe UI,Roboto,sans-serif;"
    "max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1c1c1c;background:#fff}section{border-top:1px solid #ddd;padding:.6rem 0;break-inside:avoid}"
    "h1{font-size:1.3rem}.legend span{padding:1px 8px;margin-right:2px}.minus{background:#4a97cd}"
    ".zero{background:#f8f7f4}.plus{background:#ee8133}"
    "details{font-size:85%;margin:0 8px}td,th{text-align:left;padding:1px 14px 1px 0}"
    "td:last-child{font-variant-numeric:tabular-nums}[data-says]{position:relative;cursor:default}"
    "[data-says]:hover,[data-says]:focus{outline:2px solid #333}"
    "[data-says]:focus::after{content:attr(data-says);position:absolute;left:0;top:100%;z-index:9;background:#222;"
    "color:#fff;padding:3px 8px;border-radius:4px;font-size:13px;line-height:1.4;white-space:normal;width:max-content;"
    "max-width:24rem}@media print{details{display:none}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}"
)
