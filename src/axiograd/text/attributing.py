"""How the score of a batch of windows is shared out over their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from axiograd._calls import read_call
from axiograd.attribution.base import Attribution
from axiograd.attribution.input_x_gradient import InputXGradient
from axiograd.attribution.layer import FromLayer, Layer
from axiograd.attribution.methods import find_method
from axiograd.attribution.x_gradient import XGradient
from axiograd.errors import ConfigurationError, InputError, NotHomogeneousError
from axiograd.homogeneity.conversion.scale import joint_rms, per_sample, safe_divide
from axiograd.text.reading import Window
from axiograd.text.tasks import Scored, Task

if TYPE_CHECKING:
    from axiograd.text.explaining import Question

#: Relative difference between x·∇F and a multiple of F above which a proof is not worth a try.
_EULER = 1e-3


@dataclass(frozen=True)
class Attributed:
    """One window: a value per token, what they should add up to, and how much of it is the energy part."""

    values: list[float]
    prefix: list[float]
    score: float
    difference: float
    energy: float | None


class LiftedAtEmbeddings(nn.Module):
    """F(h) = ρ(h) · f(h/ρ(h)), ρ(h) = RMS(h)/r over the tokens that count, with a radius r of each text's own.

    With r the RMS of the text's embeddings, F(h) = f(h): what is explained is the model's own score, and the
    explanation of a text does not depend on the texts beside it.
    """

    def __init__(self, function: FromLayer) -> None:
        super().__init__()
        self.function = function
        self.training = function.training

    def forward(self, *embeddings: Tensor, radius: Tensor, kept: tuple[Tensor, ...], **call: Any) -> Tensor:
        rho = joint_rms(embeddings, kept) / radius
        inside = [safe_divide(h, per_sample(rho, h)) for h in embeddings]
        found: Tensor = rho.to(embeddings[0].dtype) * self.function(*inside, **call)
        return found


class XGradientOfTexts(XGradient):
    """X-Gradient whose proof is for texts of any length, as it is for any number of them."""

    _axes = (0, 1)


class TextMethod:
    """One method on one model; proofs are kept from batch to batch."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        task: Task,
        name: str,
        *,
        steps: int,
        baseline: str | None,
        layer: Layer | None,
    ) -> None:
        self.model, self.tokenizer, self.task = model, tokenizer, task
        self.entry = find_method(name)
        if baseline is not None and self.entry.name != "integrated-gradients":
            raise ConfigurationError(f"baseline= is for integrated-gradients; {self.entry.title} has its own.")
        if self.entry.needs_references:
            raise ConfigurationError(
                f"{self.entry.title} draws references, which texts do not have: use another method."
            )
        self.steps, self.baseline = steps, _token(baseline, tokenizer)
        #: The score as a function of the embeddings.
        # Layers by their names in the user's model.
        layers = embedding_of(model) if layer is None else list(FromLayer(model, layer).layers)
        self.function = FromLayer(Scored(model), layers)
        #: None: not known yet.
        self.lifted: bool | None = None if self.entry.certified else False
        self._plain = InputXGradient(self.function)
        self._method: Attribution | None = None

    @property
    def title(self) -> str:
        """How the explanation names the method."""
        return f"{self.entry.titled(self.steps)}{' of the lifted network' if self.lifted else ''}"

    @property
    def baseline_name(self) -> str:
        """What the score is compared with."""
        return (
            "embeddings of zero" if self.baseline is None else f"{self.tokenizer.convert_ids_to_tokens(self.baseline)}"
        )

    def attribute(
        self, call: dict[str, Tensor], asked: Sequence[Question], windows: Sequence[Window]
    ) -> list[Attributed]:
        """A value for every token of every window."""
        further = {**call, **_indices(asked, call["input_ids"].device)}
        embeddings = self.function.outputs_at(read_call({}, further, check=False)).features
        plain = self._plain.explain(embeddings, additional_forward_args=further)
        score, sums = plain.outputs.double(), _sums(plain.attributions)
        attributions, difference, energy = _tuple(plain.attributions), score, None
        if self.entry.certified:
            attributions, energy = self._exact(embeddings, further, score, sums)
        else:
            attributions, difference = self._as_it_is(embeddings, further, windows)
        per_token = [a.double().sum(-1) if a.dim() > 2 else a.double() for a in attributions]  # noqa: PLR2004
        if self.entry.name != "random":  # whose numbers have nothing to do with the model
            _refuse_padding(per_token, call)
        return [
            Attributed(
                per_token[0][i, : len(window.ids)].tolist(),
                per_token[1][i, : len(window.prefix)].tolist() if len(per_token) > 1 else [],
                float(score[i]),
                float(difference[i]),
                None if energy is None else float(energy[i]),
            )
            for i, window in enumerate(windows)
        ]

    def _exact(
        self, embeddings: tuple[Tensor, ...], call: dict[str, Tensor], score: Tensor, sums: Tensor
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """X-Gradient of the model if it is homogeneous from the embeddings on, and of its lift if it is not."""
        if self.lifted is None:
            method = XGradientOfTexts(self.function)
            self.lifted = True
            ratio = sums / score
            if bool(((ratio - ratio.round().clamp_min(1)).abs() < _EULER).all()):
                with suppress(NotHomogeneousError):
                    found = method.attribute(embeddings, additional_forward_args=call)
                    self.lifted, self._method = False, method
                    return _tuple(found), None
        if self._method is None:
            self._method = XGradientOfTexts(LiftedAtEmbeddings(self.function))
        if not self.lifted:
            return _tuple(self._method.attribute(embeddings, additional_forward_args=call)), None
        kept = _kept(embeddings, call)
        further = {**call, "radius": joint_rms(embeddings, kept).detach(), "kept": kept}
        return _tuple(self._method.attribute(embeddings, additional_forward_args=further)), 1 - sums / score

    def _as_it_is(
        self, embeddings: tuple[Tensor, ...], call: dict[str, Tensor], windows: Sequence[Window]
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        if self._method is None:
            self._method = self.entry.build(self.function, steps=self.steps)
        baselines = None
        if self.baseline is not None:
            if len(embeddings) > 1:
                raise ConfigurationError("baseline= is a token for the text; encoder-decoders have zero alone.")
            there = {**call, "input_ids": _replaced(call["input_ids"], windows, self.baseline)}
            baselines = self.function.outputs_at(read_call({}, there, check=False)).features
        found, delta = self._method.attribute(
            embeddings, baselines=baselines, additional_forward_args=call, return_convergence_delta=True
        )
        return _tuple(found), _sums(found) - delta.double()


def embedding_of(model: Any) -> Any:
    """The module that turns ids into vectors; of an encoder-decoder, both if they are two."""
    found: list[nn.Module] = []
    sources: list[Any] = [model]
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        sources = [model.get_encoder(), model.get_decoder()]
    for source in sources:
        get = getattr(source, "get_input_embeddings", None)
        one = get() if callable(get) else None
        if one is None:
            raise ConfigurationError(
                f"{type(source).__name__} does not say which module embeds its tokens: give layer= its name."
            )
        if all(one is not known for known in found):
            found.append(one)
    return found[0] if len(found) == 1 else found


def _indices(asked: Sequence[Question], device: torch.device) -> dict[str, Tensor]:
    found = {
        "at": torch.tensor([q.at for q in asked], device=device),
        "plus": torch.tensor([q.plus for q in asked], device=device),
    }
    others = [q.minus for q in asked if q.minus is not None]
    if others and len(others) < len(asked):
        raise ConfigurationError("versus= is given for some of the texts only: give it for all of them.")
    if others:
        found["minus"] = torch.tensor(others, device=device)
    return found


def _kept(embeddings: Sequence[Tensor], call: dict[str, Tensor]) -> tuple[Tensor, ...]:
    masks = [call.get("attention_mask"), call.get("decoder_attention_mask")]
    return tuple(
        torch.ones(h.shape[:2], dtype=torch.bool, device=h.device) if mask is None else mask.bool()
        for h, mask in zip(embeddings, masks, strict=False)
    )


def _refuse_padding(per_token: Sequence[Tensor], call: dict[str, Tensor]) -> None:
    """Padding has nothing, exactly: a model that reads it despite its mask explains something else than the text."""
    for values, name in zip(per_token, ("attention_mask", "decoder_attention_mask"), strict=False):
        mask = call.get(name)
        if mask is not None and bool((values * (mask == 0)).any()):
            raise InputError(
                "the model gives padding a share of its score, so that it does not heed attention_mask: explain texts "
                "one at a time (batch_size=1), which are not padded."
            )


def _token(baseline: str | None, tokenizer: Any) -> int | None:
    if baseline is None:
        return None
    named = getattr(tokenizer, f"{baseline}_token_id", None)
    known = named if named is not None else tokenizer.convert_tokens_to_ids(baseline)
    if known is None or (known == tokenizer.unk_token_id and baseline not in {tokenizer.unk_token, "unk"}):
        raise ConfigurationError(f"baseline={baseline!r} is not a token of the tokenizer: try 'pad', 'mask' or 'unk'.")
    return int(known)


def _replaced(ids: Tensor, windows: Sequence[Window], token: int) -> Tensor:
    """Ordinary tokens become the baseline's, those that the tokenizer added stay."""
    found = ids.clone()
    for row, window in zip(found, windows, strict=True):
        row[: len(window.ids)][~torch.tensor(window.special, device=ids.device)] = token
    return found


def _tuple(attributions: Any) -> tuple[Tensor, ...]:
    return (attributions,) if isinstance(attributions, Tensor) else tuple(attributions)


def _sums(attributions: Any) -> Tensor:
    return torch.stack([a.double().flatten(1).sum(1) for a in _tuple(attributions)]).sum(0)
