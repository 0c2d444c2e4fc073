"""What an explanation of a text holds: its tokens and words, each with what it adds to the score."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from axiograd._notebook import drawn_by, shown_by

#: Of the text, added by the tokenizer, not read by the model, or no token at all.
Kind = Literal["text", "special", "outside", "constants"]


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
    """One text, one score, and what of it comes from every word: score = Σ words + special tokens + constants.

    >>> words = (Piece("great", 1.5, start=0, end=5), Piece("film", 0.5, start=6, end=10))
    >>> tokens = (Piece("[CLS]", 0.25, "special"), *words)
    >>> one = TextExplanation("great film", tokens, words, "positive", 2.5, "Held gradient", "constants")
    >>> one.of_words, one.special, one.constants
    (2.0, 0.25, 0.25)
    """

    text: str
    #: All that the model reads, also what the tokenizer adds.
    tokens: tuple[Piece, ...]
    #: The words of the text, each with the sum of its tokens, and what the model does not read.
    words: tuple[Piece, ...]
    #: What is attributed: a label, a token, or one rather than another.
    target: str
    #: The logit, or the difference of two.
    score: float
    #: The method's title.
    method: str
    #: What the score has beside its tokens: "constants", or the score at the start of a path. None: the values are not
    #: parts of the score.
    beside: str | None
    versus: str | None = None
    probability: float | None = None
    #: For token classifiers: the word that is labelled.
    at: str | None = None

    _repr_html_ = shown_by("text_html", "texts")
    #: The coloured text as an image that needs no style sheet.
    to_svg = drawn_by("text_svg", "texts")
    __rich__ = drawn_by("text_rich", "texts")

    @property
    def of_words(self) -> float:
        """What the words add up to."""
        return sum(token.value for token in self.tokens if token.kind == "text")

    @property
    def special(self) -> float:
        """What the tokens that the tokenizer added have of the score."""
        return sum(token.value for token in self.tokens if token.kind == "special")

    @property
    def constants(self) -> float:
        """What is not from tokens, biases and positions; of a path, the score where it starts."""
        return self.score - sum(token.value for token in self.tokens) if self.beside else 0.0

    @property
    def share_of_words(self) -> float:
        """|words| / (|words| + |score − words|), of their sum: below a half where it has the other sign."""
        words = abs(self.of_words)
        return words / (words + abs(self.score - self.of_words)) if words else 0.0

    def headline(self) -> str:
        """The explained score in one line, and whether the words are the smaller part of it."""
        rather = f" rather than {self.versus}" if self.versus is not None else ""
        sure = "" if self.probability is None else f", probability {self.probability:.1%}"
        where = f" at {self.at!r}" if self.at is not None else ""
        said = f"{self.target}{rather}{where}: score {_number(self.score)}{sure}"
        return f"{said}; {self.warning}" if self.warning else said

    @property
    def warning(self) -> str:
        """That the words are the smaller part of the score, or nothing."""
        small = self.beside and self.share_of_words < 1 / 2
        return f"mostly not from the words, which have {_signed(self.of_words)} of it" if small else ""

    def notes(self) -> list[str]:
        """Notes for the reader: the sum, the method, and what the model did not read."""
        found = [self.method]
        if self.beside:
            parts = [f"words {_signed(self.of_words)}"]
            if any(token.kind == "special" for token in self.tokens):
                parts.append(f"special tokens {_signed(self.special)}")
            parts.append(f"{self.beside} {_signed(self.constants)} = {_number(self.score)}")
            found = [", ".join(parts), self.method]
        if any(word.kind == "outside" for word in self.words):
            found.append("the model did not read what is struck out")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain Python, for JSON."""
        return {**asdict(self), "constants": self.constants}

    def __str__(self) -> str:
        top = sorted(self.words, key=lambda word: -abs(word.value))[:5]
        return f"{self.headline()} ({', '.join(f'{word.text} {_signed(word.value)}' for word in top)})"


class TextExplanations(tuple[TextExplanation, ...]):
    """Several texts, shown below each other."""

    __slots__ = ()
    _repr_html_ = shown_by("texts_html", "texts")
    __rich__ = drawn_by("texts_rich", "texts")


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")
