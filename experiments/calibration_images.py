"""How many unlabelled images does a calibration need? Top-1 accuracy of SqueezeNet and ResNet-18 by their number."""

import numpy as np
import pandas as pd

from experiments import conversion, lab, photos

COUNTS = {"squeezenet1_1": (8, 16, 32, 64, 125, 250), "resnet18": (8, 16, 32, 64, 125, 250)}


@lab.remember
def hits(name: str, n: int, quick: bool) -> list[bool]:
    """Image by image, of a network that was calibrated on n of them; 0 is the original."""
    size = (conversion.QUICK if quick else conversion.SIZES)[name]
    model, *_ = conversion.converted(name, "calibrated" if n else "original", size, n or None)
    return conversion.hits(model, name, size)["top1"]


def run(*, quick: bool) -> lab.Result:
    """Each network on each number of images."""
    counts = {"small": (20, 40)} if quick else COUNTS
    return summary({(name, n): hits(name, n, quick) for name in counts for n in (0, *counts[name])})


def summary(found: dict[tuple[str, int], list[bool]]) -> lab.Result:
    """A line for each network and number of images."""
    rows = []
    for (name, n), right in found.items():
        top1 = 100.0 * np.asarray(right)
        lost = 100.0 * np.asarray(found[name, 0]) - top1
        label = {"network": photos.NETWORKS[name].label, "images": str(n) if n else "original"}
        rows.append({**label, **conversion.cell("top-1 %", top1), **conversion.cell("top-1 lost", lost if n else ())})
    table = pd.DataFrame(rows)
    words = []
    for network, part in table[table["images"] != "original"].groupby("network", sort=False):
        few, many = part.iloc[0], part.iloc[-1]
        words.append(
            f"{network} {few['top-1 lost']:z.1f} on {few['images']}, {many['top-1 lost']:z.1f} on {many['images']}"
        )
    verdict = f"Points of top-1 that a calibration loses by the number of images: {'; '.join(words)}."
    title = "How many images a calibration needs"
    return lab.Result(title, table, verdict, NOTE, conversion.DATA, "0", draw(table))


def draw(table: pd.DataFrame):
    """Accuracy over the number of images, the original's as a line; one panel per network."""
    names = table["network"].unique()
    figure, panels = lab.figure(2.9 * len(names) + 0.4, 2.7, columns=len(names))
    for axes, name in zip(panels, names, strict=True):
        part = table[table["network"] == name]
        axes.axhline(part["top-1 %"].iloc[0], color=lab.COLOURS["regular"], label="original")
        counts = part["images"].iloc[1:].astype(int)
        style = {"color": lab.COLOURS["calibrated"], "marker": "o", "markersize": 3, "capsize": 2}
        axes.errorbar(counts, part["top-1 %"].iloc[1:], part["top-1 % ±"].iloc[1:], label="calibrated", **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, counts.astype(str))
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("calibration images", fontsize=8)
        axes.set_ylabel("top-1 accuracy (%)", fontsize=8)
        axes.set_title(name, fontsize=9)
        axes.legend(loc="lower right", fontsize=8, frameon=False)
    return figure


NOTE = """\
Accuracy in per cent on images that calibrated nothing, ± standard error over them; what is lost is paired. Labels are
used by nothing but the judging."""
