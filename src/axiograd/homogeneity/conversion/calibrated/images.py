"""What a strip is calibrated on: unlabelled images as a tensor, a loader or a generator, checked before the work."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from axiograd._io import progress_bar
from axiograd.errors import ConfigurationError, InputError

#: With fewer the constant is not to be told from what the images have in common.
LEAST = 8
#: Images that are worked on at a time.
_CHUNK = 10
#: Penalties that a layer's weights choose from; with the last they stay as they are.
_PENALTIES = (0.03, 0.3, 3.0, math.inf)
#: The same where weights have to make up for everything.
_LIGHT_PENALTIES = (1e-4, 1e-3, 0.01, 0.1, 1.0, math.inf)


@dataclass(frozen=True)
class Calibration:
    """Images, and how they are used; `to_xdnn(..., calibration=images)` is this with the defaults.

    >>> Calibration(torch.randn(32, 3, 8, 8), fit_weights=False).patches
    40
    """

    #: A tensor, or anything that yields batches: tensors, or tuples that begin with one.
    images: Tensor | Iterable[Any]
    #: b → b·c(h); False is the strictly bias-free network.
    read_biases: bool = True
    #: W → W + ΔW by least squares.
    fit_weights: bool = True
    #: Exchange operators as a strip without calibration does, and fit the weights alone: for transformers.
    exchange: bool = False
    #: Penalty of the weights as a share of the mean diagonal of the Gram matrix; None: the best on images left out.
    ridge: float | None = None
    #: Penalty of c; None: the best by leave-one-out.
    bias_ridge: float | None = None
    #: Fit what the next ReLU lets through, and leave it free how far below zero the rest is.
    through_gates: bool = True
    #: Places of each image that a regression sees.
    patches: int = 40
    #: Share of the images that are kept back to judge every layer.
    held_out: float = 0.1
    #: No more images than these are read from a loader.
    limit: int = 512
    #: Activations in memory, in GiB; those beyond lie in a temporary file.
    memory: float = 4.0
    seed: int = 0
    #: Layers that are done are kept here, and an interrupted calibration resumes after them.
    folder: str | PathLike[str] | None = None
    #: Called with the number of layers done and of all.
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        for name, value in (("ridge", self.ridge), ("bias_ridge", self.bias_ridge)):
            if value is not None and not value >= 0:
                raise ConfigurationError(f"{name}={value}; a penalty must be zero or more.")
        if not 0 <= self.held_out < 1:
            raise ConfigurationError(f"held_out={self.held_out}; it is a share of the images, at least 0 and below 1.")
        if self.patches < 1 or self.limit < LEAST:
            raise ConfigurationError(
                f"patches={self.patches}, limit={self.limit}; they must be at least 1 and {LEAST}."
            )

    @property
    def penalties(self) -> tuple[float, ...]:
        """Those that a layer's weights choose from."""
        if self.ridge is not None:
            return (self.ridge,)
        return _LIGHT_PENALTIES if self.exchange else _PENALTIES

    @contextmanager
    def shown(self, layers: int) -> Iterator[Callable[[str], None]]:
        """A bar for the layers, of which each is told by its name when it is done."""
        done = itertools.count(1)
        # A bar is no reason to need the library that draws it.
        shown = None if find_spec("rich") is not None else False
        with progress_bar("calibration, layers", total=layers, shown=shown) as update:

            def tell(name: str) -> None:
                number = next(done)
                update(completed=number, note=name)
                if self.progress is not None:
                    self.progress(number, layers)

            yield tell

    @classmethod
    def ensure(cls, given: Any) -> "Calibration":
        return given if isinstance(given, cls) else cls(given)


def read_images(calibration: Calibration, example: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The images in chunks: those to fit to, and those held out (every n-th)."""
    images = _collect(calibration, example)
    _check(images)
    step = round(1 / calibration.held_out) if calibration.held_out else len(images) + 1
    held = torch.arange(len(images)) % max(step, 2) == max(step, 2) - 1
    return list(images[~held].split(_CHUNK)), list(images[held].split(_CHUNK)) if bool(held.any()) else []


def _collect(calibration: Calibration, example: Tensor) -> Tensor:
    given = calibration.images
    if not isinstance(given, Tensor) and not isinstance(given, Iterable):
        raise InputError(f"calibration is a {type(given).__name__}; pass a tensor of images or batches of them.")
    found: list[Tensor] = []
    for batch in [given] if isinstance(given, Tensor) else given:
        x = batch[0] if isinstance(batch, tuple | list) else batch
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
            raise InputError(f"calibration has a batch of {kind}; pass floating-point images as the model takes them.")
        if x.shape[1:] != example.shape[1:]:
            raise InputError(
                f"calibration has images of shape {tuple(x.shape[1:])}, the example inputs {tuple(example.shape[1:])}: "
                "prepare both alike."
            )
        found.append(x.detach().to(example))
        if sum(map(len, found)) >= calibration.limit:
            break
    return torch.cat(found)[: calibration.limit] if found else example[:0]


def _check(images: Tensor) -> None:
    if len(images) < LEAST:
        raise InputError(
            f"calibration has {len(images)} images; it needs at least {LEAST}, and 100 or more are better."
        )
    if not bool(torch.isfinite(images).all()):
        bad = int((~torch.isfinite(images.flatten(1)).all(1)).nonzero()[0])
        raise InputError(f"calibration image {bad} has NaN or infinite values.")
    flat = images.flatten(1)
    if flat.shape[1] > 1 and bool((flat == flat[:, :1]).all()):
        raise InputError("the calibration images are constant: every image has one value everywhere; pass real ones.")
    if bool((flat == flat[:1]).all()):
        raise InputError("the calibration images are all the same; pass different ones.")
