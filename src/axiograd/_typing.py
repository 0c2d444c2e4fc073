"""Types that several packages share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from torch import Tensor

#: What a user passes as model inputs: one tensor, a tuple of positional ones, or a mapping of keyword ones.
Inputs: TypeAlias = Tensor | tuple[Tensor, ...] | Mapping[str, Any]

#: Attributions have the structure of the inputs that they belong to.
Attributions: TypeAlias = Tensor | tuple[Tensor, ...] | dict[str, Tensor]

#: Which scalar of the output is attributed, per sample.
Target: TypeAlias = (
    int
    | Tensor
    | tuple[int, ...]
    | Sequence[int]
    | Sequence[tuple[int, ...]]
    | Callable[[Any], Tensor]
    | Literal["all"]
    | None
)
