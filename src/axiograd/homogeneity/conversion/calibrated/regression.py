"""The two regressions of a calibrated strip: a constant read off features, and a change of weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
    >>> change_of_weights(problem, [0.0])[0].round(decimals=6)
    tensor([[[3.]]], dtype=torch.float64)
    """
    rows, columns = problem.p.shape[-2:]
    if min(rows, columns) <= _DOUBLE:
        p, given, wanted = problem.p.double(), problem.given.double(), problem.wanted.double()
        problem = replace(problem, p=p, given=given, wanted=wanted)
    best = _best(problem, penalties)
    solve = _System(problem.p).solver(best) if math.isfinite(best) else _nothing(problem.p)
    w = solve(problem.targets(problem.given))
    for _ in range(_ROUNDS if problem.gated and math.isfinite(best) else 0):
        w = solve(problem.targets(problem.given + problem.p @ w))
    return w, best


def _best(problem: Problem, penalties: Sequence[float]) -> float:
    """The penalty with the least error on the judging rows; from the largest down, as long as it gets better."""
    judged, fitted = problem.judging.nonzero()[:, 0], (~problem.judging).nonzero()[:, 0]
    ordered = sorted(penalties, reverse=True)
    if len(ordered) == 1 or not len(judged) or not len(fitted):
        return ordered[-1]
    part, target = _System(problem.p[:, fitted]), problem.targets(problem.given)[:, fitted]
    best, least = ordered[0], math.inf
    for share in ordered:
        w = (part.solver(share) if math.isfinite(share) else _nothing(problem.p))(target)
        error = problem.error(problem.given[:, judged] + problem.p[:, judged] @ w, judged)
        if error >= least:
            break
        best, least = share, error
    return best


def _nothing(p: Tensor) -> Callable[[Tensor], Tensor]:
    """The solution under an infinite penalty: the weights stay as they are."""
    return lambda t: p.new_zeros(p.shape[0], p.shape[2], t.shape[2])


class _System:
    """Normal equations of rows p: by columns, or by rows where there are fewer of them."""

    def __init__(self, p: Tensor) -> None:
        self.p, self.dual = p, p.shape[-2] < p.shape[-1]
        self.gram = p @ p.mT if self.dual else p.mT @ p

    def solver(self, ridge: float) -> Callable[[Tensor], Tensor]:
        """w of targets."""
        p, gram = self.p, self.gram
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
