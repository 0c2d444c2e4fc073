"""The arguments of one model call, split into the tensors that receive attributions and the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from axiograd._target import rows_at
from axiograd._typing import Attributions, Inputs
from axiograd.errors import BaselineError, InputError
from axiograd.homogeneity.inputs import extra_arguments, is_floating

Model = nn.Module | Callable[..., Any]


def _is_no_container(value: object) -> bool:
    return not isinstance(value, list | tuple | dict)


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


def zeros_like(features: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Zeros that take no memory and are not to be written into."""
    return tuple(_zero(x.dtype, x.device).expand_as(x) for x in features)


@cache
def _zero(dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):
        return torch.zeros((), dtype=dtype, device=device)


@dataclass(frozen=True)
class Arguments:
    """Positional and keyword arguments of a model, and where among them the attributed features are.

    >>> arguments = Arguments.ensure((torch.ones(2, 3), torch.tensor([0, 1])))
    >>> [tuple(feature.shape) for feature in arguments.features]
    [(2, 3)]
    >>> arguments.pack(arguments.features)
    (tensor([[1., 1., 1.], [1., 1., 1.]]), None)
    """

    positional: tuple[Any, ...]
    keyword: Mapping[str, Any]
    slots: tuple[int | str, ...]
    single: bool
    n_inputs: int
    #: The pandas DataFrame that the inputs came in, if they did: attributions go out as such a frame.
    frame: Any = None

    @classmethod
    def ensure(cls, inputs: Inputs, additional: Any = None) -> Arguments:
        """Read what a user passed; floating-point tensors among ``inputs`` become the features."""
        arguments = cls.read(inputs, additional)
        usual = additional is None and isinstance(inputs, Tensor) and inputs.is_floating_point()
        if not (usual and inputs.dim() and inputs.numel()):  # type: ignore[union-attr]
            arguments._check()  # noqa: SLF001 - its own
        return arguments

    @classmethod
    def read(cls, inputs: Inputs, additional: Any = None) -> Arguments:
        """The same for calls whose inputs need not be attributed to: token ids, where a layer is."""
        slots: tuple[int | str, ...]
        positional: tuple[Any, ...]
        keyword: dict[str, Any]
        if isinstance(inputs, Tensor) and additional is None:
            return cls((inputs,), {}, (0,) if inputs.is_floating_point() else (), single=True, n_inputs=1)
        frame = inputs if _is_frame(inputs) else None
        if frame is not None:
            inputs = _from_frame(frame)
        if isinstance(inputs, Mapping):
            positional, keyword = (), dict(inputs)
            slots = tuple(name for name, value in inputs.items() if is_floating(value))
        else:
            positional = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
            keyword = {}
            slots = tuple(i for i, value in enumerate(positional) if is_floating(value))
        n_inputs = len(positional) or len(keyword)
        extra, extra_keyword = extra_arguments(additional)
        positional, keyword = (*positional, *extra), keyword | extra_keyword
        return cls(positional, keyword, slots, isinstance(inputs, Tensor), n_inputs, frame)

    def values(self) -> tuple[Any, ...]:
        """All arguments, positional ones first."""
        return (*self.positional, *self.keyword.values())

    def _check(self) -> None:
        if not self.slots:
            values = [*self.positional[: self.n_inputs], *self.keyword.values()]
            kinds = [str(v.dtype) if isinstance(v, Tensor) else type(v).__name__ for v in values]
            remedy = (
                "Make tensors of NumPy arrays with torch.from_numpy."
                if any(isinstance(v, np.ndarray) for v in values)
                else "For token ids, attribute to their embeddings: layer= with its name, or inputs_embeds=."
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

    def prepared(self, *, create_graph: bool) -> Arguments:
        """Tensors that autograd can work with: none from inference mode, no graph unless it is wanted."""

        for v in self.values():
            if isinstance(v, Tensor) and (v.is_inference() or (v.requires_grad and not create_graph)):
                break
        else:
            return self

        def prepare(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            value = value.clone() if value.is_inference() else value
            return value if create_graph else value.detach()

        return self._mapped(prepare)

    def to(self, dtype: torch.dtype) -> Arguments:
        """Floating-point tensors in another format."""
        return self._mapped(lambda value: value.to(dtype) if is_floating(value) else value)

    def _mapped(self, change: Callable[[Any], Any]) -> Arguments:
        keyword = {name: change(value) for name, value in self.keyword.items()}
        return replace(self, positional=tuple(change(value) for value in self.positional), keyword=keyword)

    def call(self, model: Model, features: Sequence[Tensor]) -> Any:
        """Run the model with other features in the same places."""
        if len(self.positional) == len(self.slots) and not self.keyword:
            return model(*features)
        positional, keyword = self._placed(features)
        return model(*positional, **keyword)

    def filled(self, features: Sequence[Tensor]) -> Arguments:
        """The same call with other features."""
        positional, keyword = self._placed(features)
        return replace(self, positional=positional, keyword=keyword)

    def _placed(self, features: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional, keyword = list(self.positional), dict(self.keyword)
        for slot, feature in zip(self.slots, features, strict=True):
            if isinstance(slot, int):
                positional[slot] = feature
            else:
                keyword[slot] = feature
        return tuple(positional), keyword

    def pack(self, attributions: Sequence[Tensor]) -> Attributions:
        """Give attributions the structure of the inputs: tensor, tuple (None where there is none), or dict."""
        if self.frame is not None and attributions[0].dim() == 2 and not attributions[0].requires_grad:  # noqa: PLR2004
            values = attributions[0].cpu().numpy()
            return type(self.frame)(values, index=self.frame.index, columns=self.frame.columns)  # type: ignore[no-any-return]
        if self.single:
            return attributions[0]
        by_slot = dict(zip(self.slots, attributions, strict=True))
        if self.positional and isinstance(self.slots[0], int):
            return tuple(by_slot.get(i) for i in range(self.n_inputs))  # type: ignore[misc]  # None: no attribution
        return {str(slot): attribution for slot, attribution in by_slot.items()}

    def rows(self, samples: slice | Tensor, repeats: int = 1) -> Arguments:
        """Select samples and repeat the selection; every tensor with the batch's length takes part."""
        if repeats == 1 and isinstance(samples, slice) and samples.indices(self.batch) == (0, self.batch, 1):
            return self
        batch = self.batch

        def take(value: Any) -> Any:
            own = lambda t: rows_at(t, samples, batch, repeats)  # noqa: E731
            return pytree.tree_map_only(Tensor, own, value, is_leaf=_is_no_container)

        return self._mapped(take)

    def beside(self, samples: slice | Tensor, repeats: int = 1) -> Arguments:
        """Rows for a call with features of its own: where there is nothing else, nothing is copied."""
        only_features = len(self.positional) + len(self.keyword) == len(self.slots)
        return self if only_features else self.rows(samples, repeats)

    def fill(self, value: Any, what: str) -> tuple[Tensor, ...]:
        """Read a baseline: None is zero; a number, or tensors in the inputs' structure that broadcast to them."""
        if value is None:
            value = 0.0
        if isinstance(value, Mapping):
            unknown = sorted(str(name) for name in value if name not in self.slots)
            if unknown:
                raise BaselineError(
                    f"{what} for {', '.join(unknown)}, but the floating-point inputs are {list(self.slots)}."
                )
            values = [value.get(slot, 0.0) for slot in self.slots]
        elif isinstance(value, tuple | list):
            values = [value[slot] if isinstance(slot, int) and slot < len(value) else None for slot in self.slots]
            if len(value) != self.n_inputs:
                raise BaselineError(f"{len(value)} {what} for {self.n_inputs} inputs: give one for each.")
        else:
            values = [value] * len(self.slots)
        filled = []
        for slot, feature, one in zip(self.slots, self.features, values, strict=True):
            try:
                tensor = torch.as_tensor(0.0 if one is None else one, dtype=feature.dtype, device=feature.device)
            except (TypeError, ValueError) as error:
                raise BaselineError(
                    f"{what} {one!r} for input {slot!r}: expected None (zero), a number, or a tensor that broadcasts "
                    f"to shape {tuple(feature.shape)}."
                ) from error
            try:
                filled.append(tensor.expand_as(feature))
            except RuntimeError:
                raise BaselineError(
                    f"{what} of shape {tuple(tensor.shape)} do not broadcast to input {slot!r} of shape "
                    f"{tuple(feature.shape)}."
                ) from None
        return tuple(filled)
