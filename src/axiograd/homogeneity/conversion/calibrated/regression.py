"""The two regressions of a calibrated strip: a constant read off features, and a change of weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: Systems up to this size are solved in double precision: a ridge keeps larger ones well-conditioned enough.
_DOUBLE = 1024
#: Penalties that a constant's reader chooses from by leave-one-out, as shares of the mean eigenvalue.
_READER = tuple(10.0**k for k in (-5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0, 1, 2, 4))
#: Rounds in which targets behind a ReLU are moved to where they are wanted.
_ROUNDS = 3


def constant(
    features: Tensor, blocks: Sequence[int], ridge: float | None, before: Tensor | None = None
) -> tuple[Tensor, float]:
    """v with c + features · v = 1 by ridge regression, c given or 0, and the error of an image that is left out.

    Every block of columns is brought to the same size first. The penalty, if not given, is the best one by
    leave-one-out: the error of an image left out is (t − ŷ)/(1 − H), t = 1 − c, H the diagonal of K (K + λ)⁻¹.

    >>> v, error = constant(torch.tensor([[1.0, 3.0], [1.0, -2.0], [1.0, 0.5]]).double(), [2], 1e-12)
    >>> v.round(decimals=6) + 0, round(error, 6)
    (tensor([1., 0.], dtype=torch.float64), 0.0)
    """
    sizes = [float(part.square().mean().sqrt()) for part in features.split(list(blocks), 1)]
    scales = torch.cat([features.new_full((n,), size or 1.0) for n, size in zip(blocks, sizes, strict=True)])
    scaled = features / scales
    values, vectors = torch.linalg.eigh(scaled @ scaled.T)
    values = values.clamp_min(0)
    target = torch.ones(len(features)).to(features) if before is None else 1 - before.to(features)
    turned = vectors.T @ target
    mean = values.mean().clamp_min(torch.finfo(torch.float64).tiny)
    errors = {}
    for share in _READER if ridge is None else (ridge,):
        kept = values / (values + share * mean)
        left_out = (target - vectors @ (kept * turned)) / (1 - (vectors.square() @ kept)).clamp_min(1e-12)
        errors[share] = float(left_out.square().mean().sqrt())
    best = min(errors, key=lambda share: errors[share])
    dual: Tensor = vectors @ (turned / (values + best * mean))
    return scaled.T @ dual / scales, errors[best]


@dataclass(frozen=True)
class Problem:
    """Rows p [groups, rows, columns] and what the layer gives there and should give, [groups, rows, outputs]."""

    p: Tensor
    given: Tensor
    wanted: Tensor
    #: Rows by which a penalty is chosen, [rows]; the weights are then fitted to all of them.
    judging: Tensor
    #: The next operator is a ReLU: below zero, it does not matter how far.
    gated: bool

    def targets(self, made: Tensor) -> Tensor:
        """What ΔW should add: up to what is wanted, or to anything below zero where the ReLU shuts."""
        if not self.gated:
            return self.wanted - self.given
        return torch.where(self.wanted > 0, self.wanted, made.clamp_max(0)) - self.given

    def error(self, made: Tensor, rows: Tensor) -> float:
        """Of what the next operator gets."""
        wanted = self.wanted[:, rows]
        return float(((made.relu() - wanted.relu()) if self.gated else (made - wanted)).square().sum())


def change_of_weights(problem: Problem, penalties: Sequence[float]) -> tuple[Tensor, float]:
    """argmin ‖p·w − t‖² + λ‖w‖² for each group, [groups, columns, outputs], and λ as a share of pᵀp's mean diagonal.

    λ is the best of the penalties on the judging rows. Behind a ReLU, t is moved a few times to the nearest value
    that the ReLU does not tell from the one wanted, which never makes the sum of squares larger.

    >>> p = torch.tensor([[[1.0], [2.0]]]).double()
    >>> problem = Problem(p, torch.zeros_like(p), 3 * p, torch.zeros(2, dtype=torch.bool), False)
    >>> change_of_weights(problem, [0.0])[0]
    tensor([[[3.]]], dtype=torch.float64)
    """
    rows, columns = problem.p.shape[-2:]
    if min(rows, columns) <= _DOUBLE:
        parts = (part.double() for part in (problem.p, problem.given, problem.wanted))
        problem = Problem(*parts, problem.judging, problem.gated)
    every = _System(problem.p)
    best = penalties[0]
    if len(penalties) > 1 and bool(problem.judging.any()) and not bool(problem.judging.all()):
        errors = {}
        fitted, judged = (~problem.judging).nonzero()[:, 0], problem.judging.nonzero()[:, 0]
        part, target = every.of(fitted), problem.targets(problem.given)[:, fitted]
        for share in penalties:
            w = part.solver(share)(target)
            errors[share] = problem.error(problem.given[:, judged] + problem.p[:, judged] @ w, judged)
        best = min(errors, key=lambda share: errors[share])
    solve = every.solver(best)
    w = solve(problem.targets(problem.given))
    for _ in range(_ROUNDS if problem.gated else 0):
        w = solve(problem.targets(problem.given + problem.p @ w))
    return w, best


class _System:
    """Normal equations of rows p: by columns, or by rows where there are fewer of them."""

    def __init__(self, p: Tensor, gram: Tensor | None = None, *, dual: bool | None = None) -> None:
        self.p = p
        self.dual = p.shape[-2] < p.shape[-1] if dual is None else dual
        self.gram = gram if gram is not None else p @ p.mT if self.dual else p.mT @ p

    def of(self, rows: Tensor) -> "_System":
        p = self.p[:, rows]
        gram = self.gram[:, rows][:, :, rows] if self.dual else None
        return _System(p, gram, dual=self.dual)

    def solver(self, ridge: float) -> Callable[[Tensor], Tensor]:
        """w of targets; an infinite penalty leaves the weights as they are."""
        p, gram = self.p, self.gram
        if math.isinf(ridge):
            return lambda t: p.new_zeros(p.shape[0], p.shape[2], t.shape[2])
        scale = p.square().sum((-2, -1)) / p.shape[-1]
        penalty = (ridge * scale).clamp_min(torch.finfo(p.dtype).tiny)[:, None, None]
        whole = gram + penalty * torch.eye(gram.shape[-1], dtype=p.dtype, device=p.device)
        factor, failed = torch.linalg.cholesky_ex(whole)

        def solve(right: Tensor) -> Tensor:
            # A tiny penalty may leave rounding below zero, which elimination does not mind.
            if bool(failed.any()):
                found: Tensor = torch.linalg.solve(whole, right)
                return found
            return torch.cholesky_solve(right, factor)

        return (lambda t: p.mT @ solve(t)) if self.dual else (lambda t: solve(p.mT @ t))
