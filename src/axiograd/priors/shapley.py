"""Attributions should be Shapley values."""

from collections.abc import Callable

import torch
from torch import Tensor

from axiograd.errors import InputError
from axiograd.priors._ops import rows
from axiograd.priors.base import Prior


class Shapley(Prior):
    """The squared gap between the score of a subset of the features and its attributions, mean over samples.

    Ω = (1/m)·Σₛ (F(x_S) − Σ_{i∈S} aₛᵢ)², where x_S is x with all features outside S at 0. S is random; its size s has
    the Shapley kernel's probability, in proportion to 1/(s·(n − s)).

    For n features and attributions that add up to F(x), as X-Gradient's do, Ω bounds their distance from the Shapley
    values φ against 0: E‖φ − a‖² ≤ 2·(1 + 1/2 + … + 1/(n − 1))·E Ω. It costs one more forward pass in each step.
    `AttributionLoss` passes `inputs`, what is attributed to, and `score`, the attributed output at any such inputs;
    `subset` [batch, *features], true inside, replaces the random one.

    Lundberg, Lee: A unified approach to interpreting model predictions, 2017 (the kernel);
    Jethani et al.: FastSHAP, 2022 (an explainer that is trained with it).

    >>> import torch
    >>> x, product = torch.tensor([[2.0, 3.0]]), lambda x: x[:, 0] * x[:, 1]
    >>> Shapley()(torch.tensor([[3.0, 3.0]]), inputs=x, score=product)
    tensor(9.)
    >>> Shapley()(x, inputs=x, score=lambda x: x.sum(1))
    tensor(0.)
    """

    def forward(
        self,
        attributions: Tensor,
        *,
        inputs: Tensor,
        score: Callable[[Tensor], Tensor],
        subset: Tensor | None = None,
    ) -> Tensor:
        if inputs.shape != attributions.shape:
            raise InputError(
                f"prior Shapley: attributions of shape {list(attributions.shape)} for inputs of shape "
                f"{list(inputs.shape)}; it needs those of the model's own inputs, not of a layer."
            )
        subset = draw_subset(inputs) if subset is None else subset.bool()
        return subset_gap(attributions, inputs, score, subset).square().mean()


def subset_gap(attributions: Tensor, inputs: Tensor, score: Callable[[Tensor], Tensor], subset: Tensor) -> Tensor:
    """F(x_S) − Σ_{i∈S} aᵢ of each sample.

    >>> x = torch.tensor([[2.0, 3.0]])
    >>> subset_gap(x, x, lambda x: x[:, 0] * x[:, 1], torch.tensor([[True, False]]))
    tensor([-2.])
    """
    return score(inputs * subset).to(attributions) - rows(attributions * subset).sum(1)


def draw_subset(inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A random subset of the features for each sample, its size by the Shapley kernel.

    >>> sorted(draw_subset(torch.zeros(1, 2)).flatten().tolist())
    [False, True]
    """
    flat = rows(inputs)
    n = flat.shape[1]
    # The only subset of one feature is the whole, which has no gap where attributions add up.
    sizes = torch.arange(1, max(n, 2), device=inputs.device)
    weights = 1.0 / (sizes * (n - sizes)).clamp(min=1)
    size = sizes[torch.multinomial(weights, len(flat), replacement=True, generator=generator)]
    ranks = torch.rand(flat.shape, device=inputs.device, generator=generator).argsort(1).argsort(1)
    return (ranks < size[:, None]).reshape(inputs.shape)


def shapley_error_bound(gaps: Tensor, n: int) -> Tensor:
    """From the gaps of each sample [k subsets, batch], a bound on the root mean square of φᵢ − aᵢ over its n features.

    In the kernel's norm, φ − a is the additive function nearest to the gap, so no larger than it; and there an additive
    function e with Σᵢ eᵢ = 0 has the square ‖e‖²/(2·H), H = 1 + 1/2 + … + 1/(n − 1). Hence ‖φ − a‖² ≤ 2·H·E gap²,
    for attributions that add up. The mean over k random subsets estimates E gap².

    >>> shapley_error_bound(torch.tensor([[0.0, 3.0], [0.0, 3.0]]), n=2)
    tensor([0., 3.])
    """
    harmonic = sum(1 / i for i in range(1, n))
    return (gaps.square().mean(0) * (2 * harmonic / n)).sqrt()
