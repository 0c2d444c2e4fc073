"""What is asked of a model about a text: a label, a label of one word, the next token, or one rather than another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from axiograd._calls import logits
from axiograd._names import choose_from
from axiograd.errors import ConfigurationError, TargetError
from axiograd.text.reading import Window

#: A label of the text, a label of each token, the next token, or the next token of what a decoder writes.
Task = Literal["sequence", "token", "causal", "seq2seq"]

_BY_CLASS: tuple[tuple[str, Task], ...] = (
    ("ForSequenceClassification", "sequence"),
    ("ForTokenClassification", "token"),
    ("ForConditionalGeneration", "seq2seq"),
    ("ForCausalLM", "causal"),
    ("LMHeadModel", "causal"),
)


def task_of(model: nn.Module, given: str | None) -> Task:
    """The task that a model's class names.

    >>> task_of(type("GPT2LMHeadModel", (nn.Module,), {})(), None)
    'causal'
    """
    if given is not None:
        if given not in get_args(Task):
            raise ConfigurationError(f"task={given!r}: {choose_from(given, get_args(Task))}.")
        return given  # type: ignore[return-value]  # one of them
    if isinstance(own := getattr(model, "task", None), str) and own in get_args(Task):
        return own  # type: ignore[return-value]  # one of them
    for kind in type(model).__mro__:
        for ending, task in _BY_CLASS:
            if kind.__name__.endswith(ending):
                return task
    raise ConfigurationError(
        f"{type(model).__name__} does not say what it answers: give task= 'sequence' (a label of the text), 'token' (a "
        "label of each token), 'causal' (the next token) or 'seq2seq' (the next token of a decoder)."
    )


class Scored(nn.Module):
    """One number per text: the logit of one answer, minus that of another where ``minus`` is given.

    Of outputs with a token dimension, the logits are those at the position ``at``.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = model.training

    def forward(self, *, at: Tensor, plus: Tensor, minus: Tensor | None = None, **call: Any) -> Tensor:
        found = answers(self.model(**call), at)
        score = found.gather(1, plus[:, None])[:, 0]
        return score if minus is None else score - found.gather(1, minus[:, None])[:, 0]


def answers(output: Any, at: Tensor) -> Tensor:
    """Logits shaped [batch, answers]: of the text, or of one of its positions."""
    found = logits(output)
    if found.dim() == 3:  # noqa: PLR2004 - batch, tokens, answers
        where = at[:, None, None].expand(-1, 1, found.shape[2])
        found = found.gather(1, where)[:, 0]
    return found


@dataclass(frozen=True)
class Names:
    """How the answers of a model are called: labels of its configuration, or tokens."""

    model: Any
    tokenizer: Any
    task: Task

    def name(self, index: int) -> str:
        if self.task in {"causal", "seq2seq"}:
            return repr(self.tokenizer.decode([index]))
        labels = getattr(getattr(self.model, "config", None), "id2label", None) or {}
        return str(labels.get(index, index))

    def index(self, given: Any, count: int) -> int:
        """The number of an answer by number, label or token."""
        if isinstance(given, bool) or not isinstance(given, int | str | Tensor):
            raise TargetError(f"target {given!r}: expected a number, a label or a token.")
        if isinstance(given, str):
            return self._by_token(given) if self.task in {"causal", "seq2seq"} else self._by_label(given, count)
        index = int(given)
        if not 0 <= index < count:
            raise TargetError(f"target {index} is out of range: the model has {count} answers, from 0 to {count - 1}.")
        return index

    def _by_label(self, given: str, count: int) -> int:
        labels = [self.name(i) for i in range(count)]
        found = [i for i, label in enumerate(labels) if label.lower() == given.lower()]
        if len(found) != 1:
            raise TargetError(f"no label {given!r}: {choose_from(given, labels)}.")
        return found[0]

    def _by_token(self, given: str) -> int:
        ids = self.tokenizer(given, add_special_tokens=False)["input_ids"]
        known = self.tokenizer.convert_tokens_to_ids(given) if len(ids) != 1 else None
        if known is not None and known != getattr(self.tokenizer, "unk_token_id", None):
            return int(known)
        if len(ids) != 1 or ids[0] == getattr(self.tokenizer, "unk_token_id", None):
            parts = [self.tokenizer.decode([i]) for i in ids]
            raise TargetError(
                f"{given!r} is not one token of this tokenizer but {parts}: give one of them, or the token's number. "
                "For many models a word inside a text begins with its space, ' word'."
            )
        return int(ids[0])


def position(window: Window, task: Task) -> int:
    """Where the model answers, for tasks that have one place: the last token that is there."""
    return len(window.prefix if task == "seq2seq" else window.ids) - 1


def tokens_at(text: str, at: int | str, windows: Sequence[Window]) -> tuple[int, int, str]:
    """The window and the position in it that answer for a word, and the word: its first token, most central."""
    if isinstance(at, str):
        start = text.find(at)
        if start < 0 or not at:
            raise TargetError(f"at={at!r} does not occur in the text {text[:60]!r}.")
        if text.find(at, start + 1) >= 0:
            raise TargetError(f"at={at!r} occurs several times in the text: give the place of its first character.")
        end = start + len(at)
    else:
        start, end = int(at), int(at) + 1
    best: tuple[int, int, int] | None = None
    for number, window in enumerate(windows):
        for i, (a, b) in enumerate(window.offsets):
            if not window.special[i] and a < end and start < b:
                central = min(i, len(window.ids) - 1 - i)
                if best is None or central > best[0]:
                    best = (central, number, i)
                break
    if best is None:
        raise TargetError(f"at={at!r}: no token of the text {text[:60]!r} stands there.")
    a, b = windows[best[1]].offsets[best[2]]
    return best[1], best[2], at if isinstance(at, str) else text[a:b]


def most_certain(found: Sequence[Tensor], windows: Sequence[Window], names: Names) -> int:
    """The place in the text whose token is most surely of a label that is not "O"."""
    best, place = -1.0, 0
    for scores, window in zip(found, windows, strict=True):
        sure = torch.softmax(scores.double(), -1)
        outside = [i for i in range(sure.shape[1]) if names.name(i).upper() == "O"]
        sure[:, outside] = 0.0
        for i, (start, _) in enumerate(window.offsets):
            if not window.special[i] and float(sure[i].max()) > best:
                best, place = float(sure[i].max()), start
    return place
