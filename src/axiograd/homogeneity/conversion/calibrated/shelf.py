"""Activations of a whole calibration set within a budget of memory: what is over it lies in a temporary file."""

import tempfile
import weakref
from pathlib import Path

import torch
from torch import Tensor


class Shelf:
    """Keeps tensors; those beyond the budget are copied to a file that the system pages in when they are read.

    >>> shelf = Shelf(budget=8)
    >>> first, second = shelf.keep(torch.ones(2)), shelf.keep(torch.ones(3))
    >>> shelf.spilled, second.sum()
    (12, tensor(3.))
    """

    def __init__(self, budget: float) -> None:
        self.budget, self.held, self.spilled = budget, 0, 0

    def keep(self, tensor: Tensor) -> Tensor:
        size = tensor.numel() * tensor.element_size()
        if tensor.device.type != "cpu" or not size or self.held + size <= self.budget:
            self.held += size
            weakref.finalize(tensor, self._freed, size)
            return tensor
        self.spilled += size
        with tempfile.NamedTemporaryFile(prefix="axiograd-") as file:
            # The mapping outlives the name of its file.
            flat = torch.from_file(str(Path(file.name)), shared=True, size=tensor.numel(), dtype=tensor.dtype)
        copy = flat.as_strided(tensor.shape, tensor.contiguous().stride())
        if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):  # noqa: PLR2004
            copy = flat.as_strided(tensor.shape, tensor.stride())
        return copy.copy_(tensor)

    def _freed(self, size: int) -> None:
        self.held -= size
