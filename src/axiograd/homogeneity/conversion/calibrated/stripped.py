"""Least squares for a network that a plain strip has made: its biases are gone, and its weights make up for them.

From the input on, W → W + ΔW of every linear layer and convolution, ΔW by ridge regression from what the stripped
network's layer reads to what the original's makes. Norms that keep their scale and exchanged operators stay so.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.errors import ConfigurationError
from axiograd.homogeneity.conversion.calibrated.fit import JUDGING, LayerFit, reproduced
from axiograd.homogeneity.conversion.calibrated.images import Calibration, read_images
from axiograd.homogeneity.conversion.calibrated.layers import AffineOfDegreeOne
from axiograd.homogeneity.conversion.calibrated.patches import gather, grouped, patches, places
from axiograd.homogeneity.conversion.calibrated.regression import Problem, change_of_weights
from axiograd.homogeneity.conversion.calibration import run_in_mode

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@torch.no_grad()
def fit_stripped(
    original: nn.Module, stripped: nn.Module, example: Tensor, calibration: Calibration
) -> tuple[LayerFit, ...]:
    """Fit the stripped network in place, and say how good each layer is."""
    if calibration.folder is not None or not calibration.fit_weights:
        raise ConfigurationError("exchange=True fits weights and keeps no layers in a folder: leave both settings.")
    images, held = read_images(calibration, example)
    generator = torch.Generator().manual_seed(calibration.seed)
    fits = []
    with ExitStack() as stack:
        for model in (original, stripped):
            stack.enter_context(run_in_mode(model, training=False))
        layers = list(_layers(original, stripped, example))
        tell = stack.enter_context(calibration.shown(len(layers)))
        for path, layer in layers:
            rows = [_Rows(original, stripped, path, layer, part, calibration, generator) for part in (images, held)]
            fits.append(_fit(path, layer, rows[0], rows[1], calibration))
            tell(path)
    return tuple(fits)


def _fit(path: str, layer: nn.Module, fitted: "_Rows", held: "_Rows", calibration: Calibration) -> LayerFit:
    problem = Problem(fitted.p, fitted.given, fitted.wanted, fitted.image % JUDGING == JUDGING - 1, gated=False)
    change, penalty = change_of_weights(problem, calibration.penalties)
    weight: Tensor = layer.weight  # type: ignore[assignment]  # a linear layer's
    weight += change.transpose(1, 2).reshape(weight.shape).to(weight.dtype)
    quality = [
        reproduced([(part.given + part.p @ change.to(part.p), part.wanted)] if len(part.image) else [], -1)
        for part in (fitted, held)
    ]
    return LayerFit(path, quality[0], quality[1], 0.0, penalty)


class _Rows:
    """What a layer reads, makes and should make at sampled places, [groups, rows, n], and the image of each row."""

    def __init__(
        self,
        original: nn.Module,
        stripped: nn.Module,
        path: str,
        layer: nn.Module,
        chunks: list[Tensor],
        calibration: Calibration,
        generator: torch.Generator,
    ) -> None:
        shape = _geometry(layer)
        rows: list[list[Tensor]] = [[], [], []]
        image, seen = [torch.zeros(0, dtype=torch.long)], 0
        for chunk in chunks:
            (h, y), (_, z) = _call(stripped, path, chunk), _call(original, path, chunk)
            at = places(shape, y, calibration.patches, generator)
            for known, part in zip(
                rows, (patches(shape, h, y, at), gather(shape, y, at), gather(shape, z, at)), strict=True
            ):
                known.append(part)
            image.append(seen + torch.arange(len(chunk)).repeat_interleave(at.shape[1]))
            seen += len(chunk)
        if chunks:
            self.p, self.given, self.wanted = (grouped(shape, torch.cat(part)) for part in rows)
        self.image = torch.cat(image).to(shape.weight.device)


def _call(model: nn.Module, path: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """What one layer reads and makes."""
    found: list[tuple[Tensor, Tensor]] = []
    with model.get_submodule(path).register_forward_hook(lambda _, args, y: found.append((args[0], y))):
        model(x)
    return found[0]


def _layers(original: nn.Module, stripped: nn.Module, example: Tensor) -> Iterator[tuple[str, nn.Module]]:
    """Layers that both call once and with one argument, in the order of the calls."""
    calls: list[dict[str, int]] = []
    for model in (original, stripped):
        count: Counter[str] = Counter()
        with ExitStack() as stack:
            for path, module in model.named_modules():
                counted = lambda _, args, __, path=path, n=count: n.update({path: len(args)})  # noqa: E731
                stack.enter_context(module.register_forward_hook(counted))
            model(example)
        calls.append(count)
    for path, n in calls[1].items():
        layer = stripped.get_submodule(path)
        kind = isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) and n == calls[0].get(path) == 1
        if kind and not isinstance(getattr(layer, "padding", 0), str):
            yield path, layer


def _geometry(layer: nn.Module) -> AffineOfDegreeOne:
    """How a layer goes over its input, as the rows of a regression need it."""
    weight: Tensor = layer.weight  # type: ignore[assignment]  # a linear layer's
    if isinstance(layer, _CONVOLUTIONS):
        product: Any = getattr(torch.ops.aten, f"conv{weight.dim() - 2}d").default
        options: tuple[Any, ...] = (list(layer.stride), list(layer.padding), list(layer.dilation), layer.groups)
        return AffineOfDegreeOne(product, options, weight, None, ())
    return AffineOfDegreeOne(torch.ops.aten.linear.default, (), weight, None, ())
