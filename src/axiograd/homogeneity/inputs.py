"""What scales and what stays: the inputs of `certify` and `verify`, taken apart and put back together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from axiograd._typing import Inputs
from axiograd.errors import BaselineError, InputError


@dataclass(frozen=True)
class Leaf:
    """One leaf of the inputs."""

    name: str
    value: Any
    scales: bool
    baseline: Tensor | None = None

    def describe(self) -> str:
        if not isinstance(self.value, Tensor):
            return f"{self.name}: {self.value!r}, constant"
        dtype = str(self.value.dtype).removeprefix("torch.")
        shape = "×".join(map(str, self.value.shape)) or "scalar"
        role = "constant" if not self.scales else "scales" if self.baseline is None else "scales around its baseline"
        return f"{self.name}: {dtype} {shape}, {role}"


@dataclass(frozen=True)
class NamedArguments:
    """A call of the model, with every leaf named."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: In the order of `pytree.tree_leaves((args, kwargs))`.
    leaves: tuple[Leaf, ...]

    def copies(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call on copies, so that in-place operators do not reach the user's tensors."""
        values = (leaf.value for leaf in self.leaves)
        return self.rebuild([v.detach().clone() if isinstance(v, Tensor) else v for v in values])

    def rebuild(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        spec = pytree.tree_structure((self.args, self.kwargs))
        args, kwargs = pytree.tree_unflatten(list(values), spec)
        return args, kwargs


def take_apart(
    inputs: Inputs,
    *,
    additional_forward_args: Any = None,
    wrt: int | str | Iterable[int | str] | None = None,
    baseline: Any = None,
) -> NamedArguments:
    """Name every leaf, and say which ones scale."""
    if isinstance(inputs, Tensor):
        named: list[tuple[int | str, Any]] = [(0, inputs)]
    elif isinstance(inputs, Mapping):
        named = list(inputs.items())
    elif isinstance(inputs, tuple | list):
        named = list(enumerate(inputs))
    else:
        raise InputError(
            f"inputs of type {type(inputs).__name__} are not understood: "
            "pass a tensor, a tuple of positional inputs, or a mapping of keyword inputs."
        )
    extra, extra_keywords = extra_arguments(additional_forward_args)
    chosen = _chosen(wrt, [key for key, _ in named])
    baselines = _baselines(baseline, named)
    keyword = isinstance(inputs, Mapping)
    args = extra if keyword else (*(v for _, v in named), *extra)
    kwargs = (dict(named) if keyword else {}) | extra_keywords
    leaves: list[Leaf] = []
    if keyword:
        leaves += _leaves("argument", extra, scale=False)
    for key, value in named:
        name = key if isinstance(key, str) else "x" if len(named) == 1 else f"x{key}"
        scale = chosen is None or key in chosen
        leaves += _leaves(name, value, scale=scale, baseline=baselines.get(key), required=chosen is not None)
    if not keyword:
        leaves += _leaves("argument", extra, scale=False)
    for name, value in extra_keywords.items():
        leaves += _leaves(name, value, scale=False)
    if not any(leaf.scales for leaf in leaves):
        kinds = ", ".join(leaf.describe() for leaf in leaves) or "none at all"
        raise InputError(
            f"no floating-point input to scale (inputs: {kinds}); for token models pass embeddings, "
            "e.g. inputs_embeds, instead of integer ids."
        )
    return NamedArguments(args, {str(k): v for k, v in kwargs.items()}, tuple(leaves))


def is_floating(value: object) -> bool:
    """A tensor of real numbers, which has gradients."""
    return isinstance(value, Tensor) and value.is_floating_point()


def scalable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _leaves(
    name: str, value: Any, *, scale: bool, baseline: Tensor | None = None, required: bool = False
) -> list[Leaf]:
    leaves = []
    flat, _ = pytree.tree_flatten_with_path(value)
    for path, item in flat:
        full = name + pytree.keystr(path)
        if isinstance(item, Tensor) and item.layout != torch.strided:
            raise InputError(f"input {full} has layout {item.layout}: pass a dense tensor.")
        moves = scale and scalable(item)
        if scale and required and not moves:
            raise InputError(f"input {full} was named in wrt but is not a floating-point tensor.")
        leaves.append(Leaf(full, item, moves, _expand(baseline, item, full) if moves else None))
    return leaves


def extra_arguments(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments that stay as they are.

    >>> extra_arguments(2), extra_arguments({"scale": 3})
    (((2,), {}), ((), {'scale': 3}))
    """
    if value is None:
        return (), {}
    if isinstance(value, Mapping):
        return (), dict(value)
    return (tuple(value) if isinstance(value, tuple | list) else (value,)), {}


def _chosen(wrt: int | str | Iterable[int | str] | None, keys: list[int | str]) -> set[int | str] | None:
    if wrt is None:
        return None
    chosen = [wrt] if isinstance(wrt, int | str) else list(wrt)
    missing = [key for key in chosen if key not in keys]
    if missing or not chosen:
        raise InputError(f"wrt={wrt!r} names no input; the inputs are {keys}.")
    return set(chosen)


def _baselines(baseline: Any, named: list[tuple[int | str, Any]]) -> dict[int | str, Any]:
    if baseline is None:
        return {}
    if isinstance(baseline, Mapping):
        values = dict(baseline)
    elif isinstance(baseline, tuple | list):
        if len(baseline) != len(named):
            raise BaselineError(f"{len(baseline)} baselines for {len(named)} inputs: give one for each, or None.")
        values = dict(enumerate(baseline))
    else:
        values = {key: baseline for key, value in named if scalable(value)}
    unknown = [key for key in values if key not in {k for k, _ in named}]
    if unknown:
        raise BaselineError(f"baseline for {unknown}, but the inputs are {[k for k, _ in named]}.")
    return {k: v for k, v in values.items() if v is not None}


def _expand(baseline: Any, value: Tensor, name: str) -> Tensor | None:
    if baseline is None:
        return None
    tensor = torch.as_tensor(baseline, dtype=value.dtype, device=value.device).detach()
    try:
        tensor = tensor.expand(value.shape)
    except RuntimeError as error:
        raise BaselineError(
            f"the baseline of {name} has shape {tuple(tensor.shape)}, which does not broadcast to {tuple(value.shape)}."
        ) from error
    # A copy: a model may subtract in place.
    return tensor.clone() if bool((tensor != 0).any()) else None
