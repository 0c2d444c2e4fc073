"""What an explanation of a text holds: its tokens and words, each with what it adds to the score."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from axiograd._notebook import drawn_by, shown_by

#: A token of the text, one that the tokenizer adds, one of the decoder's prefix, or one that the model did not see.
Kind = Literal["text", "special", "prefix", "outside"]

#: Errors below are rounding or a fine quadrature's.
_SMALL = 1e-3
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]", re.UNICODE)


@dataclass(frozen=True)
class Piece:
    """A token or a word: where it stands in the text, and what it adds to the score."""

    text: str
    value: float
    kind: Kind = "text"
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class TextExplanation:
    """One text, one score, and the score shared out over tokens and words.

    The values of `tokens` add up to `difference`, up to the relative `error`; those of `words` leave out what the
    tokenizer added.
    """

    text: str
    tokens: tuple[Piece, ...]
    #: What is attributed: a label, a token, or one rather than another.
    target: str
    versus: str | None
    #: The logit, or the difference of two; over several windows, their mean.
    score: float
    probability: float | None
    method: str
    baseline: str
    #: F(x) − F(x′), the score minus that at the baseline: what the values should add up to.
    difference: float
    #: |Σ values − (F(x) − F(x′))| / |F(x) − F(x′)|; None for methods that do not claim to add up.
    error: float | None
    #: Of a lifted network: (F − x·∇f)/F, the part that is shared out by the size of the embeddings alone.
    energy: float | None = None
    windows: int = 1
    #: For tokens: where in the text the answer is.
    at: str | None = None
    prefix: str | None = None

    _repr_html_ = shown_by("text_html", "texts")
    #: The coloured text as an image that needs no style sheet.
    to_svg = shown_by("text_svg", "texts")
    __rich__ = drawn_by("text_rich", "texts")

    @cached_property
    def words(self) -> tuple[Piece, ...]:
        """The words of the text, each with the sum of its tokens.

        >>> tokens = (Piece("wonder", 0.5, start=2, end=8), Piece("##ful", 0.25, start=8, end=11))
        >>> one = TextExplanation("a wonderful film", tokens, "good", None, 1.0, None, "", "zero", 1.0, None)
        >>> [(word.text, word.value) for word in one.words]
        [('a', 0.0), ('wonderful', 0.75), ('film', 0.0)]
        """
        spans = merged_words(self.text, [(t.start, t.end) for t in self.tokens if t.kind in {"text", "outside"}])
        values, seen = [0.0] * len(spans), [False] * len(spans)
        for token in self.tokens:
            where = _containing(spans, self.text, token) if token.kind in {"text", "outside"} else None
            if where is not None:
                values[where] += token.value
                seen[where] |= token.kind == "text"
        return tuple(
            Piece(self.text[start:end], value, "text" if here or value else self._kind(start, end), start, end)
            for (start, end), value, here in zip(spans, values, seen, strict=True)
        )

    def tokens_in(self, start: int, end: int) -> tuple[Piece, ...]:
        """The tokens of a stretch of the text, without those that the tokenizer added."""
        tokens, starts, ends = self._in_order
        return tuple(tokens[bisect_right(ends, start) : bisect_left(starts, end)])

    @cached_property
    def _in_order(self) -> tuple[list[Piece], list[int], list[int]]:
        found = sorted((t for t in self.tokens if t.kind in {"text", "outside"}), key=lambda t: (t.start, t.end))
        return found, [t.start for t in found], [t.end for t in found]

    def _kind(self, start: int, end: int) -> Kind:
        inside = {token.kind for token in self.tokens_in(start, end)}
        return "outside" if inside == {"outside"} else "text"

    @property
    def special(self) -> float:
        """What the tokens that the tokenizer added have of the score."""
        return sum(token.value for token in self.tokens if token.kind == "special")

    def headline(self) -> str:
        """What is explained, in one line."""
        rather = f" rather than {self.versus}" if self.versus is not None else ""
        sure = "" if self.probability is None else f", probability {self.probability:.1%}"
        where = f" at {self.at!r}" if self.at is not None else ""
        return f"{self.target}{rather}{where}: score {self.score:.4g}{sure}"

    def notes(self) -> list[str]:
        """What to know when reading it: method, baseline, completeness, energy, windows."""
        found = [f"{self.method} against {self.baseline}"]
        if self.error is not None:
            same = abs(self.difference - self.score) <= _SMALL * abs(self.score)
            what = "the score" if same else f"the score minus that at the baseline, {self.difference:.4g},"
            add_up = self.error <= _SMALL
            found.append(
                f"values add up to {what} to {self.error:.0e}" if add_up else f"values miss {what} by {self.error:.0%}"
            )
        if self.energy is not None:
            found.append(
                f"lifted at the embeddings: {self.energy:.0%} of the score is the energy part, shared out by the size "
                "of each embedding alone, and the rest is Input×Gradient of the model"
            )
        if self.windows > 1:
            found.append(f"mean over {self.windows} windows")
        if any(token.kind == "outside" for token in self.tokens):
            found.append("the model did not see the text that is struck out")
        if any(token.kind == "special" for token in self.tokens):
            found.append(f"special tokens have {self.special:+.3g} of it")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain Python, for JSON."""
        return {**asdict(self), "words": [asdict(word) for word in self.words]}

    def __str__(self) -> str:
        top = sorted(self.words, key=lambda word: -abs(word.value))[:5]
        listed = ", ".join(f"{word.text} {word.value:+.3g}" for word in top)
        return f"{self.headline()} ({listed})"


class TextExplanations(tuple[TextExplanation, ...]):
    """Several texts, shown below each other."""

    __slots__ = ()
    _repr_html_ = shown_by("texts_html", "texts")
    __rich__ = drawn_by("texts_rich", "texts")


def merged_words(text: str, tokens: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where the words of a text are; those that one token holds together are one.

    >>> merged_words("it's 5 p.m.", [])
    [(0, 4), (5, 6), (7, 8), (8, 9), (9, 10), (10, 11)]
    >>> merged_words("p.m.", [(0, 4)])
    [(0, 4)]
    """
    spans = [found.span() for found in _WORD.finditer(text)]
    for start, end in tokens:
        first, last = (
            bisect_right(spans, start, key=lambda span: span[1]),
            bisect_left(spans, end, key=lambda span: span[0]),
        )
        if last - first > 1:
            spans[first:last] = [(spans[first][0], spans[last - 1][1])]
    return spans


def _containing(spans: Sequence[tuple[int, int]], text: str, token: Piece) -> int | None:
    """The word of a token; of one that is white space alone, the next one."""
    held = text[token.start : token.end]
    first = token.start + len(held) - len(held.lstrip())
    found = bisect_right(spans, first, key=lambda span: span[1])  # the first that ends behind it
    if found < len(spans) and spans[found][0] <= first:
        return found
    after = bisect_left(spans, token.start, key=lambda span: span[0])
    return min(after, len(spans) - 1) if spans else None
