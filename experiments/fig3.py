"""Figure 3: how many steps Integrated Gradients need, on regular networks and on X-DNNs."""

import pandas as pd
import torch

from axiograd.metrics import integrated_gradients_convergence
from experiments import lab, photos

STEPS, REFERENCE = (1, 2, 4, 8, 16, 32, 64, 128, 256), 300
#: The number of steps after which the authors see no difference (appendix).
CONVERGED = 128
#: Per cent below which two attributions are the same.
SAME = 1.0
IMAGES = {"small": 2, "squeezenet1_1": 24, "resnet50": 1}


def run(*, quick: bool) -> lab.Result:
    names = ["small"] if quick else ["squeezenet1_1", "resnet50"]
    return result(
        pd.concat([measured(name, form, i) for name, form in photos.forms(*names) for i in range(IMAGES[name])])
    )


@lab.remember
def measured(network: str, form: str, image: int) -> pd.DataFrame:
    """Mean |IG(n) − IG(300)| of an image for each n, and its mean |IG(300)|."""
    model = photos.load(network, form)
    ((inputs, _),) = photos.batches(network, [photos.order(network)[image]], 1)
    with torch.no_grad():
        target = model(inputs).argmax(1)
    found = integrated_gradients_convergence(
        model, inputs, target, steps=STEPS, reference_steps=REFERENCE, internal_batch_size=16
    )
    by_steps = dict(zip(STEPS, found.differences.tolist(), strict=True))
    return pd.DataFrame([{"network": network, "form": form, "scale": found.scale, **by_steps}])


def result(found: pd.DataFrame) -> lab.Result:
    table, regular, first, last = {"steps": list(STEPS)}, [], [], []
    for (name, form), images in found.groupby(["network", "form"], sort=False):
        curve = [100 * images[n].mean() / images["scale"].mean() for n in STEPS]
        table[photos.title(name, form)] = [f"{value:.3g}" for value in curve]
        if form == "regular":
            regular.append(curve[STEPS.index(CONVERGED)])
        else:
            first.append(curve[0])
            last.append(curve[STEPS.index(CONVERGED)])
    table["paper"] = ["converged" if n >= CONVERGED else "" for n in STEPS]
    within = [each < SAME for each in regular]
    said = "Does not reproduce" if max(first) >= SAME or not any(within) else "Reproduces" if all(within) else "In part"
    verdict = (
        f"{said}: after {CONVERGED} steps Integrated Gradients is {lab.span(regular)} % off on regular networks; on "
        f"X-DNNs {lab.span(first, '.1g')} % after one step, {lab.span(last, '.1g')} % after {CONVERGED}."
    )
    counts = found[found["form"] == "regular"].groupby("network", sort=False).size()
    counted = " and ".join(f"{n} of {photos.NETWORKS[name].label}" for name, n in counts.items())
    note = (
        f"Mean |IG(n) − IG({REFERENCE})| over components and images ({counted}), in per cent of the mean "
        f"|IG({REFERENCE})|; Gauss-Legendre, zero baseline, predicted class. The paper's figure shows AlexNet and "
        f"finds convergence after about {CONVERGED} steps. On an X-DNN one step is the whole integral."
    )
    frame = pd.DataFrame(table)
    title = "Figure 3: convergence of Integrated Gradients"
    return lab.Result(title, frame, verdict, note, photos.DATA, "0 (order of the images)", draw(frame))


def draw(table: pd.DataFrame):
    """One line per form, both axes logarithmic; the regular networks in grey."""
    figure, (axes,) = lab.figure(6.4, 3.6)
    for place, column in enumerate(table.columns[1:-1]):
        colour = lab.COLOURS["regular" if "regular" in column else "lift" if "lifted" in column else "strict X"]
        style = "--" if place >= 3 else "-"
        axes.plot(table["steps"], table[column].astype(float), style, marker="o", color=colour, label=column)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(STEPS, [str(n) for n in STEPS])
    axes.axvline(CONVERGED, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("steps (dotted: converged in the paper)", fontsize=8)
    axes.set_ylabel(f"difference to {REFERENCE} steps (% of mean |IG|)", fontsize=8)
    axes.legend(fontsize=7, frameon=False)
    return figure
