"""From windows back to texts: overlaps shared, special tokens together, the rest as it stands in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from axiograd.text.attributing import Attributed, TextMethod
from axiograd.text.explanation import Kind, Piece, TextExplanation
from axiograd.text.reading import Window

if TYPE_CHECKING:
    from axiograd.text.explaining import Question


def assembled(
    text: str, windows: Sequence[tuple[Window, Attributed | None]], asked: Sequence[Question], how: TextMethod
) -> TextExplanation:
    """One explanation of the mean over the windows that were asked: every token has the mean of what they gave it."""
    done = [one for _, one in windows if one is not None]
    share = 1 / len(done)
    score, difference = (sum(part) * share for part in zip(*((d.score, d.difference) for d in done), strict=True))
    tokens = _tokens(text, windows, share, how)
    prefix = windows[0][0].prefix
    for token, value in zip(prefix, done[0].prefix, strict=True):
        kind: Kind = "special" if token == prefix[0] else "prefix"
        tokens.append(Piece(how.tokenizer.convert_ids_to_tokens(token), value * share, kind))
    total = sum(token.value for token in tokens)
    question = asked[0]
    energies = [d.energy * d.score for d in done if d.energy is not None]
    return TextExplanation(
        text,
        tuple(tokens),
        question.name,
        question.versus,
        score,
        question.probability,
        how.title,
        how.baseline_name,
        difference,
        abs(total - difference) / abs(difference) if how.entry.adds_up and difference else None,
        sum(energies) * share / score if energies and score else None,
        len(done),
        question.word,
        how.tokenizer.decode(prefix[1:]) if len(prefix) > 1 else None,
    )


def _tokens(
    text: str, windows: Sequence[tuple[Window, Attributed | None]], share: float, how: TextMethod
) -> list[Piece]:
    before: dict[int, Piece] = {}
    after: dict[int, Piece] = {}
    inside: dict[int, Piece] = {}
    for window, found in windows:
        ordinary = [i for i, special in enumerate(window.special) if not special]
        values = [0.0] * len(window.ids) if found is None else found.values
        names = how.tokenizer.convert_ids_to_tokens(window.ids)
        for i, (name, value) in enumerate(zip(names, values, strict=True)):
            special = window.special[i]
            if special:
                where, key = (before, i) if not ordinary or i < ordinary[0] else (after, i - ordinary[-1])
            else:
                where, key = inside, window.first + ordinary.index(i)
            start, end = window.offsets[i]
            kind: Kind = "special" if special else "outside" if found is None else "text"
            known = where.get(key)
            if known is None:
                where[key] = Piece(name, value * share, kind, *((0, 0) if special else (start, end)))
            else:
                seen: Kind = "text" if {known.kind, kind} == {"text", "outside"} else known.kind
                where[key] = Piece(known.text, known.value + value * share, seen, known.start, known.end)
    first = min((p.start for p in inside.values()), default=0)
    cut = [Piece(text[:first], 0.0, "outside", 0, first)] if text[:first].strip() else []
    ordered = [where[key] for where in (before, inside, after) for key in sorted(where)]
    return [*ordered[: len(before)], *cut, *ordered[len(before) :]]
