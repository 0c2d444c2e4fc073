"""A transform for images, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from axiograd.datasets import Preprocess

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Prepared:
    """A transform for images, on one grey channel or on three."""

    transform: Preprocess
    grey: bool = False
    #: Whether nobody said how the model's inputs were prepared in its training.
    guessed: bool = False

    def __call__(self, image: Image, seed: Sequence[int] = ()) -> Tensor:
        if self.grey:
            return self.transform(image.convert("L").convert("RGB"), seed)[:1]
        return self.transform(image, seed)

    def to_dict(self) -> dict[str, Any]:
        """For a file's header; whether it is grey is told by the shape of the model's inputs."""
        return self.transform.to_dict() | ({"guessed": True} if self.guessed else {})

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, grey: bool) -> Prepared:
        """What `to_dict` gave."""
        transform = {name: value for name, value in content.items() if name != "guessed"}
        return cls(Preprocess.from_dict(transform), grey, guessed=bool(content.get("guessed")))

    @property
    def zero(self) -> str:
        """What the zero baseline is in pixels."""
        black = not any(self.transform.mean)
        return "zero, a black image" if black else "zero, an image of the mean colour"

    def __str__(self) -> str:
        guess = " (a guess: say --preprocess, or --mean and --std)" if self.guessed else ""
        return self.transform.words(grey=self.grey) + guess
