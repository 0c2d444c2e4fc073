"""How images become inputs: by the name of a preset, in words of a command, or as a user's own function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from axiograd._names import choose_from
from axiograd.datasets import CAFFE, IMAGENET, PIXELS, SQUEEZENET, TINY_IMAGENET, Preprocess
from axiograd.errors import ConfigurationError, InputError

if TYPE_CHECKING:
    from PIL.Image import Image

PRESETS = {
    "imagenet": IMAGENET,
    "squeezenet": SQUEEZENET,
    "caffe": CAFFE,
    "tiny-imagenet": TINY_IMAGENET,
    "pixels": PIXELS,
}
_RGB = 3


@dataclass(frozen=True)
class Prepared:
    """A transform for images, on one grey channel or on three."""

    transform: Preprocess | Callable[[Image], Tensor]
    grey: bool = False
    #: Whether nobody said how the model's inputs were prepared in its training.
    guessed: bool = False

    @classmethod
    def read(cls, said: str, before: Prepared | None = None) -> Prepared:
        """What was said, as "imagenet", "size=28,mean=0.5,std=0.5,grey" or "caffe,size=64"; the rest is as `before`.

        >>> print(Prepared.read("size=28,mean=0.5,std=0.25,grey"))
        short side 28, centre crop 28, grey, values 0 to 1, minus 0.5, divided by 0.25
        >>> print(Prepared.read("mean=0.5/0.4/0.3"))
        RGB, values 0 to 1, minus (0.5, 0.4, 0.3)
        """
        transform = before.transform if before is not None and isinstance(before.transform, Preprocess) else PIXELS
        grey, known = before is not None and before.grey, False
        for part in filter(None, map(str.strip, said.split(","))):
            name, equals, value = part.partition("=")
            if not equals and name in PRESETS:
                transform, known = PRESETS[name], True
            elif part == "grey":
                grey = True
            elif name == "size" and value.isdecimal() and int(value):
                transform = replace(transform, resize=int(value), crop=int(value))
            elif equals and name in {"mean", "std"}:
                # What is said replaces both; the other one is 0 or 1 unless it is said too.
                own = transform if known else PIXELS
                mean, std = (_numbers(part, value) if name == one else getattr(own, one) for one in ("mean", "std"))
                transform = replace(transform, mean=mean, std=std, white=1.0, bgr=False)
                known = True
            else:
                words = [*PRESETS, "size=64", "mean=0.5", "std=0.5", "grey"]
                raise ConfigurationError(f"preprocess {part!r}: {choose_from(part, words)}.")
        return cls(transform, grey, guessed=before is not None and before.guessed and not known)

    def __call__(self, image: Image, seed: Sequence[int] = ()) -> Tensor:
        if not isinstance(self.transform, Preprocess):
            return self.transform(image)
        if self.grey:
            return self.transform(image.convert("L").convert("RGB"), seed)[:1]
        return self.transform(image, seed)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Values in [0, 1] of a data set that is in memory, at the size that they have."""
        return self.transform.normalise(pixels) if isinstance(self.transform, Preprocess) else pixels

    def picture(self, inputs: Tensor) -> Tensor:
        """What people see of inputs: RGB in [0, 1]; after a user's own function, inputs scaled to that range."""
        if isinstance(self.transform, Preprocess):
            return self.transform.picture(inputs)
        low, high = inputs.min(), inputs.max()
        return ((inputs - low) / (high - low).clamp_min(1e-12)).expand(_RGB, -1, -1)

    @property
    def preprocess(self) -> Preprocess:
        """The transform, where files, masks and pages need one that can be written down and undone."""
        if not isinstance(self.transform, Preprocess):
            raise InputError(
                "preprocess is a function of your own, and this needs one that can be undone: write it as "
                "axiograd.datasets.Preprocess(resize, crop, mean, std)."
            )
        return self.transform

    def to_dict(self) -> dict[str, Any]:
        """For a file's header; whether it is grey is told by the shape of the model's inputs."""
        if not isinstance(self.transform, Preprocess):
            return {}
        return self.transform.to_dict() | ({"guessed": True} if self.guessed else {})

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, grey: bool) -> Prepared:
        """What `to_dict` gave."""
        transform = {name: value for name, value in content.items() if name != "guessed"}
        return cls(Preprocess.from_dict(transform), grey, guessed=bool(content.get("guessed")))

    @property
    def zero(self) -> str:
        """What the zero baseline is in pixels."""
        if not isinstance(self.transform, Preprocess):
            return "zero"
        return "zero, a black image" if not any(self.transform.mean) else "zero, an image of the mean colour"

    def __str__(self) -> str:
        if not isinstance(self.transform, Preprocess):
            return f"by your own {getattr(self.transform, '__name__', type(self.transform).__name__)}"
        guess = " (a guess: --preprocess says another one, as size=64,mean=0.5,std=0.5)" if self.guessed else ""
        return self.transform.words(grey=self.grey) + guess


def _numbers(part: str, given: str) -> tuple[float, ...]:
    try:
        found = tuple(float(number) for number in given.split("/"))
    except ValueError:
        found = ()
    if len(found) not in {1, _RGB} or (part.startswith("std") and min(found) <= 0):
        raise ConfigurationError(f"preprocess {part!r}: expected one number or three, as mean=0.5 or mean=0.5/0.4/0.3.")
    return found * _RGB if len(found) == 1 else found
