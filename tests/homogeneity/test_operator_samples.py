"""PyTorch's own operator samples: nothing that is certified is refuted by brute force."""

import pytest

from support.certificates.samples import Count, examine, operators

#: One of each kind of trouble that was found: overlapping writes, tables, halves of matrices, draws, casts, norms.
FEW = (
    *("nn.functional.max_unpool2d", "nn.functional.embedding", "linalg.eigvalsh", "as_strided_scatter", "xlogy"),
    *("linspace.tensor_overload", "scatter", "nn.functional.pairwise_distance", "linalg.solve_triangular"),
)


@pytest.mark.parametrize("name", FEW)
def test_a_few_operators(name):
    count = Count()
    examine(name, operators()[name], count, most=3)
    assert count.calls > 0
    assert not count.refuted


@pytest.mark.long
def test_every_operator():
    count = Count()
    for name, operator in operators().items():
        if not name.startswith("sparse."):
            examine(name, operator, count, most=5)
    assert count.certified > 800
    assert not count.refuted
