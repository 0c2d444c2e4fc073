"""Figure 1 of the paper: a prior for sparse attributions on NHANES I, by what the attributions are.

Left: six models, each with its best λ. Right: Expected Gradients with 1 to 128 references against X-Gradient.
200 subsamples of 100 rows train a network of 118-512-128-32-1 each; see `axiograd.experiments.nhanes_training`.
"""

from axiograd.experiments.item import Item
from axiograd.experiments.nhanes_figure import left_figure, right_figure
from axiograd.experiments.nhanes_plan import left, right
from axiograd.experiments.nhanes_text import left_table, right_table

LEFT = Item("fig1-left", "ROC-AUC on NHANES I with a prior for sparsity", left, left_table, left_figure)
RIGHT = Item("fig1-right", "EG with more and more references against X-Gradient", right, right_table, right_figure)
