"""A few samples whose attributions are tracked while a network is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from axiograd._state import in_mode
from axiograd._typing import Inputs, Target
from axiograd.attribution import Attribution, Explanation, XGradient
from axiograd.errors import ConfigurationError, InputError, MissingExtraError
from axiograd.report import feature_bars, heatmap

_IMAGES, _TABLE, _COLOURS = 4, 2, {1, 3}
#: So many samples are drawn.
_DRAWN = 8


@dataclass(frozen=True)
class Look:
    """What was seen of one state of the network."""

    #: Σ|attribution| in the masks over Σ|attribution|, mean over the samples; None without masks.
    share: float | None
    #: |Σ attribution − (F(x) − F(x′))| relative to the root mean square of F(x) − F(x′), the mean over the samples.
    gap: float
    explanation: Explanation

    def numbers(self, prefix: str = "attribution_") -> dict[str, float]:
        """The numbers under the names by which they are logged."""
        share = {} if self.share is None else {f"{prefix}share_in_masks": self.share}
        return {**share, f"{prefix}completeness_gap": self.gap}

    def figure(self, title: str = "") -> Any:
        """Heat maps of images, bars of tables; None for what has no picture, and where matplotlib is missing."""
        attributions, images = _only(self.explanation.attributions), _only(self.explanation.inputs)
        if attributions is None:
            return None
        try:
            if attributions.dim() == _TABLE:
                return feature_bars(attributions, title=title or None)
            if attributions.dim() != _IMAGES:
                return None
            if images is not None and (images.shape != attributions.shape or images.shape[1] not in _COLOURS):
                images = None
            beside = None if images is None else images[:_DRAWN]
            return heatmap(attributions[:_DRAWN], beside, title=title or None)
        except MissingExtraError:
            return None


class AttributionWatch:
    """Samples to look at, and the masks of what must not (or must) count in them.

    `inputs` are a tensor, or what `method` takes; `masks` broadcast to the attributions. The network is left as it was,
    and is looked at in eval mode.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> watch = AttributionWatch(torch.tensor([[3.0, 1.0]]), target=0, masks=torch.tensor([[1, 0]]))
    >>> watch.look(model).numbers()
    {'attribution_share_in_masks': 0.75, 'attribution_completeness_gap': 0.0}
    """

    def __init__(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        masks: Tensor | None = None,
        method: Callable[..., Attribution] = XGradient,
    ) -> None:
        self.inputs, self.target, self.masks, self.method = inputs, target, masks, method
        self._bound: tuple[nn.Module, Attribution] | None = None

    def look(self, model: nn.Module) -> Look:
        """Attributions of the samples by this network as it is now."""
        if self._bound is None or self._bound[0] is not model:
            # A method keeps its proof for as long as the network is the same.
            self._bound = (model, self.method(model))
        method = self._bound[1]
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        inputs, target = tree_map_only(Tensor, lambda tensor: tensor.to(device), (self.inputs, self.target))
        with in_mode(model, training=False):
            explanation = method.explain(inputs, target)
            completeness = method.completeness(inputs, target)
        share = None if self.masks is None else self._share(explanation.attributions, self.masks)
        return Look(share, float(completeness.relative.double().mean()), explanation)

    def _share(self, attributions: Any, masks: Tensor) -> float:
        found = _only(attributions)
        if found is None:
            raise ConfigurationError("masks are for one input tensor, and the model has several.")
        mass = found.abs().double().cpu()
        mask = masks.cpu().to(mass.dtype)
        if mask.dim() == mass.dim() - 1 and mass.dim() == _IMAGES:
            mask = mask[:, None]
        if mask.dim() != mass.dim() or any(m not in {1, n} for m, n in zip(mask.shape, mass.shape, strict=True)):
            raise InputError(
                f"masks of shape {tuple(masks.shape)} do not fit attributions of shape {tuple(mass.shape)}: give one "
                "value per sample and feature, or pixel."
            )
        inside, whole = (mass * mask).flatten(1).sum(1), mass.flatten(1).sum(1)
        return float((inside / whole.clamp(min=torch.finfo(mass.dtype).tiny)).mean())


def _only(values: Any) -> Tensor | None:
    """The tensor of real numbers, also if it is alone in a tuple or a mapping; None if there are several."""
    floats = [part for part in tree_leaves(values) if isinstance(part, Tensor) and part.is_floating_point()]
    return floats[0] if len(floats) == 1 else None
