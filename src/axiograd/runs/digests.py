"""A short name for what tensors, texts and bytes hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

#: Bytes of a tensor that are read in full; of a larger one, a sum over everything and rows spread over the whole.
_WHOLE = 2**28
_ROWS = 4096


def digest(*parts: bytes | str | Tensor) -> str:
    """A short SHA-256 of tensors (dtype, shape and values), texts and bytes.

    >>> digest(torch.zeros(2)) == digest(torch.zeros(2)), digest(torch.zeros(2)) == digest(torch.zeros(2, 1))
    (True, False)
    """
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            sha.update(f"{part.dtype}{tuple(part.shape)}{part.layout}".encode())
            for piece in _dense(part):
                sha.update(_content(piece))
        else:
            sha.update(part.encode() if isinstance(part, str) else part)
    return sha.hexdigest()[:16]


def state_digest(tensors: Mapping[str, Tensor]) -> str:
    """That of tensors with their names, as a state dict has them."""
    return digest(*(part for name, tensor in sorted(tensors.items()) for part in (name, tensor)))


def _dense(tensor: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors that one is made of."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        return (tensor.int_repr(), torch.tensor([float(tensor.q_scale())]))
    if tensor.layout == torch.sparse_coo:
        whole = tensor.coalesce()
        return (whole.indices(), whole.values())
    return (tensor if tensor.layout == torch.strided else tensor.to_dense(),)


def _content(tensor: Tensor) -> Any:
    if tensor.is_meta:
        return b""
    flat = tensor.cpu().contiguous().resolve_conj().resolve_neg()
    if flat.nbytes <= _WHOLE or flat.dim() == 0 or len(flat) <= _ROWS:
        return flat.reshape(-1).view(torch.uint8).numpy().data
    rows = torch.linspace(0, len(flat) - 1, _ROWS, dtype=torch.float64).long()
    every = flat.reshape(-1).view(torch.uint8)
    words = every[: len(every) // 8 * 8].view(torch.int64)
    total = int(words.sum()).to_bytes(8, "big", signed=True)
    return bytes(flat[rows].reshape(-1).view(torch.uint8).numpy().data) + total
