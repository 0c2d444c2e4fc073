"""Fit a calibrated strip: the original and its twin walk side by side, and each layer of the twin learns from both.

For y = W h + b of the original, with h of the twin so far and the pre-activation z of the original:

1. v by ridge regression so that c(h) = v · (pooled(h, W h), extremes(h)) is 1 on the images; b·c(h) stands for b.
2. ΔW by ridge regression from patches of h to z − W h − b·c(h), as far as the ReLU behind it lets through. The last
   layer before a residual sum also makes up for what the other branch has lost.

No labels and no training; images that are held out judge every layer.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from axiograd.homogeneity.conversion.calibrated.functions import callable_of
from axiograd.homogeneity.conversion.calibrated.graph import CalibrationPlan, Site, plan
from axiograd.homogeneity.conversion.calibrated.images import Calibration, read_images
from axiograd.homogeneity.conversion.calibrated.kept import KeptLayers, kept_layers
from axiograd.homogeneity.conversion.calibrated.layers import ActivationAtScale, AffineOfDegreeOne, CappedReLU
from axiograd.homogeneity.conversion.calibrated.patches import can_fit, gather, grouped, patches, places
from axiograd.homogeneity.conversion.calibrated.regression import Problem, change_of_weights, constant
from axiograd.homogeneity.conversion.calibrated.shelf import Shelf
from axiograd.homogeneity.tracing.nodes import op_name

#: The last layer may be this many times as wrong on held-out images as on those that it was fitted to, and some more.
_TIMES, _MORE = 3.0, 0.1
#: Every n-th image chooses the penalty of a layer's weights.
JUDGING = 5
_GATES = {"aten::relu", "aten::relu_", "aten::relu6", "aten::hardtanh", "aten::hardtanh_"}


@dataclass(frozen=True)
class LayerFit:
    """How much of a layer's variance over images and places the twin reproduces: 1 is all of it."""

    name: str
    calibration: float
    held_out: float
    #: Root mean square of c(h) − 1 on held-out images; 0 for a layer without bias.
    bias_error: float
    #: Penalty of the weights, as a share of the mean diagonal of the Gram matrix; NaN where they were not fitted.
    penalty: float = math.nan

    def __str__(self) -> str:
        return f"{self.name}: {self.calibration:.3f} calibration, {self.held_out:.3f} held out"


class OverfittingWarning(UserWarning):
    """Too few calibration images for the weights that are fitted to them."""


def warn_of_overfitting(fits: tuple[LayerFit, ...]) -> None:
    """Compare what the last layer reproduces on the images that it was fitted to and on held-out ones."""
    if fits and 1 - fits[-1].held_out > _TIMES * (1 - fits[-1].calibration) + _MORE:
        warnings.warn(
            f"the last layer reproduces {fits[-1].calibration:.2f} of the original on the calibration images and "
            f"{fits[-1].held_out:.2f} on those held out of them: use more images.",
            OverfittingWarning,
            stacklevel=4,
        )


@torch.no_grad()
def calibrated_strip(
    model: nn.Module, example: Tensor, calibration: Calibration
) -> tuple[fx.GraphModule, tuple[LayerFit, ...]]:
    """The twin of a model in which every affine layer has degree 1, fitted to images, and how good each layer is."""
    images, held = read_images(calibration, example)
    layout = plan(model, example)
    fits = []
    with kept_layers(layout, calibration, [*images, *held]) as kept, calibration.shown(len(layout.sites)) as tell:
        for fit in _Walk(layout, calibration, images, held, kept).run():
            fits.append(fit)
            tell(fit.name)
    layout.converted.eval()
    return layout.converted, tuple(fits)


class _Walk:
    def __init__(
        self,
        layout: CalibrationPlan,
        calibration: Calibration,
        images: list[Tensor],
        held: list[Tensor],
        kept: KeptLayers | None = None,
    ) -> None:
        self.layout, self.calibration, self.kept = layout, calibration, kept
        self.shelf = Shelf(calibration.memory * 2**30)
        self.chunks = [_fast(chunk) for chunk in (*images, *held)]
        self.fitted = len(images)
        self.generator = torch.Generator().manual_seed(calibration.seed)
        self.sites = {site.result: site for site in layout.sites}
        self.caps = {
            node: layout.converted.get_submodule(str(twin.target))
            for node, twin in layout.twin.items()
            if twin.op == "call_module"
        }
        #: Values of the original and of the twin by node of the original, one per chunk; c by result of a site.
        self.original: dict[fx.Node, list[Any]] = {}
        self.twin: dict[fx.Node, list[Any]] = {}
        self.ones: dict[fx.Node, list[Tensor]] = {}

    def run(self) -> Iterator[LayerFit]:
        absorbed = _absorbed(self.layout)
        last_use: dict[fx.Node, list[fx.Node]] = {}
        number = {site.result: i for i, site in enumerate(self.layout.sites)}
        order = [n for n in self.layout.graph.nodes if n not in self.layout.constants and n not in absorbed]
        for node in order:
            for source in {self.sites[node].source} if node in self.sites else node.all_input_nodes:
                last_use.setdefault(source, []).append(node)
        for node in order:
            if node.op == "placeholder":
                self.original[node] = self.twin[node] = self.chunks
            elif node in self.sites:
                yield self._layer(self.sites[node], number[node])
            elif node.op != "output":
                self._operator(node)
            for source, users in last_use.items():
                if users[-1] is node:
                    for values in (self.original, self.twin, self.ones):
                        values.pop(source, None)

    def _operator(self, node: fx.Node) -> None:
        self.original[node] = self._apply(node, self.original)
        cap = self.caps.get(node)
        if isinstance(cap, CappedReLU | ActivationAtScale):
            (source,) = node.all_input_nodes
            pairs = zip(self.twin[source], self.ones[source], strict=True)
            self.twin[node] = [self._keep(cap(y, one)) for y, one in pairs]
        else:
            self.twin[node] = self._apply(node, self.twin)
        carried = next((self.ones[source] for source in node.all_input_nodes if source in self.ones), None)
        if carried is not None:
            self.ones[node] = carried

    def _apply(self, node: fx.Node, values: dict[fx.Node, list[Any]]) -> list[Any]:
        """One operator on every chunk."""
        results = []
        for i in range(len(self.chunks)):

            def read(n: fx.Node, i: int = i) -> Any:
                return self.layout.constants[n] if n in self.layout.constants else values[n][i]

            args, kwargs = fx.map_arg((node.args, node.kwargs), read)
            if "dropout" in op_name(node):
                results.append(args[0])
            else:
                results.append(self._keep(callable_of(node)(*args, **kwargs)))
        return results

    def _keep(self, value: Any) -> Any:
        return self.shelf.keep(value) if isinstance(value, Tensor) else value

    def _layer(self, site: Site, number: int) -> LayerFit:
        """Fit a layer, or take it as an earlier run has fitted it, and go through it."""
        layer, calibration = site.layer, self.calibration
        h, before = self.twin[site.source], self.ones.get(site.source)
        z = self.original[site.result] = [self._keep(_affine(layer, x)) for x in self.original[site.source]]
        if not calibration.read_biases:
            layer.bias = layer.reader = None
        known = None if self.kept is None else self.kept.restore(site, number, self.generator)
        other = self._other_branch(site)
        gated = calibration.through_gates and _is_gated(site.result if other is None else next(iter(site.result.users)))
        penalty = math.nan
        if known is None and calibration.fit_weights and can_fit(layer):
            change, penalty = change_of_weights(self._problem(site, other, gated=gated), calibration.penalties)
            layer.weight += change.transpose(1, 2).reshape(layer.weight.shape).to(layer.weight.dtype)
        y = self.twin[site.result] = [self._keep(layer.linear_part(x)) for x in h]
        ones = before or [part.new_zeros(len(part)) for part in y]
        if layer.bias is not None:
            features = [layer.features(*pair) for pair in zip(h, y, strict=True)]
            if known is None:
                layer.reader = self._reader(layer, features[: self.fitted], before)
            reader: Tensor = layer.reader  # type: ignore[assignment]  # a layer with a bias has one
            ones = [part @ reader + one for part, one in zip(features, ones, strict=True)]
            for part, one in zip(y, ones, strict=True):
                part.add_(layer.spread(one, part))
        self.ones[site.result] = ones
        if known is not None:
            return LayerFit(site.name, *known)
        pairs = list(zip(y, z, strict=True))
        if other is not None:
            pairs = [(a + b, c + d) for (a, c), b, d in zip(pairs, self.twin[other], self.original[other], strict=True)]
        if gated:
            pairs = [(a.relu(), b.relu()) for a, b in pairs]
        judged = torch.cat([torch.zeros(0), *(one.cpu() for one in ones[self.fitted :])])
        quality = [
            reproduced(pairs[: self.fitted], layer.channels),
            reproduced(pairs[self.fitted :], layer.channels),
            float((judged - 1).square().mean().sqrt()) if layer.bias is not None and len(judged) else 0.0,
            penalty,
        ]
        if self.kept is not None:
            self.kept.keep(site, number, self.generator, quality)
        return LayerFit(site.name, *quality)

    def _reader(self, layer: AffineOfDegreeOne, features: list[Tensor], before: list[Tensor] | None) -> nn.Parameter:
        whole = torch.cat(features).double()
        known = None if before is None else torch.cat(before[: self.fitted])
        v, _ = constant(whole, layer.blocks, self.calibration.bias_ridge, known)
        return nn.Parameter(v.to(layer.weight.dtype))

    def _problem(self, site: Site, other: fx.Node | None, *, gated: bool) -> Problem:
        """The regression of a layer's weights, on sampled places."""
        layer, before = site.layer, self.ones.get(site.source)
        rows, given, wanted, features = [], [], [], []
        for i, x in enumerate(self.twin[site.source][: self.fitted]):
            y, z = layer.linear_part(x), self.original[site.result][i]
            at = places(layer, y, self.calibration.patches, self.generator)
            rows.append(patches(layer, x, y, at))
            if layer.bias is not None:
                features.append(layer.features(x, y))
            if other is not None:
                y, z = y + self.twin[other][i], z + self.original[other][i]
            given.append(gather(layer, y, at))
            wanted.append(gather(layer, z, at))
        images = sum(map(len, self.chunks[: self.fitted]))
        made = torch.cat(given)
        image = torch.arange(images, device=made.device).repeat_interleave(len(made) // images)
        if layer.bias is not None:
            layer.reader = self._reader(layer, features, before)
            one = torch.cat(features) @ layer.reader
            one = one if before is None else one + torch.cat(before[: self.fitted])
            made += one[image][:, None] * layer.bias
        p, made, z = (grouped(layer, part) for part in (torch.cat(rows), made, torch.cat(wanted)))
        return Problem(p, made, z, image % JUDGING == JUDGING - 1, gated)

    def _other_branch(self, site: Site) -> fx.Node | None:
        """The other term of the sum that this layer goes into, if it has been computed."""
        users = list(site.result.users)
        if len(users) != 1 or op_name(users[0]) != "aten::add" or users[0].kwargs:
            return None
        terms = [n for n in users[0].args[:2] if isinstance(n, fx.Node) and n is not site.result]
        if len(terms) != 1 or terms[0] not in self.twin:
            return None
        same = self.twin[terms[0]][0].shape[1:] == site.result.meta["val"].shape[1:]
        return terms[0] if same else None


def _fast(images: Tensor) -> Tensor:
    """Channels last: the same numbers to rounding, and convolutions on a processor twice as fast."""
    return images.contiguous(memory_format=torch.channels_last) if images.dim() == 4 else images  # noqa: PLR2004


def _is_gated(node: fx.Node) -> bool:
    """Whether everything that reads this is a ReLU."""
    return bool(node.users) and all(op_name(user) in _GATES for user in node.users)


def _absorbed(layout: CalibrationPlan) -> set[fx.Node]:
    """Nodes of the original that a layer with its norm folded in stands for."""
    results = {site.result for site in layout.sites}
    made = {layout.twin[result] for result in results}
    return {
        node
        for node, twin in layout.twin.items()
        if twin in made and node not in results and "dropout" not in op_name(node)
    }


def _affine(layer: AffineOfDegreeOne, h: Tensor) -> Tensor:
    """The layer of the original, before it is fitted."""
    y = layer.linear_part(h)
    if layer.bias is None:
        return y
    shape = [1] * y.dim()
    shape[layer.channels] = -1
    return y + layer.bias.view(shape)


def reproduced(pairs: list[tuple[Tensor, Tensor]], channels: int) -> float:
    """1 − ‖y − z‖² / ‖z − mean of its channel‖²."""
    if not pairs:
        return math.nan
    wanted = [z for _, z in pairs]
    error = sum(float((y - z).double().square().sum()) for y, z in pairs)
    dims = [d for d in range(wanted[0].dim()) if d != channels % wanted[0].dim()]
    count = sum(z.numel() // z.shape[channels] for z in wanted)
    mean = sum(
        (z.double().sum(dims, keepdim=True) for z in wanted[1:]), start=wanted[0].double().sum(dims, keepdim=True)
    )
    spread = sum(float((z - mean / count).square().sum()) for z in wanted)
    return 1.0 - error / spread if spread > 0 else float(error == 0)
