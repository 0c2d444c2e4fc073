import pytest
import torch

from axiograd.errors import ConfigurationError, InputError
from axiograd.priors import GraphSmoothness


def graph(n: int = 6) -> torch.Tensor:
    torch.manual_seed(0)
    upper = (torch.rand(n, n, dtype=torch.float64) * (torch.rand(n, n) < 0.5)).triu(1)
    return upper + upper.T


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("how", ["dense", "coo", "csr", "laplacian", "sparse laplacian"])
def test_value_is_the_quadratic_form(how: str, absolute: bool) -> None:
    W = graph()
    L = W.sum(0).diag() - W
    prior = {
        "dense": lambda: GraphSmoothness(W, absolute=absolute),
        "coo": lambda: GraphSmoothness(W.to_sparse(), absolute=absolute),
        "csr": lambda: GraphSmoothness(W.to_sparse_csr(), absolute=absolute),
        "laplacian": lambda: GraphSmoothness(laplacian=L, absolute=absolute),
        "sparse laplacian": lambda: GraphSmoothness(laplacian=L.to_sparse(), absolute=absolute),
    }[how]()
    attributions = torch.randn(4, 2, 3, dtype=torch.float64)
    mean = attributions.flatten(1)
    mean = (mean.abs() if absolute else mean).mean(0)
    torch.testing.assert_close(prior(attributions), mean @ L @ mean, rtol=1e-12, atol=1e-14)


def test_a_normalised_laplacian_keeps_its_own_form() -> None:
    W = graph() + 0.1 * (1 - torch.eye(6, dtype=torch.float64))
    scale = W.sum(0).rsqrt()
    L = torch.eye(6, dtype=torch.float64) - scale[:, None] * W * scale
    mean = torch.rand(1, 6, dtype=torch.float64)
    torch.testing.assert_close(GraphSmoothness(laplacian=L)(mean), mean[0] @ L @ mean[0])


def test_a_directed_graph_is_made_symmetric() -> None:
    W = graph().triu()
    mean = torch.rand(1, 6, dtype=torch.float64)
    torch.testing.assert_close(GraphSmoothness(W)(mean), GraphSmoothness((W + W.T) / 2)(mean))


def test_equal_attribution_is_smooth() -> None:
    assert GraphSmoothness(graph())(torch.full((3, 6), 0.3)) == 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="graph of 6 features, attributions have 5"):
        GraphSmoothness(graph())(torch.ones(2, 5))
    with pytest.raises(ConfigurationError, match="either an adjacency or a laplacian"):
        GraphSmoothness()
    with pytest.raises(ConfigurationError, match=r"n × n matrix, got shape \[2, 3\]"):
        GraphSmoothness(torch.ones(2, 3))
    with pytest.raises(ConfigurationError, match="NaN or infinite"):
        GraphSmoothness(torch.full((2, 2), torch.nan))
