"""Figure 1 of the paper: a prior for sparse attributions on NHANES I, by what the attributions are.

Left: six models, each with its best λ. Right: Expected Gradients with 1 to 128 references against X-Gradient.
200 subsamples of 100 rows train a network of 118-512-128-32-1 each; see `axiograd.experiments.nhanes.training`.
"""

from axiograd.experiments.item import Item, Scale
from axiograd.experiments.nhanes.figure import left_figure, left_table, right_figure, right_table
from axiograd.experiments.nhanes.plan import left, right

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
