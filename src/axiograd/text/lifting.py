"""A regular transformer as an X-DNN of its embeddings: lifted, every text at its own scale."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from axiograd.attribution.layer import FromLayer
from axiograd.homogeneity.conversion.scale import along, joint_rms, unscaled


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
        inside = [unscaled(h, along(rho, h)) for h in embeddings]
        found: Tensor = rho.to(embeddings[0].dtype) * self.function(*inside, **call)
        return found


def scales(embeddings: tuple[Tensor, ...], kept: tuple[Tensor, ...]) -> Tensor:
    """The RMS of each text's embeddings, without its padding."""
    return joint_rms(embeddings, kept).detach()
