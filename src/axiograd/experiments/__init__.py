"""One file per table or figure of the paper, and the demonstration; none is imported before it is asked for."""

from collections.abc import Mapping

#: Where each item is defined: its module in this package, and its name there.
OF_THE_PAPER: Mapping[str, str] = {
    "table1": "table1:ITEM",
    "table2": "table2:ITEM",
    "table2-recipes": "table2_recipes:ITEM",
    "difference": "difference:ITEM",
    "table3": "table3:ITEM",
    "fig1-left": "nhanes:LEFT",
    "fig1-right": "nhanes:RIGHT",
    "fig2-left": "fig2_left:ITEM",
    "fig2-right": "panels:FIG2_RIGHT",
    "fig3": "fig3:ITEM",
    "fig4": "panels:FIG4",
    "efficiency": "efficiency:ITEM",
}
BEYOND_THE_PAPER: Mapping[str, str] = {
    "conversion": "conversion:ITEM",
    "denoising": "denoising:ITEM",
    "box-energy": "box_energy:ITEM",
    "decoy-color-mnist": "decoy:COLOR_MNIST",
    "decoy-fashion-mnist": "decoy:FASHION_MNIST",
    "decoy-mnist": "decoy:MNIST",
    "transformers": "transformers:ITEM",
    "studio": "studio_strokes:ITEM",
    "studio-shapes": "studio_strokes:DEMONSTRATION",
    "studio-color": "studio_strokes:COLOR",
    "studio-boxes": "studio_strokes:BOXES",
    "studio-finding": "studio_finding:ITEM",
    "fairness": "fairness:ITEM",
    "watch": "watch:ITEM",
    "robust-attribution": "robust_attribution:ITEM",
}
ITEMS: Mapping[str, str] = {**OF_THE_PAPER, **BEYOND_THE_PAPER}
