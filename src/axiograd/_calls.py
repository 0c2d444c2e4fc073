"""What a user passes: the inputs of a model's call, its baselines, and the target that picks one score per sample."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from axiograd._typing import Attributions, Inputs, Target
from axiograd.errors import BaselineError, InputError, TargetError

Model = nn.Module | Callable[..., Any]


def is_floating(value: object) -> bool:
    """A tensor of real numbers, which has gradients."""
    return isinstance(value, Tensor) and value.is_floating_point()


def _is_frame(value: object) -> bool:
    return hasattr(value, "columns") and hasattr(value, "index") and hasattr(value, "to_numpy")


def _from_frame(frame: Any) -> Tensor:
    """A DataFrame of numbers as one tensor of the default dtype."""
    if words := [str(name) for name in frame.columns if frame[name].dtype.kind not in "fiub"]:
        raise InputError(
            f"column {words[0]!r} of the DataFrame is of type {frame[words[0]].dtype}, not of numbers; "
            "axiograd.tables.explain takes categories too."
        )
    numbers = frame.to_numpy(dtype=np.float64, copy=True)
    if np.isnan(numbers).any():
        raise InputError(f"{int(np.isnan(numbers).sum())} cells of the DataFrame are empty; fill them first.")
    return torch.from_numpy(numbers).to(torch.get_default_dtype())


def ordinary(tensor: Tensor) -> Tensor:
    """A copy of a tensor that was made in inference mode, which autograd cannot save; any other tensor itself."""
    return tensor.clone() if tensor.is_inference() else tensor


def zeros_like(features: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Read-only zeros that take no memory."""
    return tuple(x.new_zeros(()).expand_as(x) for x in features)


@dataclass(frozen=True)
class Call:
    """Positional and keyword arguments of a model, and where among them the attributed features are.

    >>> call = read_call((torch.ones(2, 3), torch.tensor([0, 1])))
    >>> [tuple(feature.shape) for feature in call.features]
    [(2, 3)]
    >>> call.pack(call.features)
    (tensor([[1., 1., 1.], [1., 1., 1.]]), None)
    """

    positional: tuple[Any, ...]
    keyword: Mapping[str, Any]
    slots: tuple[int | str, ...]
    single: bool
    n_inputs: int
    #: Whether the inputs are the first keyword arguments, and not the first positional ones.
    by_name: bool = False
    #: The pandas DataFrame that the inputs came in, if they did: attributions go out as such a frame.
    frame: Any = None
    #: The arguments beside the features that have a row per sample; None: every tensor of the batch's length has.
    per_sample: frozenset[int | str] | None = None

    def values(self) -> tuple[Any, ...]:
        """All arguments, positional ones first."""
        return (*self.positional, *self.keyword.values())

    def check(self) -> None:
        """Refuse inputs without a feature, and features of different lengths."""
        if not self.slots:
            values = [*self.positional[: self.n_inputs], *self.keyword.values()]
            kinds = [str(v.dtype) if isinstance(v, Tensor) else type(v).__name__ for v in values]
            remedy = "For token ids, attribute to their embeddings: layer= with its name, or inputs_embeds=."
            if any(isinstance(v, np.ndarray) for v in values):
                remedy = "Make tensors of NumPy arrays with torch.from_numpy."
            elif any(isinstance(v, Mapping) for v in values):
                remedy = (
                    "A dict is passed by itself, inputs={…}, and becomes keyword arguments; where forward takes a dict "
                    "as its one argument, the model is `lambda **inputs: model(inputs)`."
                )
            raise InputError(
                f"no floating-point tensor among the inputs ({', '.join(kinds) or 'none given'}): gradients need one. "
                + remedy
            )
        for slot, feature in zip(self.slots, self.features, strict=True):
            if feature.dim() == 0 or feature.numel() == 0:
                raise InputError(
                    f"input {slot!r} has shape {tuple(feature.shape)}: expected a non-empty batch of samples, "
                    "samples along the first dimension."
                )
            if len(feature) != self.batch:
                raise InputError(
                    f"input {slot!r} has {len(feature)} samples, input {self.slots[0]!r} has {self.batch}. Pass what "
                    "has no batch dimension as additional_forward_args."
                )

    @cached_property
    def features(self) -> tuple[Tensor, ...]:
        """The floating-point tensors among the inputs, in order."""
        return tuple(self.positional[s] if isinstance(s, int) else self.keyword[s] for s in self.slots)

    @property
    def batch(self) -> int:
        """Number of samples."""
        return len(self.features[0])

    def _named(self) -> dict[int | str, Any]:
        """All arguments by their place or name."""
        return dict([*enumerate(self.positional), *self.keyword.items()])

    @property
    def inputs(self) -> dict[int | str, Any]:
        """The inputs by their place or name, without additional arguments."""
        slots = list(self.keyword if self.by_name else range(len(self.positional)))[: self.n_inputs]
        return {slot: value for slot, value in self._named().items() if slot in slots}

    def leaves(self, baseline: Any = None, scaling: Collection[int | str] | None = None) -> Leaves:
        """The same call for a proof: leaves are named; features scale around their baseline, the rest is constant.

        With `scaling` these inputs scale, with all floating-point or complex tensors that they hold.
        """
        slots = self.slots if scaling is None else scaling
        scalables = [slot for slot, value in self.inputs.items() if scalable(value)]
        baselines = {} if baseline is None else self._by_slot(baseline, scalables, "baselines", self.inputs)
        found: list[Leaf] = []
        for place, value in enumerate(self.positional):
            name = "x" if self.n_inputs == 1 else f"x{place}"
            if self.by_name or place >= self.n_inputs:
                name = f"argument[{place if self.by_name else place - self.n_inputs}]"
            found += _leaves(name, value, scale=place in slots, baseline=baselines.get(place))
        for key, value in self.keyword.items():
            found += _leaves(key, value, scale=key in slots, baseline=baselines.get(key))
        return Leaves(self.positional, dict(self.keyword), tuple(found))

    def prepared(self, *, create_graph: bool) -> Call:
        """Tensors that autograd can work with: none from inference mode, no graph unless it is wanted."""

        for v in self.values():
            if isinstance(v, Tensor) and (v.is_inference() or (v.requires_grad and not create_graph)):
                break
        else:
            return self

        def prepare(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return ordinary(value) if create_graph else ordinary(value).detach()

        return self._mapped(prepare)

    def to(self, dtype: torch.dtype) -> Call:
        """Floating-point tensors in another format."""
        return self._mapped(lambda value: value.to(dtype) if is_floating(value) else value)

    def _mapped(self, change: Callable[[Any], Any]) -> Call:
        keyword = {name: change(value) for name, value in self.keyword.items()}
        return replace(self, positional=tuple(change(value) for value in self.positional), keyword=keyword)

    def call(self, model: Model, features: Sequence[Tensor]) -> Any:
        """Run the model with other features in the same places."""
        if len(self.positional) == len(self.slots) and not self.keyword:
            return model(*features)
        filled = self.filled(features)
        return model(*filled.positional, **filled.keyword)

    def filled(self, features: Sequence[Tensor]) -> Call:
        """The same call with other features."""
        return self._with(dict(zip(self.slots, features, strict=True)))

    def _with(self, values: Mapping[int | str, Any]) -> Call:
        """The same call with other values at some places."""
        positional = tuple(values.get(place, value) for place, value in enumerate(self.positional))
        return replace(self, positional=positional, keyword={n: values.get(n, v) for n, v in self.keyword.items()})

    def pack(self, attributions: Sequence[Tensor]) -> Attributions:
        """Give attributions the structure of the inputs: tensor, tuple (None where there is none), or dict."""
        if self.frame is not None and attributions[0].dim() == 2 and not attributions[0].requires_grad:  # noqa: PLR2004
            values = attributions[0].cpu().numpy()
            return type(self.frame)(values, index=self.frame.index, columns=self.frame.columns)  # type: ignore[no-any-return]
        if self.single:
            return attributions[0]
        by_slot = dict(zip(self.slots, attributions, strict=True))
        if self.by_name:
            return {str(slot): attribution for slot, attribution in by_slot.items()}
        return tuple(by_slot.get(i) for i in range(self.n_inputs))  # type: ignore[misc]  # None: no attribution

    def rows(self, samples: slice | Tensor, repeats: int = 1) -> Call:
        """The call of some samples, the selection repeated."""
        if repeats == 1 and isinstance(samples, slice) and samples.indices(self.batch) == (0, self.batch, 1):
            return self
        features = [rows_at(x, samples, self.batch, repeats) for x in self.features]
        return self.beside(samples, repeats).filled(features)

    def beside(self, samples: slice | Tensor, repeats: int = 1) -> Call:
        """The arguments for some samples, the selection repeated; the features are still to be filled in."""
        chosen = self.rows_beside() if self.per_sample is None else self.per_sample
        take = partial(rows_at, samples=samples, batch=self.batch, repeats=repeats)
        named = self._named()
        return self._with({slot: pytree.tree_map_only(Tensor, take, named[slot]) for slot in chosen})

    def rows_beside(self) -> list[int | str]:
        """The arguments other than the features that hold a tensor with one row per sample."""
        beside = [(slot, pytree.tree_leaves(v)) for slot, v in self._named().items() if slot not in self.slots]
        return [slot for slot, leaves in beside if any(_has_rows(leaf, self.batch) for leaf in leaves)]

    def fill(self, value: Any, what: str) -> tuple[Tensor, ...]:
        """Read a baseline: None is zero; a number, or tensors in the inputs' structure that broadcast to them."""
        given = self._by_slot(0.0 if value is None else value, self.slots, what, self.slots)
        pairs = zip(self.slots, self.features, strict=True)
        return tuple(_expanded(given.get(slot, 0.0), feature, slot, what) for slot, feature in pairs)

    def at(self, baselines: Any) -> Call:
        """The same call at its baseline: floating-point inputs as `fill` reads them, others where they are given one.

        Token ids have a baseline of ids: where no input is of floating point, the first becomes 0 by default.

        >>> read_call((torch.tensor([[3, 4]]), torch.tensor([[1, 1]])), check=False).at(None).positional
        (tensor([[0, 0]]), tensor([[1, 1]]))
        """
        slots = self.slots or tuple(self.inputs)[:1]
        given = self._by_slot(0 if baselines is None else baselines, slots, "baselines", self.inputs)
        named = self._named()
        starts = dict.fromkeys(self.slots, 0) | given
        return self._with({slot: _expanded(one, named[slot], slot, "baselines") for slot, one in starts.items()})

    def _by_slot(
        self, value: Any, slots: Collection[int | str], what: str, known: Collection[int | str]
    ) -> dict[int | str, Any]:
        """A baseline for each of the inputs that are given one; a number or a tensor is for all `slots`."""
        if isinstance(value, tuple | list):
            if len(value) != self.n_inputs:
                raise BaselineError(f"{len(value)} {what} for {self.n_inputs} inputs: give one for each, or None.")
            value = {slot: one for slot, one in zip(self.inputs, value, strict=True) if slot in known}
        given = dict(value) if isinstance(value, Mapping) else dict.fromkeys(slots, value)
        if unknown := [slot for slot in given if slot not in known]:
            raise BaselineError(f"{what} for {unknown}, but the inputs that can have one are {list(known)}.")
        return {slot: one for slot, one in given.items() if one is not None}


def _expanded(value: Any, like: Tensor, slot: int | str, what: str) -> Tensor:
    """A number or a tensor in an input's shape and format."""
    if is_floating(value) and not like.is_floating_point():
        raise BaselineError(f"{what} of dtype {value.dtype} for input {slot!r}, which is of dtype {like.dtype}.")
    try:
        tensor = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError) as error:
        raise BaselineError(
            f"{what} {value!r} for input {slot!r}: expected None (zero), a number, or a tensor that broadcasts "
            f"to shape {tuple(like.shape)}."
        ) from error
    try:
        return tensor.expand_as(like)
    except RuntimeError:
        raise BaselineError(
            f"{what} for input {slot!r}: the shape {tuple(tensor.shape)} does not broadcast to {tuple(like.shape)}."
        ) from None


def read_call(inputs: Inputs, additional_forward_args: Any = None, *, check: bool = True) -> Call:
    """Read what a user passed; floating-point tensors among ``inputs`` become the features.

    Without ``check`` there need not be any: token ids, where the attributed layer comes later.

    >>> read_call({"x": torch.ones(2, 3)}, additional_forward_args={"scale": 2.0}).keyword["scale"]
    2.0
    """
    if isinstance(inputs, Tensor) and additional_forward_args is None:
        slots: tuple[int | str, ...] = (0,) if inputs.is_floating_point() else ()
        call = Call((inputs,), {}, slots, single=True, n_inputs=1)
        if check and not (slots and inputs.dim() and inputs.numel()):
            call.check()
        return call
    frame = inputs if _is_frame(inputs) else None
    if frame is not None:
        inputs = _from_frame(frame)
    positional: tuple[Any, ...] = ()
    keyword: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        keyword = dict(inputs)
        slots = tuple(name for name, value in inputs.items() if is_floating(value))
    else:
        positional = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        slots = tuple(i for i, value in enumerate(positional) if is_floating(value))
    n_inputs = len(positional) or len(keyword)
    extra, extra_keyword = extra_arguments(additional_forward_args)
    by_name, single = isinstance(inputs, Mapping), isinstance(inputs, Tensor)
    call = Call((*positional, *extra), keyword | extra_keyword, slots, single, n_inputs, by_name, frame)
    if check:
        call.check()
    return call


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
class Leaves:
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


def read_leaves(
    inputs: Inputs,
    *,
    additional_forward_args: Any = None,
    wrt: int | str | Iterable[int | str] | None = None,
    baseline: Any = None,
) -> Leaves:
    """Name every leaf, and say which ones scale: those of the inputs that `wrt` names, by default of all."""
    if not isinstance(inputs, Tensor | Mapping | tuple | list):
        raise InputError(
            f"inputs of type {type(inputs).__name__} are not understood: "
            "pass a tensor, a tuple of positional inputs, or a mapping of keyword inputs."
        )
    call = read_call(inputs, additional_forward_args, check=False)
    keys = list(call.inputs)
    chosen = keys if wrt is None else [wrt] if isinstance(wrt, int | str) else list(wrt)
    if wrt is not None and (not chosen or any(key not in keys for key in chosen)):
        raise InputError(f"wrt={wrt!r} names no input; the inputs are {keys}.")
    for key in chosen if wrt is not None else ():
        if not all(map(scalable, pytree.tree_leaves(call.inputs[key]))):
            raise InputError(f"input {key} was named in wrt but is not a floating-point tensor.")
    found = call.leaves(baseline, chosen)
    if not any(leaf.scales for leaf in found.leaves):
        kinds = ", ".join(leaf.describe() for leaf in found.leaves) or "none at all"
        raise InputError(
            f"no floating-point input to scale (inputs: {kinds}); for token models pass embeddings, "
            "e.g. inputs_embeds, instead of integer ids."
        )
    return found


def scalable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _leaves(name: str, value: Any, *, scale: bool, baseline: Any = None) -> list[Leaf]:
    leaves = []
    flat, _ = pytree.tree_flatten_with_path(value)
    for path, item in flat:
        full = name + pytree.keystr(path)
        if isinstance(item, Tensor) and item.layout != torch.strided:
            raise InputError(f"input {full} has layout {item.layout}: pass a dense tensor.")
        moves = scale and scalable(item)
        start = None if baseline is None or not moves else _expanded(baseline, item, full, "baseline").detach()
        # A copy: a model may subtract in place.
        start = start.clone() if start is not None and bool(start.any()) else None
        leaves.append(Leaf(full, item, moves, start))
    return leaves


@dataclass(frozen=True, eq=False)
class LinearTarget:
    """A weighted sum of outputs, Σ_c w_bc · F_c(x_b): one scalar per sample, of the same degree as the outputs.

    >>> LinearTarget(torch.tensor([[1.0, -1.0]]))(torch.tensor([[3.0, 5.0]]))
    tensor([-2.])
    """

    weights: Tensor

    def __call__(self, output: Any) -> Tensor:
        found = logits(output)
        flat = found.flatten(1) if found.dim() > 1 else found[:, None]
        if flat.shape[1] != self.weights.flatten(1).shape[1] or len(self.weights) not in {1, len(flat)}:
            raise TargetError(
                f"weights of shape {tuple(self.weights.shape)} do not fit an output of shape {tuple(flat.shape)}: "
                "expected one row per sample (or a single one) and one weight per output."
            )
        return (flat * self.weights.flatten(1).to(flat)).sum(1)


def logits(output: Any) -> Tensor:
    """The tensor that targets index: the output itself, or its ``logits``.

    >>> logits({"logits": torch.ones(1, 2), "hidden": None})
    tensor([[1., 1.]])
    """
    if isinstance(output, Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(found, Tensor):
        return found
    if isinstance(output, tuple | list) and len(output) == 1 and isinstance(output[0], Tensor):
        return output[0]
    raise TargetError(
        f"the model returned {type(output).__name__}, not a tensor or an output with .logits: pass a callable "
        "target that takes this output and returns one scalar per sample."
    )


def class_scores(output: Any, batch: int) -> Tensor:
    """One score per class, ``[batch, classes]``; of a model with a single score, ``[batch, 1]``.

    >>> class_scores(torch.tensor([0.5, 2.0]), 2)
    tensor([[0.5000],
            [2.0000]])
    """
    raw = logits(output)
    raw = raw[:, None] if raw.dim() == 1 else raw
    if raw.dim() != 2 or len(raw) != batch:  # noqa: PLR2004  # samples and classes
        raise TargetError(
            f"the model returns outputs of shape {tuple(raw.shape)} for {batch} samples: expected one score, or one "
            "per class. `attribute` of a method takes any function of the outputs as its target."
        )
    return raw


def select(output: Any, target: Target, batch: int) -> Tensor:
    """One scalar per sample, ``[batch]``; for the target ``"all"`` every output, ``[batch, n]``.

    >>> output = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> select(output, torch.tensor([0, 1]), 2)
    tensor([1., 4.])
    >>> select(output, lambda o: o.sum(1), 2)
    tensor([3., 7.])
    """
    if callable(target):
        return _checked_scalars(target(output), batch)
    tensor = logits(output)
    if tensor.dim() == 0 and batch == 1:
        tensor = tensor.reshape(1)
    if tensor.dim() == 0 or len(tensor) != batch:
        raise TargetError(
            f"output of shape {tuple(tensor.shape)} for {batch} samples: expected samples along the first dimension. "
            "If the input is one sample, its batch dimension is missing: x[None]."
        )
    if isinstance(target, str):
        if target != "all":
            raise TargetError(f"target {target!r}: the only string target is 'all'.")
        return tensor.reshape(batch, -1)
    if target is None:
        if tensor.numel() != batch:
            raise TargetError(
                f"target is missing: the output of each sample has shape {tuple(tensor.shape[1:])}, which is not one "
                "scalar. Give target= a class index, one index per sample, a callable, or 'all'."
            )
        return tensor.reshape(batch)
    if type(target) is int and tensor.dim() == 2 and 0 <= target < tensor.shape[1]:  # noqa: PLR2004 - the usual case
        return tensor[:, target]
    return _indexed(tensor, _indices(target, batch, tensor))


def _indices(target: Any, batch: int, output: Tensor) -> Tensor:
    """Integer indices ``[batch or 1, output.dim() - 1]``."""
    if isinstance(target, Tensor):
        if target.dtype == torch.bool or target.is_floating_point() or target.is_complex():
            raise TargetError(f"target of dtype {target.dtype}: class indices are integers.")
        indices = target.to(output.device, torch.long)
        if indices.dim() > 1 and indices.shape != (batch, 1):
            raise TargetError(f"target of shape {tuple(target.shape)}: expected a number or one index per sample.")
        indices = indices.reshape(-1, 1)
    elif isinstance(target, bool) or not isinstance(target, int | Sequence):
        raise TargetError(
            f"target of type {type(target).__name__}: expected None, an integer, a 1-D tensor, a tuple, a list of "
            "integers or tuples, a callable, or 'all'."
        )
    else:
        rows = [target] if isinstance(target, int | tuple) else list(target)
        rows = [row if isinstance(row, tuple) else (row,) for row in rows]
        try:
            indices = torch.tensor(rows, dtype=torch.long, device=output.device)
        except (TypeError, ValueError):
            raise TargetError(f"target {target!r}: expected integers or tuples of integers of one length.") from None
    if len(indices) not in {1, batch}:
        raise TargetError(f"{len(indices)} targets for {batch} samples: give one, or one per sample.")
    if indices.dim() != 2 or indices.shape[1] != output.dim() - 1:  # noqa: PLR2004  # rows of indices
        # Not the output's whole shape: a path method has every sample there many times.
        advice = " If the input is one sample, its batch dimension is missing: x[None]." if output.dim() == 1 else ""
        if isinstance(target, tuple):
            advice += f" Baselines are given by name: baselines={target!r}."
        raise TargetError(
            f"target {target!r} has {indices.shape[-1]} {'index' if indices.shape[-1] == 1 else 'indices'}, but the "
            f"output of each sample has shape {tuple(output.shape[1:])} and needs {output.dim() - 1}.{advice}"
        )
    return indices


def _indexed(output: Tensor, indices: Tensor) -> Tensor:
    if output.dim() == 2 and output.device.type == "cpu":  # noqa: PLR2004 - the usual case, where gather checks indices
        with suppress(RuntimeError):
            return output.gather(1, indices.expand(len(output), 1)).squeeze(1)
    sizes = torch.tensor(output.shape[1:], device=output.device)
    wrong = ((indices < 0) | (indices >= sizes)).any(1)
    if wrong.any():
        sample = int(wrong.nonzero()[0])
        raise TargetError(
            f"target {indices[sample].tolist()} of sample {sample} is out of range, as each sample's output has shape "
            f"{tuple(output.shape[1:])}: indices run from 0 to {(sizes - 1).tolist()}."
        )
    samples = torch.arange(len(output), device=output.device)
    return output[(samples, *(column.expand(len(output)) for column in indices.unbind(1)))]


def _has_rows(value: Any, batch: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == batch


def rows_at(value: Tensor, samples: slice | Tensor, batch: int, repeats: int = 1) -> Tensor:
    """The rows of some samples, the selection repeated; a tensor that has no row per sample stays as it is.

    >>> rows_at(torch.tensor([5, 6, 7]), slice(2), batch=3, repeats=2)
    tensor([5, 6, 5, 6])
    """
    if not _has_rows(value, batch):
        return value
    taken = value[samples if isinstance(samples, slice) else samples.to(value.device)]
    return taken.repeat(repeats, *[1] * (value.dim() - 1)) if repeats > 1 else taken


def target_rows(target: Target, samples: slice | Tensor, batch: int, repeats: int = 1) -> Target:
    """The target of some samples, repeated as they are."""
    if repeats == 1 and isinstance(samples, slice) and samples.indices(batch) == (0, batch, 1):
        return target
    if isinstance(target, LinearTarget):
        return (
            LinearTarget(rows_at(target.weights, samples, batch, repeats)) if len(target.weights) == batch else target
        )
    if isinstance(target, list) and len(target) == batch:
        taken = target[samples] if isinstance(samples, slice) else [target[i] for i in samples.tolist()]
        return taken * repeats
    return rows_at(target, samples, batch, repeats) if isinstance(target, Tensor) else target


def _checked_scalars(scores: object, batch: int) -> Tensor:
    if isinstance(scores, Tensor) and scores.shape == (batch, 1):
        scores = scores.squeeze(1)
    if not isinstance(scores, Tensor) or scores.shape != (batch,):
        what = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else f"type {type(scores).__name__}"
        raise TargetError(f"the callable target returned {what}: expected one scalar per sample, shape ({batch},).")
    return scores
