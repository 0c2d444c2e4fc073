"""The question for a model of texts: a label, the label of one word, the next token, or one rather than another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from axiograd._calls import logits
from axiograd._names import choose_from
from axiograd.errors import ConfigurationError, TargetError

#: A label of the text, a label of each token, or the next token.
Task = Literal["sequence", "token", "causal"]

_BY_CLASS: tuple[tuple[str, Task], ...] = (
    ("ForSequenceClassification", "sequence"),
    ("ForTokenClassification", "token"),
    ("ForCausalLM", "causal"),
    ("LMHeadModel", "causal"),
)


def task_of(model: nn.Module, given: str | None) -> Task:
    """The task that a model's class names.

    >>> task_of(type("GPT2LMHeadModel", (nn.Module,), {})(), None)
    'causal'
    """
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise ConfigurationError(f"{type(model).__name__} is an encoder-decoder, which text.explain does not take.")
    given = given or getattr(model, "task", None)
    if given is not None:
        if given not in get_args(Task):
            raise ConfigurationError(f"task={given!r}: {choose_from(given, get_args(Task))}.")
        return given  # type: ignore[return-value]  # one of them
    for kind in type(model).__mro__:
        for ending, task in _BY_CLASS:
            if kind.__name__.endswith(ending):
                return task
    raise ConfigurationError(
        f"{type(model).__name__} does not say which task it solves: give task= 'sequence' (a label of the text), "
        "'token' (a label of each token) or 'causal' (the next token)."
    )


@dataclass(frozen=True)
class Names:
    """How the answers of a model are called: labels of its configuration, or tokens."""

    model: Any
    tokenizer: Any
    task: Task

    def name(self, index: int) -> str:
        if self.task == "causal":
            return repr(self.tokenizer.decode([index]))
        return str(self._labels.get(index, index))

    def index(self, given: Any) -> int:
        """The number of an answer by number, label or token; -1, for None, is what the model says."""
        if given is None:
            return -1
        if isinstance(given, str):
            return self._by_token(given) if self.task == "causal" else self._by_label(given)
        if isinstance(given, bool) or not isinstance(given, int | Tensor) or int(given) < 0:
            raise TargetError(f"target {given!r}: expected a number from 0 on, a label or a token.")
        return int(given)

    @property
    def outside(self) -> list[int]:
        """Labels of tokens that are nothing in particular."""
        return [index for index, label in self._labels.items() if label.upper() == "O"]

    @property
    def _labels(self) -> dict[int, str]:
        return getattr(getattr(self.model, "config", None), "id2label", None) or {}

    def _by_label(self, given: str) -> int:
        found = [index for index, label in self._labels.items() if label.lower() == given.lower()]
        if len(found) != 1:
            raise TargetError(f"no label {given!r}: {choose_from(given, self._labels.values())}.")
        return found[0]

    def _by_token(self, given: str) -> int:
        ids = self.tokenizer(given, add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or ids[0] == self.tokenizer.unk_token_id:
            parts = [self.tokenizer.decode([i]) for i in ids]
            raise TargetError(
                f"{given!r} is not one token of this tokenizer but {parts}: give one of them, or the token's number. "
                "For many models a word inside a text begins with its space, ' word'."
            )
        return int(ids[0])


class Question:
    """The score of each text of a batch: the logit of `plus`, minus that of `minus`, at the token `at`.

    What is −1 is what the model says itself when it is asked first, which has to be at the texts.
    """

    def __init__(
        self, names: Names, special: Tensor, *, at: Sequence[int], plus: Sequence[int], minus: Sequence[int] | None
    ) -> None:
        self.names, self.special = names, special
        self.at, self.plus = torch.tensor(at, device=special.device), torch.tensor(plus, device=special.device)
        self.minus = None if minus is None else torch.tensor(minus, device=special.device)
        self._logits = torch.empty(0)

    def __call__(self, output: Any) -> Tensor:
        found = logits(output)
        found = found[:, None] if found.dim() == 1 else found
        if not self._logits.numel():
            self._logits = self._settled(found.detach())
        # Copies of one text have its answer.
        rows = torch.arange(len(found), device=found.device)
        plus, at = self.plus.expand(len(rows)), self.at.expand(len(rows))
        minus = None if self.minus is None else self.minus.expand(len(rows))
        found = found if found.dim() == 2 else found[rows, at]  # noqa: PLR2004 - batch and answers
        return found[rows, plus] if minus is None else found[rows, plus] - found[rows, minus]

    def scores(self) -> list[float]:
        """The score of each text, once it was asked for."""
        found: list[float] = (self._of(self.plus) - (0 if self.minus is None else self._of(self.minus))).tolist()
        return found

    def probabilities(self) -> list[float] | list[None]:
        """Of `plus`, where there is anything else."""
        if self._logits.shape[1] == 1:
            return [None] * len(self.plus)
        found: list[float] = (self._of(self.plus) - self._logits.double().logsumexp(1)).exp().tolist()
        return found

    def _of(self, answers: Tensor) -> Tensor:
        return self._logits.double().gather(1, answers[:, None])[:, 0]

    def _settled(self, found: Tensor) -> Tensor:
        if found.dim() == 3:  # noqa: PLR2004 - batch, tokens, answers
            sure = found.softmax(-1)
            sure[..., self.names.outside] = 0
            sure[self.special] = 0
            self.at = torch.where(self.at < 0, sure.amax(-1).argmax(1), self.at)
            found = found[torch.arange(len(found), device=found.device), self.at]
        self.plus = torch.where(self.plus < 0, found.argmax(1), self.plus)
        count = found.shape[1]
        for asked in (self.plus,) if self.minus is None else (self.plus, self.minus):
            if int(asked.max()) >= count:
                raise TargetError(
                    f"target {int(asked.max())} is out of range: the model has {count} answers, from 0 to {count - 1}."
                )
        if self.minus is not None and bool((same := self.plus == self.minus).any()):
            name = self.names.name(int(self.plus[same][0]))
            raise ConfigurationError(f"target and versus are both {name}: their difference is zero.")
        return found
