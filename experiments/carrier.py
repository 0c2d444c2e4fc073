"""What should carry a bias? Pretrained networks whose biases b become b·m/m̄, for several m.

m is the mean of |h| or its root mean square, over the whole sample or a window of 7 × 7 around each place, of the
layer's input, of its output before the bias, or half of each; m̄ is its mean over 48 images in the original network.
Nothing is fitted. Judged by the answers that stay, and by masking metrics of one gradient on the original network.
"""

from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd import InputXGradient, RandomAttribution
from axiograd.metrics import masking_curves
from axiograd.models import get_model
from experiments import lab, photos

SIZES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean |h|": lambda h: h.abs().mean(tuple(range(1, h.dim())), keepdim=True),
    "RMS": lambda h: h.square().mean(tuple(range(1, h.dim())), keepdim=True).sqrt(),
    "mean |h|, window": lambda h: F.avg_pool2d(h.abs().mean(1, keepdim=True), 7, 1, 3, count_include_pad=False),
}
CARRIERS = [(size, of) for size in ("mean |h|", "RMS") for of in ("input", "output", "half of each")]
CARRIERS.append(("mean |h|, window", "output"))
#: Images that judge answers, and those of them that are masked.
JUDGED = {"squeezenet1_1": (200, 12), "resnet18": (400, 32), "mobilenet_v2": (200, 0), "resnet50": (100, 0)}
FITTED, METRICS = 48, ("KPM", "KNM")


class Carried:
    """Runs a network with its biases carried; the first run, with c = 1, measures m̄."""

    def __init__(self, model: nn.Module, size: str, of: str) -> None:
        self.model, self.size, self.of = model, SIZES[size], of
        self.typical: dict[tuple[nn.Module, str], list[Tensor]] = {}
        self.fitting, self.last = True, torch.empty(0)
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
                module.forward = lambda h, module=module: self.run(module, h)

    def run(self, module: nn.Module, h: Tensor) -> Tensor:
        if isinstance(module, nn.BatchNorm2d):
            scale = module.weight / (module.running_var + module.eps).sqrt()
            made, bias = h * scale[:, None, None], module.bias - module.running_mean * scale
            return made + bias[:, None, None] * self.factor(module, self.last, h)
        self.last = h
        if isinstance(module, nn.Linear):
            made = F.linear(h, module.weight)
        else:
            made = F.conv2d(h, module.weight, None, module.stride, module.padding, module.dilation, module.groups)
        if module.bias is None:
            return made
        bias = module.bias if made.dim() == 2 else module.bias[:, None, None]
        return made + bias * self.factor(module, h, made)

    def factor(self, module: nn.Module, before: Tensor, after: Tensor) -> Tensor:
        parts = {"input": [("input", before)], "output": [("output", after)]}
        chosen = parts.get(self.of, [*parts["input"], *parts["output"]])
        return sum(self.share(module, name, x) for name, x in chosen) / len(chosen)

    def share(self, module: nn.Module, name: str, x: Tensor) -> Tensor:
        size = self.size(x) if x.dim() == 4 else SIZES["mean |h|"](x)
        if self.fitting:
            self.typical.setdefault((module, name), []).append(size.mean())
            return torch.ones_like(size)
        return size / torch.stack(self.typical[module, name]).mean()


@lab.remember
def measured(name: str, size: str, of: str, judged: int, masked: int) -> dict[str, Any]:
    """Equal top classes in per cent, and gains over random attributions on the original network, image by image."""
    original, model = (get_model(name, weights="default").eval().requires_grad_(False) for _ in range(2))
    order = photos.order(name)
    fitting = next(photos.batches(name, order[:FITTED], FITTED))[0]
    x, labels = next(photos.batches(name, order[FITTED:][:judged], judged))
    carried = Carried(model, size, of)
    with torch.no_grad():
        for part in fitting.split(24):
            model(part)
        carried.fitting = False
        before, after = (torch.cat([each(part) for part in x.split(25)]).argmax(1) for each in (original, model))
    found: dict[str, Any] = {"kept": 100 * float((before == after).double().mean())}
    if masked:
        x, labels = x[:masked], labels[:masked]
        random = RandomAttribution(original, generator=torch.Generator().manual_seed(0)).attribute(x, labels)
        ours = InputXGradient(model).attribute(x, labels)
        curves, chance = (masking_curves(original, x, each, labels, max_rows=64) for each in (ours, random))
        for metric, sign in zip(METRICS, (1, -1), strict=True):
            found[metric] = (sign * (curves[metric].areas - chance[metric].areas)).tolist()
    return found


def run(*, quick: bool) -> lab.Result:
    judged = {"squeezenet1_1": (8, 0)} if quick else JUDGED
    rows = []
    for size, of in CARRIERS[1:2] if quick else CARRIERS:
        row: dict[str, Any] = {"m": size, "of the layer's": of}
        for name, sizes in judged.items():
            found, label = measured(name, size, of, *sizes), photos.NETWORKS[name].label
            row[f"{label}, kept %"] = found["kept"]
            for metric in METRICS if sizes[1] else ():
                areas = pd.Series(found[metric])
                row |= {f"{label}, {metric}": areas.mean(), f"{label}, {metric} ±": areas.sem()}
        rows.append(row)
    table = pd.DataFrame(rows)
    kept = table.set_index(["m", "of the layer's"]).filter(like="kept").mean(axis=1)
    best = kept.idxmax()
    return lab.Result(
        title="What should carry a bias?",
        table=table,
        verdict=(
            f"Answers kept on average: {best[0]} of the {best[1]} {kept.max():.1f} %; mean |h| of the output, which is "
            f"what `axiograd.layers` has, {kept['mean |h|', 'output']:.1f} %."
        ),
        note=(
            f"Biases and batch norms' means and shifts carried, {FITTED} images for m̄, nothing fitted; other images "
            f"judge ({', '.join(f'{photos.NETWORKS[n].label} {s[0]}' for n, s in judged.items())}). Gains are areas "
            "under the masking curves of one gradient above those of random attributions, in logits of the original "
            "network on which they are judged, more is better. The caps of ReLU6 stay as they are; "
            "in linear layers m is always mean |h|."
        ),
        data=photos.DATA + "; Tiny ImageNet, 20 classes",
        seed="0",
    )
