"""AttnLRP (Achtibat et al., 2024) on our regular transformers, by the rules of the package `lxt`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from axiograd.errors import MissingExtraError


def has_lxt() -> bool:
    """Whether `lxt` can be imported; it is no dependency of ours (`pip install --no-deps lxt zennit`)."""
    try:
        _lxt()
    except MissingExtraError:
        return False
    return True


def attn_lrp(model: nn.Module, run: Callable[[], Tensor], x: Tensor) -> Tensor:
    """x · gradient under AttnLRP's rules: identity for norms and GELU, uniform for products in attention.

    `run` gives the scores, one per sample, of a regular network whose blocks are `axiograd.models`' own; `x` is what
    they depend on and relevance goes to.
    """
    with _rules(model):
        (gradient,) = torch.autograd.grad(run().sum(), x)
    return (x * gradient).detach()


@contextmanager
def _rules(model: nn.Module) -> Iterator[None]:
    patches, rules = _lxt()
    blocks: Any = model.blocks
    changed: list[Any] = []
    try:
        for block in blocks:
            for module, forward in (
                (block, partial(_block, block, rules)),
                (block.attention, partial(_attention, block.attention, rules)),
                (block.before, partial(_norm, block.before, patches)),
                (block.between, partial(_norm, block.between, patches)),
            ):
                module.forward = forward
                changed.append(module)
        model.norm.forward = partial(_norm, model.norm, patches)  # type: ignore[method-assign,arg-type]
        changed.append(model.norm)
        yield
    finally:
        for module in changed:
            del module.forward


def _norm(norm: Any, patches: Any, x: Tensor, kept: Tensor | None = None) -> Tensor:  # noqa: ARG001 - of no importance
    found: Tensor = patches.layer_norm_forward(norm, x)
    return found


def _attention(attention: Any, rules: Any, x: Tensor, kept: Tensor | None = None) -> Tensor:
    batch, tokens, dim = x.shape
    q, k, v = attention.qkv(x).reshape(batch, tokens, 3, attention.heads, -1).permute(2, 0, 3, 1, 4)
    # As lxt has it for Hugging Face's models: two products lie between queries and the output, one after the values.
    q, k, v = (rules.divide_gradient(part, n) for part, n in ((q, 4), (k, 4), (v, 2)))
    logits = q @ k.transpose(-1, -2) / math.sqrt(dim // attention.heads)
    logits = logits + attention.bias[:, attention.relative[:tokens, :tokens]]
    if kept is not None:
        logits = logits.masked_fill(~kept[:, None, None, :], -math.inf)
    found: Tensor = attention.out((logits.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, dim))
    return found


def _block(block: Any, rules: Any, x: Tensor, kept: Tensor | None = None) -> Tensor:
    x = x + block.attention(block.before(x, kept), kept)
    hidden = rules.identity_rule_implicit(F.gelu, block.first(block.between(x, kept)))
    found: Tensor = x + block.second(hidden)
    return found


def _lxt() -> Any:
    try:
        from lxt.efficient import patches, rules
    except ImportError:
        raise MissingExtraError("lxt", "lxt", "AttnLRP") from None
    return patches, rules
