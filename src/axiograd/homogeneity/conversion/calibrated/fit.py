"""Fit a calibrated strip: the original and its twin walk side by side, and each layer of the twin learns from both.

For y = W h + b of the original, with h of the twin so far and the pre-activation z of the original:

1. v by ridge regression so that c(h) = v · pooled(h, W h) is 1 on the images; then b·c(h) stands for b.
2. ΔW by ridge regression from patches of h to z − W h − b·c(h). The last layer before a residual sum also makes up for
   what the other branch has lost.

No labels and no training; images that are held out judge every layer.
"""

import itertools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from axiograd.homogeneity.conversion.calibrated.graph import Plan, Site, op_name, plan
from axiograd.homogeneity.conversion.calibrated.images import Calibration, read_images
from axiograd.homogeneity.conversion.calibrated.layers import AffineOfDegreeOne, CappedReLU, scale_channels

#: Systems up to this size are solved in double precision: a ridge keeps larger ones well-conditioned enough.
_DOUBLE = 1024
#: Penalties that leave-one-out chooses from, as shares of the mean eigenvalue.
_PENALTIES = tuple(10.0**k for k in (-5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0))
#: The last layer may be this many times as wrong on held-out images as on those that it was fitted to, and some more.
_TIMES, _MORE = 3.0, 0.1


@dataclass(frozen=True)
class LayerFit:
    """How much of a layer's variance over images and places the twin reproduces: 1 is all of it."""

    name: str
    calibration: float
    held_out: float
    #: Standard deviation of c(h) around 1 on held-out images; 0 for a layer without bias.
    bias_error: float

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
    walk = _Walk(layout, calibration, images, held)
    fits = []
    for done, fit in enumerate(walk.run(), start=1):
        fits.append(fit)
        if calibration.progress is not None:
            calibration.progress(done, len(layout.sites))
    layout.converted.eval()
    return layout.converted, tuple(fits)


class _Walk:
    def __init__(self, layout: Plan, calibration: Calibration, images: list[Tensor], held: list[Tensor]) -> None:
        self.layout, self.calibration = layout, calibration
        self.chunks = [*images, *held]
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
        order = [n for n in self.layout.graph.nodes if n not in self.layout.constants and n not in absorbed]
        for node in order:
            for source in {self.sites[node].source} if node in self.sites else node.all_input_nodes:
                last_use.setdefault(source, []).append(node)
        for node in order:
            if node.op == "placeholder":
                self.original[node] = self.twin[node] = self.chunks
            elif node in self.sites:
                yield self._layer(self.sites[node])
            elif node.op != "output":
                self._operator(node)
            for source, users in last_use.items():
                if users[-1] is node:
                    for values in (self.original, self.twin, self.ones):
                        values.pop(source, None)

    def _operator(self, node: fx.Node) -> None:
        self.original[node] = self._apply(node, self.original)
        cap = self.caps.get(node)
        if isinstance(cap, CappedReLU):
            (source,) = node.all_input_nodes
            self.twin[node] = [cap(y, one) for y, one in zip(self.twin[source], self.ones[source], strict=True)]
        else:
            self.twin[node] = self._apply(node, self.twin)

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
                results.append(node.target(*args, **kwargs))  # type: ignore[operator]
        return results

    def _layer(self, site: Site) -> LayerFit:
        layer = site.layer
        h = self.twin[site.source]
        z = [_affine(layer, x) for x in self.original[site.source]]
        wanted = z
        other = self._other_branch(site)
        if other is not None:
            pairs = zip(z, self.original[other], self.twin[other], strict=True)
            wanted = [value + a - b for value, a, b in pairs]
        self._fit(layer, h[: self.fitted], wanted[: self.fitted])
        outputs = [layer(x) for x in h]
        self.original[site.result] = z
        self.twin[site.result] = [y for y, _ in outputs]
        self.ones[site.result] = [one for _, one in outputs]
        ys = self.twin[site.result]
        ones = torch.cat([y.new_zeros(0) for y in ys[:1]] + self.ones[site.result][self.fitted :])
        return LayerFit(
            site.name,
            _reproduced(ys[: self.fitted], wanted[: self.fitted], layer.channels),
            _reproduced(ys[self.fitted :], wanted[self.fitted :], layer.channels),
            0.0 if layer.reader is None or not len(ones) else float((ones - 1).square().mean().sqrt()),
        )

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

    def _fit(self, layer: AffineOfDegreeOne, h: list[Tensor], wanted: list[Tensor]) -> None:
        if not self.calibration.read_biases:
            layer.bias = layer.reader = None
        read = layer.bias is not None
        if read:
            self._read_bias(layer, h)
        if self.calibration.fit_weights and _can_fit(layer):
            layer.weight += self._change(layer, h, wanted)
            if read:
                self._read_bias(layer, h)

    def _read_bias(self, layer: AffineOfDegreeOne, h: list[Tensor]) -> None:
        features = torch.cat([layer.features(x, layer.linear_part(x)) for x in h]).double()
        layer.reader = nn.Parameter(_reader(features, self.calibration.bias_ridge).to(layer.weight.dtype))

    def _change(self, layer: AffineOfDegreeOne, h: list[Tensor], wanted: list[Tensor]) -> Tensor:
        """ΔW by ridge regression on sampled places."""
        groups = _groups(layer)
        rows, targets = [], []
        for x, z in zip(h, wanted, strict=True):
            left = z - layer(x)[0]
            at = self._places(layer, left)
            rows.append(_patches(layer, x, left, at))
            targets.append(_gather(layer, left, at))
        p, t = torch.cat(rows), torch.cat(targets)
        p = p.reshape(len(p), groups, -1).transpose(0, 1)
        t = t.reshape(len(t), groups, -1).transpose(0, 1)
        change = _ridge(p, t, self.calibration.ridge)  # [groups, features, outputs]
        return change.transpose(1, 2).reshape(layer.weight.shape).to(layer.weight.dtype)

    def _places(self, layer: AffineOfDegreeOne, y: Tensor) -> Tensor:
        """Sampled places of each image, by number."""
        dims = [size for d, size in enumerate(y.shape) if d not in {0, layer.channels % y.dim()}]
        n, count = math.prod(dims), min(self.calibration.patches, math.prod(dims))
        return torch.stack([torch.randperm(n, generator=self.generator)[:count] for _ in range(len(y))]).to(y.device)


def _absorbed(layout: Plan) -> set[fx.Node]:
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


def _can_fit(layer: AffineOfDegreeOne) -> bool:
    """Depthwise filters have too few weights to build anything from, and padding by name has no numbers."""
    if layer.product is scale_channels or "transpose" in str(layer.product):
        return False
    if layer.product is torch.ops.aten.linear.default:
        return True
    return str(layer.product).endswith(".default") and layer.weight.shape[1] > 1


def _groups(layer: AffineOfDegreeOne) -> int:
    return int(_options(layer)[3]) if layer.channels == 1 else 1


def _options(layer: AffineOfDegreeOne) -> tuple[list[int], list[int], list[int], int]:
    """Stride, padding, dilation, groups of a convolution."""
    n = layer.weight.dim() - 2
    given = (*layer.options, *(1, 0, 1, 1)[len(layer.options) :])
    stride, padding, dilation = (
        [v] * n if isinstance(v, int) else list(v) * (n if len(v) == 1 else 1) for v in given[:3]
    )
    return stride, padding, dilation, int(given[3])


def _gather(layer: AffineOfDegreeOne, y: Tensor, at: Tensor) -> Tensor:
    """The outputs at sampled places, [images · places, channels]."""
    flat = y.movedim(layer.channels, -1).flatten(1, -2) if y.dim() > 2 else y[:, None]  # noqa: PLR2004
    return flat.gather(1, at[..., None].expand(-1, -1, flat.shape[-1])).flatten(0, 1)


def _patches(layer: AffineOfDegreeOne, h: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """What the weights see at sampled places, [images · places, groups · weights of an output]."""
    if layer.channels == -1:
        return _gather(layer, h, at)
    stride, padding, dilation, _ = _options(layer)
    padded = nn.functional.pad(h, [p for size in reversed(padding) for p in (size, size)])
    places = torch.unravel_index(at, y.shape[2:])
    image = torch.arange(len(h), device=h.device)[:, None].expand_as(at)
    seen = []
    for offset in itertools.product(*(range(k) for k in layer.weight.shape[2:])):
        index = [p * s + o * d for p, s, o, d in zip(places, stride, offset, dilation, strict=True)]
        seen.append(padded.movedim(1, -1)[(image, *index)])
    return torch.stack(seen, -1).flatten(2).flatten(0, 1)


def _reader(features: Tensor, ridge: float | None) -> Tensor:
    """v with features · v = 1 by ridge regression; the penalty, if not given, is the best one by leave-one-out.

    The error of an image that is left out is (1 − ŷ)/(1 − H) with its ŷ and its diagonal entry of H = K (K + λ)⁻¹.
    """
    gram = features @ features.T
    values, vectors = torch.linalg.eigh(gram)
    values = values.clamp_min(0)
    ones = vectors.sum(0)  # 1 in the eigenvectors' coordinates
    scale = values.mean().clamp_min(torch.finfo(torch.float64).tiny)
    errors = {}
    for share in _PENALTIES if ridge is None else (ridge,):
        kept = values / (values + share * scale)
        left_out = (1 - vectors @ (kept * ones)) / (1 - (vectors.square() @ kept)).clamp_min(1e-12)
        errors[share] = float(left_out.square().mean())
    best = min(errors, key=lambda share: errors[share])
    dual: Tensor = vectors @ (ones / (values + best * scale))
    return features.T @ dual


def _ridge(p: Tensor, t: Tensor, ridge: float) -> Tensor:
    """argmin ‖p·w − t‖² + λ‖w‖², λ = ridge · mean of the diagonal of pᵀp, for each of a batch of systems."""
    rows, columns = p.shape[-2:]
    if min(rows, columns) <= _DOUBLE:
        p, t = p.double(), t.double()
    scale = p.square().sum((-2, -1)) / columns
    penalty = (ridge * scale).clamp_min(torch.finfo(p.dtype).tiny)[:, None, None]
    if rows < columns:
        gram = p @ p.mT
        eye = torch.eye(rows, dtype=p.dtype, device=p.device)
        dual: Tensor = torch.linalg.solve(gram + penalty * eye, t)
        return p.mT @ dual
    gram = p.mT @ p
    eye = torch.eye(columns, dtype=p.dtype, device=p.device)
    weights: Tensor = torch.linalg.solve(gram + penalty * eye, p.mT @ t)
    return weights


def _reproduced(ys: list[Tensor], wanted: list[Tensor], channels: int) -> float:
    """1 − ‖y − z‖² / ‖z − mean of its channel‖²."""
    if not ys:
        return math.nan
    error = sum(float((y - z).double().square().sum()) for y, z in zip(ys, wanted, strict=True))
    dims = [d for d in range(wanted[0].dim()) if d != channels % wanted[0].dim()]
    count = sum(z.numel() // z.shape[channels] for z in wanted)
    mean = sum(
        (z.double().sum(dims, keepdim=True) for z in wanted[1:]), start=wanted[0].double().sum(dims, keepdim=True)
    )
    spread = sum(float((z - mean / count).square().sum()) for z in wanted)
    return 1.0 - error / spread if spread > 0 else float(error == 0)
