"""Table 3 of the paper on a pretrained SqueezeNet and its two X-DNNs: KPM, KNM, KAM, RAM of every method.

    python -m axiograd.experiments.masking_pretrained --photos 500 --output results/masking_squeezenet

Areas are written after every batch, one file per network and method; a run that is started again goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from axiograd.attribution import (
    Attribution,
    ExpectedGradients,
    Gradient,
    InputXGradient,
    IntegratedGradients,
    RandomAttribution,
    XGradient,
)
from axiograd.datasets import SQUEEZENET, ImageFiles, imagenet_sample
from axiograd.homogeneity import to_xdnn
from axiograd.metrics import masking_curves
from axiograd.metrics._statistics import standard_error
from axiograd.models import get_model

METRICS = ("KPM", "KNM", "KAM", "RAM")
NETWORKS = ("regular", "stripped", "lifted")
BATCH = 4

#: A method from a model, the photos that references are drawn from, and a generator for what is drawn.
Factory = Callable[[nn.Module, ImageFiles, torch.Generator], Attribution]

METHODS: Mapping[str, Factory] = {
    "IG (128)": lambda model, _, __: IntegratedGradients(model, n_steps=128, internal_batch_size=16),
    "Random": lambda model, _, generator: RandomAttribution(model, generator=generator),
    "Grad (1)": lambda model, _, __: Gradient(model),
    "EG (1)": lambda model, photos, generator: ExpectedGradients(model, photos, generator=generator),
    "Input×Gradient (1)": lambda model, _, __: InputXGradient(model),
    "X-Gradient (1)": lambda model, _, __: XGradient(model),
}


@dataclass(frozen=True, eq=False)
class Entry:
    """The areas of one method on one network, one row per photo."""

    network: str
    method: str
    areas: Tensor  # [photos, metrics]

    def __str__(self) -> str:
        pairs = zip(METRICS, self.areas.mean(0).tolist(), standard_error(self.areas).tolist(), strict=True)
        cells = "  ".join(f"{metric} {mean:6.2f} ± {error:.2f}" for metric, mean, error in pairs)
        return f"{self.network:<9} {self.method:<19} {cells}  ({len(self.areas)} photos)"


def network(name: str, photos: ImageFiles) -> nn.Module:
    """The pretrained SqueezeNet 1.1: as it is, stripped of its biases, or lifted."""
    regular = get_model("squeezenet1_1", weights="default").eval()
    if name == "regular":
        return regular
    example = default_collate([photos[i] for i in range(BATCH)])[0]
    return to_xdnn(regular, example, how="strip" if name == "stripped" else "lift").model.eval()


def measure(
    model: nn.Module, factory: Factory, photos: ImageFiles, indices: Sequence[int], seed: int, max_rows: int
) -> Tensor:
    """The four areas of some photos, ``[photos, 4]``; draws depend on the seed and the first photo alone."""
    images, labels = default_collate([photos[i] for i in indices])
    generator = torch.Generator().manual_seed(seed * 100_003 + indices[0])
    attributions = factory(model, photos, generator).attribute(images, labels)
    curves = masking_curves(model, images, attributions, labels, max_rows=max_rows)
    return torch.stack([curves[metric].areas for metric in METRICS], dim=1)


def masking_table(
    output: Path,
    *,
    n_photos: int = 500,
    only_networks: Sequence[str] = NETWORKS,
    only_methods: Sequence[str] = tuple(METHODS),
    seed: int = 0,
    max_rows: int = 32,
    progress: Callable[[str], object] = lambda _: None,
) -> list[Entry]:
    """Measure every method on every network, resuming from what ``output`` holds; X-Gradient only on X-DNNs."""
    photos = imagenet_sample(transform=SQUEEZENET)
    # Spread over all classes, so that a part of the photos is a sample of them.
    order = torch.randperm(len(photos), generator=torch.Generator().manual_seed(seed))[:n_photos].tolist()
    output.mkdir(parents=True, exist_ok=True)
    entries = []
    for kind in only_networks:
        model = network(kind, photos)
        for method in only_methods:
            if method == "X-Gradient (1)" and kind == "regular":
                continue
            name = "".join(c if c.isalnum() else "_" for c in f"{kind} {method} {seed}")
            file = output / f"{name}.json"
            rows = json.loads(file.read_text())["areas"] if file.exists() else []
            for start in range(len(rows), len(order), BATCH):
                chosen = order[start : start + BATCH]
                rows += measure(model, METHODS[method], photos, chosen, seed, max_rows).tolist()
                record = {"network": kind, "method": method, "seed": seed, "metrics": METRICS, "areas": rows}
                partial = file.with_suffix(".part")
                partial.write_text(json.dumps(record))
                partial.replace(file)
                progress(str(Entry(kind, method, torch.tensor(rows, dtype=torch.float64))))
            entries.append(Entry(kind, method, torch.tensor(rows[: len(order)], dtype=torch.float64)))
    return entries


def main() -> None:
    """Run from the command line and print one line per network and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=500)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-rows", type=int, default=32)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    entries = masking_table(
        options.output,
        n_photos=options.photos,
        only_networks=options.networks,
        only_methods=options.methods,
        seed=options.seed,
        max_rows=options.max_rows,
        progress=lambda line: sys.stderr.write(f"\r{line}"),
    )
    sys.stdout.write("\n" + "\n".join(map(str, entries)) + "\n")


if __name__ == "__main__":
    main()
