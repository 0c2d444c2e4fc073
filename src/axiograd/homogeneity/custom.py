"""autograd.Function: the export sees its forward and not its backward, so its gradient is anybody's guess."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from axiograd.homogeneity.certificate import Violation
from axiograd.homogeneity.location import innermost


@contextmanager
def custom_backwards() -> Iterator[list[Violation]]:
    """Collects every user's autograd.Function that is applied meanwhile."""
    found: list[Violation] = []
    base: Any = torch.autograd.Function
    original = base.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not cls.__module__.startswith("torch."):
            place = innermost(traceback.extract_stack())
            found.append(
                Violation(
                    module="",
                    op=f"autograd.Function {cls.__name__}",
                    source=place.source,
                    code=place.code,
                    reason=(
                        f"{cls.__name__} has a backward of its own, and no proof that it is the "
                        "gradient of its forward."
                    ),
                    fix="Write it with PyTorch's operators, or as a custom operator with a rule.",
                    kind="gradient",
                )
            )
        return original.__get__(None, cls)(*args, **kwargs)

    base.apply = classmethod(apply)
    try:
        yield found
    finally:
        base.apply = original
