"""`axiograd.text.explain`: texts in, words with their share of the score out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._calls import logits
from axiograd._io import progress_bar
from axiograd.attribution.layer import Layer
from axiograd.attribution.methods import find_method
from axiograd.errors import ConfigurationError, InputError
from axiograd.homogeneity.conversion.edits import running
from axiograd.text.attributing import Attributed, TextMethod
from axiograd.text.explanation import Kind, Piece, TextExplanation, TextExplanations
from axiograd.text.reading import Window, collate, longest, padding_id, read, takes
from axiograd.text.tasks import Names, Task, answers, most_certain, position, task_of, tokens_at


def explain(
    model: nn.Module,
    tokenizer: Any,
    texts: str | Sequence[str],
    target: Any = None,
    *,
    versus: Any = None,
    at: int | str | None = None,
    prefix: str | Sequence[str] = "",
    task: Task | None = None,
    method: str = "integrated-gradients",
    steps: int = 50,
    baseline: str | None = None,
    layer: Layer | None = None,
    batch_size: int = 8,
    max_length: int | None = None,
    overlap: int | None = None,
    progress: bool | None = None,
) -> Any:  # a TextExplanation for one text, TextExplanations for several
    """What the tokens and words of texts add to a model's score: its logit of ``target``, minus that of ``versus``.

    Sequence classifiers explain a label (by number or name, one for all texts or a list), token classifiers the label
    of the word ``at`` (a place in the text, or words of it), causal models the next token, encoder-decoders the token
    that comes after ``prefix``; without a target, what the model says itself. The default is Integrated Gradients with
    50 ``steps`` from a ``baseline`` of zero embeddings or a token ("pad", "mask", or one of the tokenizer's).
    ``method="x-gradient"`` is the same in one pass for models that are homogeneous from their embeddings on; any other
    is lifted there, and says how much of the score is the energy part, which depends on the sizes of embeddings alone.

    Texts longer than the model takes, or than ``max_length``, are read in windows that overlap, and explained by the
    mean of their scores; causal models see the end.

    `axiograd.text.explain(model, tokenizer, "A wonderful film.", target="positive")` is a `TextExplanation`; a list of
    texts gives a tuple of them.
    """
    alone = isinstance(texts, str)
    listed = [texts] if isinstance(texts, str) else list(texts)
    if not listed:
        raise InputError("no texts to explain.")
    job = _Job.of(model, tokenizer, listed, task=task, prefix=prefix, max_length=max_length, overlap=overlap)
    find_method(method)
    if batch_size < 1:
        raise ConfigurationError(f"batch_size={batch_size}: expected at least 1.")
    with (
        running(model),
        progress_bar("explaining", total=2 * len(job.windows), shown=progress) as bar,
    ):
        questions = job.questions(target, versus, at, batch_size, lambda n: bar(advance=n))
        how = TextMethod(model, tokenizer, job.task, method, steps=steps, baseline=baseline, layer=layer)
        found: dict[int, Attributed] = {}
        asked = [number for number in range(len(job.windows)) if number in questions]
        batches = job.batches(asked, batch_size)
        for numbers in batches:
            # A proof is for any number of texts from two on, and for one alone: one by one they come twice.
            filled = numbers * 2 if len(numbers) == 1 and len(batches) > 1 and job.takes_several else numbers
            done = how.attribute(job.call(filled), [questions[n] for n in filled], [job.windows[n] for n in filled])
            found |= dict(zip(numbers, done[: len(numbers)], strict=True))
            bar(advance=len(numbers))
    explained = TextExplanations(
        assembled(
            text,
            [(job.windows[n], found.get(n)) for n in own],
            [questions[n] for n in own if n in questions],
            how,
        )
        for text, own in zip(listed, job.of_texts(), strict=True)
    )
    return explained[0] if alone else explained


@dataclass(frozen=True)
class Question:
    """What is asked about one window: a position, an answer, and perhaps another one."""

    at: int
    plus: int
    minus: int | None
    name: str
    versus: str | None
    #: The word that a token classifier is asked about.
    word: str | None
    probability: float | None


@dataclass(frozen=True)
class _Job:
    model: nn.Module
    tokenizer: Any
    texts: list[str]
    task: Task
    windows: list[Window]
    limit: int | None

    @classmethod
    def of(
        cls,
        model: nn.Module,
        tokenizer: Any,
        texts: list[str],
        *,
        task: str | None,
        prefix: str | Sequence[str],
        max_length: int | None,
        overlap: int | None,
    ) -> _Job:
        kind = task_of(model, task)
        limit = longest(model, tokenizer, max_length)
        windows = read(model, tokenizer, texts, limit=limit, overlap=overlap, last_only=kind == "causal")
        prefixes = [prefix] * len(texts) if isinstance(prefix, str) else list(prefix)
        if len(prefixes) != len(texts):
            raise ConfigurationError(f"{len(prefixes)} prefixes for {len(texts)} texts: give one, or one per text.")
        if kind == "seq2seq":
            if len(windows) > len(texts):
                raise InputError(f"a text has more than the {limit} tokens that the encoder takes at once: shorten it.")
            start = getattr(getattr(model, "config", None), "decoder_start_token_id", None)
            if start is None:
                raise ConfigurationError("the model's configuration has no decoder_start_token_id: set it.")
            written = [tokenizer(p, add_special_tokens=False)["input_ids"] if p else [] for p in prefixes]
            windows = [replace(w, prefix=[int(start), *written[w.text]]) for w in windows]
        elif any(prefixes):
            raise ConfigurationError(
                f"prefix= is for encoder-decoders, and the task is {kind!r}: append it to the text."
            )
        return cls(model, tokenizer, texts, kind, windows, limit)

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    def of_texts(self) -> list[list[int]]:
        """The windows of each text."""
        found: list[list[int]] = [[] for _ in self.texts]
        for number, window in enumerate(self.windows):
            found[window.text].append(number)
        return found

    def call(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        windows = [self.windows[n] for n in numbers]
        return collate(windows, self.model, self.tokenizer, limit=self.limit, device=self.device)

    @property
    def takes_several(self) -> bool:
        """Whether the model can be told what padding is."""
        return "attention_mask" in takes(self.model) and padding_id(self.model, self.tokenizer) is not None

    def batches(self, numbers: Sequence[int], size: int) -> list[list[int]]:
        """Windows of like length together; alone where the model cannot be told what padding is."""
        size = size if self.takes_several else 1
        ordered = sorted(numbers, key=lambda n: len(self.windows[n].ids))
        return [ordered[i : i + size] for i in range(0, len(ordered), size)]

    def questions(self, target: Any, versus: Any, at: Any, size: int, advance: Any) -> dict[int, Question]:
        """What each window is asked, after one look at what the model says."""
        names = Names(self.model, self.tokenizer, self.task)
        outputs = self._outputs(size, advance)
        targets, others = (_per_text(v, len(self.texts), what) for v, what in ((target, "targets"), (versus, "versus")))
        places = _per_text(at, len(self.texts), "at")
        found: dict[int, Question] = {}
        for place, (text, own) in enumerate(zip(self.texts, self.of_texts(), strict=True)):
            where: dict[int, int] = {n: position(self.windows[n], self.task) for n in own}
            word = None
            if self.task == "token":
                windows = [self.windows[n] for n in own]
                chosen = (
                    places[place]
                    if places[place] is not None
                    else most_certain([outputs[n] for n in own], windows, names)
                )
                number, token, word = tokens_at(text, chosen, windows)
                where = {own[number]: token}
            elif places[place] is not None:
                raise ConfigurationError(f"at= is for token classifiers, and the task is {self.task!r}.")
            rows = torch.stack([outputs[n][i] if outputs[n].dim() > 1 else outputs[n] for n, i in where.items()])
            mean = rows.double().mean(0)
            plus = int(mean.argmax()) if targets[place] is None else names.index(targets[place], len(mean))
            minus = None if others[place] is None else names.index(others[place], len(mean))
            if plus == minus:
                raise ConfigurationError(f"target and versus are both {names.name(plus)}: there is no difference.")
            single = len(mean) == 1
            sure = None if single else float(torch.softmax(mean, 0)[plus])
            rather = None if minus is None else names.name(minus)
            label = "score" if single else names.name(plus)
            found |= {n: Question(i, plus, minus, label, rather, word, sure) for n, i in where.items()}
        return found

    def _outputs(self, size: int, advance: Any) -> dict[int, Tensor]:
        """The logits of every window: [answers], or [tokens, answers] where each token has some."""
        outputs: dict[int, Tensor] = {}
        for numbers in self.batches(range(len(self.windows)), size):
            with torch.no_grad():
                output = self.model(**self.call(numbers))
                if self.task == "token":
                    rows = list(logits(output))
                else:
                    at = torch.tensor([position(self.windows[n], self.task) for n in numbers], device=self.device)
                    rows = list(answers(output, at))
            outputs |= dict(zip(numbers, rows, strict=True))
            advance(len(numbers))
        return outputs


def _per_text(value: Any, count: int, what: str) -> list[Any]:
    if isinstance(value, Tensor) and value.dim():
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise ConfigurationError(f"{len(value)} {what} for {count} texts: give one, or one per text.")
    return list(value)


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
