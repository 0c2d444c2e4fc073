"""Features that are neighbours in a graph should count alike."""

import torch
from torch import Tensor

from axiograd.errors import ConfigurationError, InputError
from axiograd.priors._masks import as_tensor
from axiograd.priors._ops import rows
from axiograd.priors.base import Prior
from axiograd.priors.batch_mean import batch_mean


class GraphSmoothness(Prior):
    """How much the batch mean ā of |attribution| changes along the edges of a graph with Laplacian L = D − W.

    Ω = āᵀLā = Σ_{i<j} Wᵢⱼ·(āᵢ − āⱼ)².

    Give the adjacency W or the Laplacian L, dense or sparse, n × n; a Laplacian may be normalised. What is
    not symmetric is made so, (W + Wᵀ)/2. `absolute=False` takes ā as the mean of the signed attribution.

    Erion et al.: Improving performance of deep learning models with axiomatic attribution priors, 2021.

    >>> import torch
    >>> path = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> GraphSmoothness(path)(torch.tensor([[1.0, 3.0, 4.0]]))
    tensor(5.)
    """

    edges: Tensor
    weights: Tensor
    remainder: Tensor

    def __init__(
        self,
        adjacency: Tensor | None = None,
        *,
        laplacian: Tensor | None = None,
        absolute: bool = True,
        across_ranks: bool = True,
    ) -> None:
        super().__init__()
        if (adjacency is None) == (laplacian is None):
            raise ConfigurationError("GraphSmoothness takes either an adjacency or a laplacian.")
        matrix = _symmetric(adjacency if laplacian is None else laplacian)
        indices, values = matrix.indices(), matrix.values()
        upper = indices[0] < indices[1]
        sums = torch.zeros(len(matrix), dtype=values.dtype, device=values.device)
        self.register_buffer("edges", indices[:, upper])
        self.register_buffer("weights", values[upper] if laplacian is None else -values[upper])
        # xᵀLx = Σ_{i<j} −Lᵢⱼ(xᵢ − xⱼ)² + Σᵢ rᵢxᵢ² with the row sums r, which vanish for L = D − W.
        self.register_buffer("remainder", sums if laplacian is None else sums.index_add(0, indices[0], values))
        self.absolute = absolute
        self.across_ranks = across_ranks

    @property
    def per_sample(self) -> bool:
        return False

    def forward(self, attributions: Tensor) -> Tensor:
        features = rows(attributions)
        if features.shape[1] != len(self.remainder):
            raise InputError(
                f"GraphSmoothness has a graph of {len(self.remainder)} features, attributions have "
                f"{features.shape[1]} per sample (shape {list(attributions.shape)})."
            )
        mean, _ = batch_mean(features.abs() if self.absolute else features, across_ranks=self.across_ranks)
        start, end = self.edges.to(mean.device)
        differences = mean[start] - mean[end]
        along_edges = (self.weights.to(mean) * differences.square()).sum()
        return along_edges + (self.remainder.to(mean) * mean.square()).sum()


def _symmetric(matrix: Tensor | None) -> Tensor:
    matrix = None if matrix is None else as_tensor(matrix, "graph")
    if matrix is None or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:  # noqa: PLR2004 (n × n)
        shape = None if matrix is None else list(matrix.shape)
        raise ConfigurationError(f"the graph of GraphSmoothness must be an n × n matrix, got shape {shape}.")
    values: Tensor = matrix.detach().to_sparse_coo().coalesce()
    if not values.values().isfinite().all():
        raise ConfigurationError("the graph of GraphSmoothness has entries that are NaN or infinite.")
    mean: Tensor = (values + values.t()) / 2
    return mean.coalesce()
