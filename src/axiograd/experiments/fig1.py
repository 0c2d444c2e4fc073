"""Figure 1 of the paper: a prior for sparse attributions on NHANES I, by what the attributions are.

Left: six models, each with its best λ. Right: Expected Gradients with 1 to 128 references against X-Gradient.
200 subsamples of 100 rows train a network of 118-512-128-32-1 each; see `axiograd.experiments.nhanes_training`.
"""

from axiograd.experiments.item import Item, Scale
from axiograd.experiments.nhanes_figure import left_figure, right_figure
from axiograd.experiments.nhanes_plan import left, right
from axiograd.experiments.nhanes_text import left_table, right_table

#: Nothing here needs ImageNet, so the real data are the full scale.
_SCALES: tuple[Scale, ...] = ("quick", "real")

LEFT = Item(
    "fig1-left",
    "Figure 1 (left): ROC-AUC with a prior for sparsity, NHANES I",
    left,
    left_table,
    left_figure,
    scales=_SCALES,
)
RIGHT = Item(
    "fig1-right",
    "Figure 1 (right): EG with ever more references, NHANES I",
    right,
    right_table,
    right_figure,
    scales=_SCALES,
)
