"""Figure 3: how many steps Integrated Gradients need, on regular networks and on X-DNNs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from axiograd.experiments import image_networks
from axiograd.experiments.chunks import Chunk, PieceSize, average, of_families, stored, work_on
from axiograd.experiments.image_networks import Family, in_figures
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table
from axiograd.experiments.paper import FIG3_CONVERGED
from axiograd.experiments.records import Records
from axiograd.metrics import integrated_gradients_convergence
from axiograd.metrics.distance import STEPS
from axiograd.report.charts import convergence_plot

REFERENCE, ROWS = 300, 16
SIZES: Mapping[str, PieceSize] = {"quick": (10, 20), "real": (2, 24), "full": (20, None)}
#: Fewer images, and fewer in a piece, of a network that takes minutes for each.
FEWER: Mapping[str, PieceSize] = {"resnet50": (1, 1)}


def measure(family: Family, form: str, chunk: Chunk, setting: Setting) -> dict[str, Any]:
    """Mean |IG(n) − IG(300)| of each image for each n, and its mean |IG(300)|."""
    model, data = image_networks.network(family, form, setting), image_networks.images(family, setting)
    found: dict[str, list[float]] = {str(n): [] for n in (*STEPS, "scale")}
    for inputs, target in image_networks.predicted(model, data, chunk.indices, family):
        of_image = integrated_gradients_convergence(
            model, inputs, target, steps=STEPS, reference_steps=REFERENCE, internal_batch_size=ROWS
        )
        for n, difference in zip(STEPS, of_image.differences.tolist(), strict=True):
            found[str(n)].append(difference)
        found["scale"].append(of_image.scale)
    return stored(found, per_image=setting.scale != "full")


def plan(setting: Setting) -> Plan:
    """All forms on a chunk before the next chunk."""
    families = in_figures(setting.scale)
    split = of_families(families, setting, SIZES[setting.scale], FEWER)
    images = {family.label: found[-1].stop for family, found in split.items()}
    settings = {**image_networks.described(setting), "images": images, "scale": setting.scale}
    data = image_networks.images(families[0], setting).name
    pairs = [(family, chunk) for family, found in split.items() for chunk in found]
    return Plan.of(data, settings | {"reference_steps": REFERENCE}, work_on(pairs, setting, measure))


def curves(records: Records) -> dict[str, dict[int, float]]:
    """Mean difference in per cent of the mean |IG|, for each form and number of steps."""
    found = {}
    for family in in_figures(records.settings["scale"]):
        for form in family.forms:
            if pieces := records.find(network=family.key, form=form):
                scale = average(pieces, "scale").mean
                found[family.name(form)] = {n: 100 * average(pieces, str(n)).mean / scale for n in STEPS}
    return found


def table(records: Records) -> Table:
    """One line per number of steps."""
    found = curves(records)
    rows: list[tuple[Cell, ...]] = [
        (n, *(f"{curve[n]:.3g}" for curve in found.values()), "converged" if n >= FIG3_CONVERGED else None)
        for n in STEPS
    ]
    counts = {
        family.label: average(records.find(network=family.key, form=family.forms[0]), "scale").n
        for family in in_figures(records.settings["scale"])
    }
    images = " and ".join(f"{n} images" + f" of {name}" * (len(counts) > 1) for name, n in counts.items() if n)
    note = (
        f"Mean |IG(n) − IG({REFERENCE})| over components and {images}, in per cent of the mean "
        f"|IG({REFERENCE})|; Gauss-Legendre, zero baseline, predicted class. The paper's figure shows AlexNet "
        f"and finds convergence after about {FIG3_CONVERGED} steps. On an X-DNN one step is the whole integral."
    )
    return Table(("steps", *found, "paper"), tuple(rows), note)


def figure(records: Records) -> Any:
    """One line per form, both axes logarithmic."""
    label = f"difference to {REFERENCE} steps (% of mean |IG|)"
    return convergence_plot(curves(records), y_label=label, title="Convergence of Integrated Gradients")


ITEM = Item("fig3", "Figure 3: convergence of Integrated Gradients", plan, table, figure)
