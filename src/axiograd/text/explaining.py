"""`axiograd.text.explain`: what each word of a text adds to a model's score."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from axiograd._calls import read_call
from axiograd._io import progress_bar
from axiograd.attribution.base import Attribution, SinglePass
from axiograd.attribution.held_gradient import HeldGradient
from axiograd.attribution.integrated_gradients import IntegratedGradients
from axiograd.attribution.layer import FromLayer, Layer
from axiograd.attribution.methods import find_method
from axiograd.attribution.x_gradient import XGradient
from axiograd.errors import ConfigurationError, InputError, NotHomogeneousError
from axiograd.homogeneity.conversion.edits import running
from axiograd.text.asking import Names, Question, Task, task_of
from axiograd.text.explanation import TextExplanation, TextExplanations
from axiograd.text.reading import Texts

_ROUNDING = 1e-3
#: Models that were explained before, and whether X-Gradient is exact for them.
_EXACT: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def explain(
    model: nn.Module,
    tokenizer: Any,
    texts: str | Sequence[str],
    target: Any = None,
    *,
    versus: Any = None,
    at: int | str | Sequence[int | str] | None = None,
    task: Task | None = None,
    method: str | type[Attribution] | None = None,
    steps: int = 50,
    baseline: str | None = None,
    layer: Layer | None = None,
    batch_size: int = 8,
    max_length: int | None = None,
    progress: bool | None = None,
) -> Any:  # a TextExplanation for one text, TextExplanations for several
    """What the words of texts add to a model's score, its logit of ``target``, minus that of ``versus``.

    Sequence classifiers explain a label (by number or name, one for all texts or a list), token classifiers the label
    of the word ``at`` (a place in the text, or words of it), causal models the next token; without a target, what the
    model says itself. The default is `HeldGradient`, one pass in which words and constants add up to the score, or
    X-Gradient for a model that is certified from its embeddings on; recurrent models get Integrated Gradients.
    ``method=`` is any other, by name or class; Integrated Gradients takes ``steps`` from a ``baseline`` of zero
    embeddings or a token ("mask", "pad", "unk").

    Texts longer than the model takes, or than ``max_length``, are cut with a warning; causal models see the end.

    `axiograd.text.explain(model, tokenizer, "A wonderful film.", target="positive")` is a `TextExplanation`; a list of
    texts gives a tuple of them.
    """
    alone = isinstance(texts, str)
    listed = [texts] if isinstance(texts, str) else list(texts)
    if not listed or batch_size < 1:
        raise InputError(f"{len(listed)} texts in batches of {batch_size}: expected at least one of one.")
    names = Names(model, tokenizer, task_of(model, task))
    if at is not None and names.task != "token":
        raise ConfigurationError(f"at= is for token classifiers, and the task is {names.task!r}.")
    read = Texts(model, tokenizer, listed, max_length=max_length, causal=names.task == "causal")
    targets = [names.index(one) for one in _per_text(target, len(listed))]
    others = None if versus is None else [names.index(one) for one in _per_text(versus, len(listed))]
    if others and -1 in others:
        raise ConfigurationError("versus= is given for some of the texts only: give it for all of them.")
    places = [read.position(row, one) for row, one in enumerate(_per_text(at, len(listed)))]
    how = _Method(model, tokenizer, method, layer=layer, steps=steps, baseline=baseline)
    found: dict[int, TextExplanation] = {}
    with running(model), progress_bar("explaining", total=len(listed), shown=progress) as bar:
        for rows in read.batches(batch_size if how.takes_batches else 1):
            call = read.call(rows)
            question = Question(
                names,
                read.special_tokens(rows).to(call["input_ids"].device),
                at=[places[row] for row in rows],
                plus=[targets[row] for row in rows],
                minus=None if others is None else [others[row] for row in rows],
            )
            values = how.attribute(call, question).tolist()
            scores, probabilities = question.scores(), question.probabilities()
            for i, row in enumerate(rows):
                tokens = read.tokens(row, values[i])
                found[row] = TextExplanation(
                    listed[row],
                    tokens,
                    read.words(row, tokens),
                    names.name(int(question.plus[i])),
                    scores[i],
                    how.title,
                    how.beside,
                    None if question.minus is None else names.name(int(question.minus[i])),
                    probabilities[i],
                    read.word(row, int(question.at[i])) if names.task == "token" else None,
                )
            bar(advance=len(rows))
    explained = TextExplanations(found[row] for row in range(len(listed)))
    return explained[0] if alone else explained


class _Method:
    """One method on one model, as a function of the model's embeddings."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        method: str | type[Attribution] | None,
        *,
        layer: Layer | None,
        steps: int,
        baseline: str | None,
    ) -> None:
        self.model, self.steps = model, steps
        self.function = FromLayer(model, embedding_of(model) if layer is None else layer)
        self.function.count = 1  # what is known need not be found out by a pass of its own
        self._by_default = method is None
        # A recurrent layer is one operator, whose gates nothing can hold.
        recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
        usual = IntegratedGradients if recurrent else HeldGradient
        self.entry = find_method(usual if method is None else method)
        if self.entry.needs_references:
            raise ConfigurationError(f"{self.entry.title} draws references, which texts do not have.")
        self.method = self.entry.build(self.function, steps=steps)
        if baseline is not None and not isinstance(self.method, IntegratedGradients):
            raise ConfigurationError(f"baseline= is for integrated-gradients; {self.entry.title} has its own.")
        self.baseline = None if baseline is None else _token(baseline, tokenizer)
        self.beside: str | None = None
        if isinstance(self.method, IntegratedGradients):
            self.beside = f"score at {'embeddings of zero' if baseline is None else f'the token {baseline!r}'}"
        elif isinstance(self.method, HeldGradient | XGradient):
            self.beside = "constants"

    @property
    def title(self) -> str:
        """How the explanation names it."""
        return self.entry.titled(self.steps)

    @property
    def takes_batches(self) -> bool:
        """Methods of many passes put copies of a text into a batch, and are asked about one text at a time."""
        return isinstance(self.method, SinglePass)

    def attribute(self, call: dict[str, Tensor], question: Question) -> Tensor:
        """A value for every token, [batch, tokens]."""
        embeddings = self._embeddings(call)
        if not isinstance(self.method, HeldGradient):
            # Others ask elsewhere than at the text, or while they are traced: what the model says is found first.
            with torch.no_grad():
                question(self.function(*embeddings, **call))
        elif self._by_default:
            self._prefer_exact(embeddings, call, question)
        found = self._values(self.method, embeddings, call, question)
        if isinstance(self.method, XGradient) and self.method.certificate is not None:
            # Proved for one question, whose degree is that of all.
            self.method = XGradient(self.function, degree=self.method.certificate.degree)
        if "attention_mask" in call and bool(found[call["attention_mask"] == 0].any()):
            raise InputError(
                "padding changes the model's score, so it ignores attention_mask: explain texts "
                "one at a time (batch_size=1), which are not padded."
            )
        return found

    def _embeddings(self, call: dict[str, Tensor]) -> tuple[Tensor, ...]:
        return self.function.outputs_at(read_call({}, call, check=False)).features

    def _values(
        self, method: Attribution, embeddings: tuple[Tensor, ...], call: dict[str, Tensor], question: Question
    ) -> Tensor:
        baselines = None
        if self.baseline is not None:
            # Ordinary tokens become the baseline's, those that the tokenizer added stay.
            ids = torch.where(question.special, call["input_ids"], self.baseline)
            baselines = self._embeddings({**call, "input_ids": ids})
        (found,) = method.attribute(embeddings, target=question, baselines=baselines, additional_forward_args=call)
        return found.double().flatten(2).sum(2)  # type: ignore[no-any-return]  # a tensor

    def _prefer_exact(self, embeddings: tuple[Tensor, ...], call: dict[str, Tensor], question: Question) -> None:
        """X-Gradient in place of the held gradient, if the model is homogeneous from its embeddings on.

        Most are no cause for a proof: with twice the embeddings they have not even twice the score.
        """
        self._by_default = False
        if not _EXACT.get(self.model, True):
            return
        with torch.no_grad():
            score, twice = (question(self.function(*(n * h for h in embeddings), **call)) for n in (1, 2))
        if bool((twice / score > 2 - _ROUNDING).all()):
            exact = XGradient(self.function)
            with suppress(NotHomogeneousError):
                self._values(exact, embeddings, call, question)
                self.method, self.entry = exact, find_method(XGradient)
        _EXACT[self.model] = isinstance(self.method, XGradient)


def embedding_of(model: Any) -> nn.Module:
    """The module that turns ids into vectors."""
    get = getattr(model, "get_input_embeddings", None)
    found: nn.Module | None = get() if callable(get) else None
    if found is None:
        raise ConfigurationError(
            f"{type(model).__name__} does not say which module embeds its tokens: pass its name as layer=."
        )
    return found


def _token(name: str, tokenizer: Any) -> int:
    named = getattr(tokenizer, f"{name}_token_id", None)
    known = named if named is not None else tokenizer.convert_tokens_to_ids(name)
    if known is None or (known == tokenizer.unk_token_id and name not in {tokenizer.unk_token, "unk"}):
        raise ConfigurationError(f"baseline={name!r} is not a token of the tokenizer: try 'pad', 'mask' or 'unk'.")
    return int(known)


def _per_text(value: Any, count: int) -> list[Any]:
    if isinstance(value, Tensor) and value.dim():
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise ConfigurationError(f"{list(value)} for {count} texts: give one, or one per text.")
    return list(value)
