"""Training steps with a prior, the same on one process with the whole batch and on two with half each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from axiograd.errors import ConfigurationError
from axiograd.priors import Gini, GraphSmoothness, RightReasons
from axiograd.priors.batch_mean import batch_mean
from axiograd.training.loss import AttributionLoss
from support.two_ranks import N_RANKS

if TYPE_CHECKING:
    from collections.abc import Iterable

BATCH, FEATURES, CLASSES, STEPS = 8, 6, 3, 20
PATH = torch.diag(torch.ones(FEATURES - 1), 1)
PRIORS = {
    "per sample": RightReasons,
    "gini": Gini,
    "gini of the paper": lambda: Gini("paper"),
    "sum": lambda: RightReasons() + 0.5 * Gini() + GraphSmoothness(PATH),
}


def data() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(STEPS, BATCH, FEATURES, generator=generator, dtype=torch.float64)
    y = torch.randint(CLASSES, (STEPS, BATCH), generator=generator)
    return x, y, torch.rand(STEPS, BATCH, FEATURES, generator=generator) < 0.5


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16, bias=False), nn.ReLU(), nn.Linear(16, CLASSES, bias=False)).double()


def train(
    name: str, rank: int | None = None, *, twice: bool | None = None, outputs: Any = "target", **ddp: Any
) -> dict[str, Tensor]:
    """Gradients of the first step and weights after the last; `rank` None is one process with all samples."""
    model = network()
    if rank is not None:
        model = DistributedDataParallel(model, **ddp)
    half = slice(None) if rank is None else slice(rank, None, N_RANKS)
    prior = PRIORS[name]()
    loss = AttributionLoss(F.cross_entropy, prior, 2.0, degree=1, outputs=outputs, double_backward=twice)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-3)
    found: dict[str, Tensor] = {}
    for x, y, mask in zip(*data(), strict=True):
        optimizer.zero_grad()
        arguments = {"mask": mask[half]} if "mask" in prior.arguments else {}
        loss(model, x[half], y[half], **arguments).total.backward()
        if not found:
            found["first gradients"] = _flat(p.grad for p in model.parameters())
        optimizer.step()
    assert twice is None or (loss.why_twice == "") is not twice
    found["last weights"] = _flat(model.parameters())
    return found


def refused() -> dict[str, str]:
    """What a loss says of wrappers that would lose gradients without an error."""
    x, y, mask = (part[0] for part in data())
    sharded = fully_shard(network(), mesh=init_device_mesh("cpu", (N_RANKS,)))
    wrapped = {"sharded": sharded, "static graph": DistributedDataParallel(network(), static_graph=True)}
    said = {}
    for name, model in wrapped.items():
        try:
            AttributionLoss(F.cross_entropy, RightReasons(), degree=1)(model, x, y, mask=mask)
        except ConfigurationError as error:
            said[name] = str(error)
    return said


def uneven(rank: int | None = None) -> dict[str, Tensor]:
    """Gini's value and gradient when one rank has three samples and the other five."""
    attributions = data()[0][0].clone().requires_grad_()
    part = {None: attributions, 0: attributions[:3], 1: attributions[3:]}[rank]
    value = Gini("paper")(part)
    value.backward()
    gradient = attributions.grad.clone()
    if rank is not None:
        dist.all_reduce(gradient)
        gradient /= N_RANKS
    return {"value": value.detach(), "gradient": gradient}


def second_order(rank: int | None = None) -> Tensor:
    """∂/∂a of the squared norm of ∂Ω/∂a with Ω = Σ ā³, summed over ranks."""
    a = data()[0][0].clone().requires_grad_()
    mean, _ = batch_mean(a if rank is None else a[rank::N_RANKS])
    (first,) = torch.autograd.grad(mean.pow(3).sum(), a, create_graph=True)
    first.square().sum().backward()
    gradient = a.grad.clone()
    if rank is not None:
        dist.all_reduce(gradient)
    return gradient


def everything(rank: int) -> dict[str, Any]:
    """All that the tests need from two processes, in one start of them."""
    results: dict[str, Any] = {name: train(name, rank) for name in PRIORS}
    results["unused parameters allowed"] = train("sum", rank, find_unused_parameters=True)
    results["gradients as views"] = train("sum", rank, gradient_as_bucket_view=True)
    results["held"] = train("sum", rank, twice=False, outputs="residual")
    results["refused"] = refused()
    results["uneven"] = uneven(rank)
    results["second order"] = second_order(rank)
    # Each rank by itself: the prior sees its own samples only.
    own = data()[0][0][rank::N_RANKS]
    results["own"] = Gini(across_ranks=False)(own)
    return results


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).clone()
