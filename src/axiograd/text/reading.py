"""From texts to batches of token ids, and from tokens back to words, by the tokenizer alone."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.errors import InputError, TargetError
from axiograd.text.explanation import Piece

#: Tokenizers that know no limit say this or more.
_NO_LIMIT = 10**6


class Texts:
    """Texts as one model reads them; those that are too long are cut, and a warning says so."""

    def __init__(
        self, model: nn.Module, tokenizer: Any, texts: Sequence[Any], *, max_length: int | None, causal: bool
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise InputError(
                f"{type(tokenizer).__name__} does not say where its tokens stand in the text: pass a fast tokenizer "
                "(AutoTokenizer.from_pretrained(..., use_fast=True))."
            )
        for place, text in enumerate(texts):
            if not (isinstance(text, str) and text.strip()):  # a cell of a table may be a number
                raise InputError(f"text {place} is {text!r}: expected a string with words in it.")
        self.model, self.tokenizer, self.texts, self._causal = model, tokenizer, texts, causal
        self._arguments = set(inspect.signature(model.forward).parameters)
        limit = longest(model, tokenizer) if max_length is None else max_length
        side, tokenizer.truncation_side = tokenizer.truncation_side, "left" if causal else "right"
        try:
            self._encoded = tokenizer(list(texts), truncation=limit is not None, max_length=limit)
        finally:
            tokenizer.truncation_side = side
        self.encodings = self._encoded.encodings
        for text, encoding in zip(texts, self.encodings, strict=True):
            if all(encoding.special_tokens_mask):
                raise InputError(f"the text {text[:40]!r} has no tokens for this tokenizer.")
        if cut := sum(bool(encoding.overflowing) for encoding in self.encodings):
            warnings.warn(
                f"{cut} of {len(texts)} texts have more than {limit} tokens: the model reads the "
                f"{'last' if causal else 'first'} {limit}, and the rest is struck out.",
                stacklevel=3,
            )

    def batches(self, size: int) -> list[list[int]]:
        """Texts of like length together; each alone where the model cannot be told what padding is."""
        config = getattr(self.model, "config", None)
        pads = self.tokenizer.pad_token is not None and getattr(config, "pad_token_id", 0) is not None
        size = size if pads and self._takes("attention_mask") else 1
        ordered = sorted(range(len(self.encodings)), key=lambda row: len(self.encodings[row]))
        return [ordered[i : i + size] for i in range(0, len(ordered), size)]

    def call(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """What the model is called with for some of the texts, padded on the right."""
        found = {name: [values[row] for row in rows] for name, values in self._encoded.items() if self._takes(name)}
        if len(rows) > 1:
            found = self.tokenizer.pad(found, padding_side="right")
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        return {name: torch.tensor(values, device=device) for name, values in found.items()}

    def _takes(self, name: str) -> bool:
        """Whether forward has this argument; a wrapper that hands on whatever it gets takes all that there is."""
        return name in self._arguments or "input_ids" not in self._arguments

    def special_tokens(self, rows: Sequence[int]) -> Tensor:
        """Whether each token of a batch is the tokenizer's, or padding."""
        masks = [torch.tensor(self.encodings[row].special_tokens_mask, dtype=torch.bool) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(masks, batch_first=True, padding_value=True)

    def position(self, row: int, at: int | str | None) -> int:
        """The token that stands at a place of the text, or where the given words begin.

        For None it is the last one, of causal models, and otherwise −1, which is not known yet.
        """
        if at is None:
            return len(self.encodings[row]) - 1 if self._causal else -1
        text, start = self.texts[row], at
        if isinstance(at, str):
            start = text.find(at)
            if start < 0 or text.find(at, start + 1) >= 0:
                often = "does not occur" if start < 0 else "occurs several times"
                raise TargetError(f"at={at!r} {often} in the text {text[:60]!r}: give the place of its first letter.")
        found: int | None = self.encodings[row].char_to_token(start)
        if found is None:
            raise TargetError(f"at={at!r}: the model reads no token there of the text {text[:60]!r}.")
        return found

    def word(self, row: int, token: int) -> str:
        """The word that a token is in."""
        start, end = self.encodings[row].word_to_chars(self.encodings[row].token_to_word(token))
        return str(self.texts[row][start:end].strip())

    def tokens(self, row: int, values: Sequence[float]) -> tuple[Piece, ...]:
        """Every token with its value."""
        encoding = self.encodings[row]
        # Behind them may be padding.
        rows = zip(encoding.tokens, values, encoding.special_tokens_mask, encoding.offsets, strict=False)
        return tuple(
            Piece(name, value, "special") if special else Piece(name, value, "text", start, end)
            for name, value, special, (start, end) in rows
        )

    def words(self, row: int, tokens: Sequence[Piece]) -> tuple[Piece, ...]:
        """The words of the text, each with the sum of its tokens, and what the model did not read."""
        text, words = self.texts[row], list[Piece]()
        last, waiting = None, 0.0
        for token, word in zip(tokens, self.encodings[row].word_ids, strict=True):
            if token.kind == "special":
                continue
            shown = text[token.start : token.end]
            if not shown.strip():  # a space of its own, which belongs to what follows
                waiting += token.value
                continue
            start = token.start + len(shown) - len(shown.lstrip())
            value, waiting, same = token.value + waiting, 0.0, word == last and not text[start - 1 : start].isspace()
            last = word
            if words and same:
                before = words.pop()
                start, value = before.start, before.value + value
            words.append(Piece(text[start : token.end], value, "text", start, token.end))
        if waiting and words:
            words[-1] = replace(words[-1], value=words[-1].value + waiting)
        first, end = (words[0].start, words[-1].end) if words else (0, 0)
        ends = [Piece(text[a:b], 0.0, "outside", a, b) for a, b in ((0, first), (end, len(text)))]
        unread, unread_after = ([piece] if piece.text.strip() else [] for piece in ends)
        return (*unread, *words, *unread_after)


def longest(model: nn.Module, tokenizer: Any) -> int | None:
    """How many tokens the model takes at once; None: any number."""
    limits = [tokenizer.model_max_length]
    limit = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if isinstance(limit, int) and limit > 0:
        # Positions that begin behind the padding's own (RoBERTa) are fewer than their table is long.
        tables = [m for name, m in model.named_modules() if name.endswith("position_embeddings")]
        skipped = next((m.padding_idx + 1 for m in tables if getattr(m, "padding_idx", None) is not None), 0)
        limits.append(limit - skipped)
    return None if min(limits) >= _NO_LIMIT else int(min(limits))
