"""The table of rules names operators that exist: a rule under a name that torch.export never shows proves nothing."""

import torch

from axiograd.homogeneity.rules.derivatives import CHECKS
from axiograd.homogeneity.rules.registry import RULES

#: Without overloads, as schemas name them.
OPERATORS = {name.split(".")[0] for name in torch._C._dispatch_get_all_op_names()}


def test_every_name_is_an_operator():
    names = {name for name in (*RULES, *CHECKS) if name.startswith("aten::")}
    assert not {name for name in names if name not in OPERATORS and f"{name}_" not in OPERATORS}
