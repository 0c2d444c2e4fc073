"""From texts to batches of token ids: windows of what the model takes, padded on the right."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.errors import ConfigurationError, InputError

#: Lengths are rounded up to powers of two from here on, so that a proof for one batch covers the next.
_SHORTEST = 16
#: Tokenizers that know no limit say this or more.
_NO_LIMIT = 10**6


@dataclass(frozen=True)
class Window:
    """A piece of one text as the model sees it."""

    text: int
    ids: list[int]
    #: Where each token stands in the text.
    offsets: list[tuple[int, int]]
    special: list[bool]
    #: Further inputs of the tokenizer, such as token_type_ids.
    further: dict[str, list[int]] = field(default_factory=dict)
    #: Place of its first ordinary token among the text's tokens.
    first: int = 0
    #: What the decoder has written so far, with its start token.
    prefix: list[int] = field(default_factory=list)


def takes(model: nn.Module) -> set[str]:
    """Names of the arguments of forward."""
    return set(inspect.signature(model.forward).parameters)


def longest(model: nn.Module, tokenizer: Any, given: int | None) -> int | None:
    """How many tokens the model takes at once; None: any number."""
    if given is not None:
        if given < 8:  # noqa: PLR2004 - special tokens, an overlap, and something to say
            raise ConfigurationError(f"max_length={given}: a window has at least 8 tokens.")
        return given
    config = getattr(model, "config", None)
    limits = [getattr(tokenizer, "model_max_length", _NO_LIMIT)]
    for name in ("max_position_embeddings", "n_positions"):
        limit = getattr(config, name, None)
        if isinstance(limit, int) and limit > 0 and not getattr(config, "is_encoder_decoder", False):
            # Positions that begin behind the padding's own (RoBERTa) are fewer than their table is long.
            tables = [m for n, m in model.named_modules() if n.endswith("position_embeddings")]
            skipped = next((m.padding_idx + 1 for m in tables if getattr(m, "padding_idx", None) is not None), 0)
            limits.append(limit - skipped)
    limit = min(limits)
    return None if limit >= _NO_LIMIT else int(limit)


def read(
    model: nn.Module, tokenizer: Any, texts: Sequence[str], *, limit: int | None, overlap: int | None, last_only: bool
) -> list[Window]:
    """The windows of every text, in order; ``last_only`` keeps the end of a text that is too long."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"{type(tokenizer).__name__} does not say where its tokens stand in the text: pass a fast tokenizer "
            "(AutoTokenizer.from_pretrained(..., use_fast=True))."
        )
    accepted = takes(model)
    windows: list[Window] = []
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {place} is of type {type(text).__name__}: expected a string.")
        if not text.strip():
            raise InputError(f"text {place} is empty: there is nothing to explain.")
        settings: dict[str, Any] = {}
        if limit is not None and not last_only:
            stride = min(64, limit // 4) if overlap is None else overlap
            room = limit - tokenizer.num_special_tokens_to_add()
            if not 0 <= stride < room:
                raise ConfigurationError(f"overlap={stride}: windows of {room} tokens overlap by 0 to {room - 1}.")
            settings = {"truncation": True, "max_length": limit, "stride": stride, "return_overflowing_tokens": True}
        encoded = tokenizer(
            [text], return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False, **settings
        )
        first, before = 0, len(windows)
        for i, ids in enumerate(encoded["input_ids"]):
            offsets, special = encoded["offset_mapping"][i], [bool(s) for s in encoded["special_tokens_mask"][i]]
            cut = slice(max(0, len(ids) - limit) if last_only and limit is not None else 0, None)
            first += sum(not s for s in special[: cut.start])
            own = {"input_ids", "attention_mask", "offset_mapping", "special_tokens_mask", "overflow_to_sample_mapping"}
            further = {k: list(v[i][cut]) for k, v in encoded.items() if k not in own and k in accepted}
            windows.append(
                Window(place, list(ids[cut]), [tuple(o) for o in offsets[cut]], special[cut], further, first)
            )
            first += sum(not s for s in special) - (settings.get("stride", 0))
        if all(all(window.special) for window in windows[before:]):
            raise InputError(f"text {place}, {text[:40]!r}, has no tokens for this tokenizer.")
    return windows


def collate(
    windows: Sequence[Window], model: nn.Module, tokenizer: Any, *, limit: int | None, device: torch.device
) -> dict[str, Tensor]:
    """One call of the model: ids, masks, and what else the tokenizer gave, padded on the right."""
    accepted = takes(model)
    width = max(len(w.ids) for w in windows)
    if any(w is not windows[0] for w in windows):
        rounded = max(_SHORTEST, 1 << (width - 1).bit_length())
        width = rounded if limit is None else max(width, min(limit, rounded))
    if "attention_mask" not in accepted or padding_id(model, tokenizer) is None:
        width = max(len(w.ids) for w in windows)
    fill = padding_id(model, tokenizer) or 0
    call = {"input_ids": _padded([w.ids for w in windows], width, fill)}
    if "attention_mask" in accepted:
        call["attention_mask"] = _padded([[1] * len(w.ids) for w in windows], width, 0)
    for name in windows[0].further:
        call[name] = _padded([w.further[name] for w in windows], width, 0)
    if windows[0].prefix:
        written = max(len(w.prefix) for w in windows)
        call["decoder_input_ids"] = _padded([w.prefix for w in windows], written, fill)
        if "decoder_attention_mask" in accepted:
            call["decoder_attention_mask"] = _padded([[1] * len(w.prefix) for w in windows], written, 0)
    return {name: value.to(device) for name, value in call.items()}


def padding_id(model: nn.Module, tokenizer: Any) -> int | None:
    """The id that the model takes for padding; None if a batch cannot be padded."""
    config = getattr(model, "config", None)
    named = getattr(config, "pad_token_id", None)
    if named is None and type(model).__name__.endswith("ForSequenceClassification"):
        return None  # a model that looks for the last token of each text needs to know
    return named if named is not None else getattr(tokenizer, "pad_token_id", None) or 0


def _padded(rows: Sequence[Sequence[int]], width: int, fill: int) -> Tensor:
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])
