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
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from axiograd.attribution import InputXGradient, LogGradient
from axiograd.errors import ConfigurationError
from axiograd.priors import L1, Gini, GraphSmoothness, RightReasons
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
    if ddp.pop("sharded", False):
        mesh = init_device_mesh("cpu", (N_RANKS,))
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh)
    elif rank is not None:
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
            found["first gradients"] = _flat(_whole(p.grad) for p in model.parameters())
        optimizer.step()
    assert twice is None or (loss.why_twice == "") is not twice
    found["last weights"] = _flat(_whole(p) for p in model.parameters())
    return found


class Gated(nn.Module):
    """Gates that draw, write in place, choose by comparison and return indices; biases; a weight made of others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 16), nn.Linear(8, CLASSES)
        self.norm = weight_norm(nn.Linear(16, 16))
        self.slopes = nn.PReLU(16)
        self.dropout = nn.Dropout(0.3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        hidden = checkpoint(lambda h: self.dropout(self.slopes(self.first(h))), x, use_reentrant=False)
        if hidden.sum() > 0:
            hidden = hidden + 0.5
        hidden = self.norm(hidden)
        hidden.mul_(1.5)
        F.relu(hidden, inplace=True)
        hidden = torch.where(hidden > 0.3, hidden, 0.1 * hidden)
        values, _ = checkpoint(torch.sort, hidden, 1, use_reentrant=False)
        return self.last(F.max_pool1d(values[:, None], 2)[:, 0])


def gated(rank: int, outputs: str, wrap: str) -> dict[str, Tensor]:
    """Gradients of two parts of a batch, and what two steps leave behind, beside the same by second derivatives."""
    found: dict[str, Tensor] = {}
    for name in (wrap, "second derivatives"):
        torch.manual_seed(0)
        model: Any = Gated().double()
        if name == "sharded":
            for part in (model.first, model.norm, model):
                fully_shard(part, mesh=init_device_mesh("cpu", (N_RANKS,)))
        elif name == "static graph":
            model = DistributedDataParallel(model, static_graph=True)
        else:
            model = DistributedDataParallel(model)
        generator = torch.Generator().manual_seed(rank)
        twice = True if name == "second derivatives" else None
        loss = AttributionLoss(
            F.cross_entropy, L1() + Gini(), 0.5, InputXGradient, outputs=outputs, generator=generator,
            double_backward=twice,
        )  # fmt: skip
        torch.manual_seed(10 + rank)
        for step, (x, y, _) in enumerate(zip(*data(), strict=True)):
            if step == 4:
                break
            terms = loss(model, x[rank::N_RANKS], y[rank::N_RANKS])
            (1024 * terms.total).backward()
            if step != 1:
                found[f"{name} {step}"] = _flat(_whole(p.grad) for p in model.parameters()) / 1024
                model.zero_grad()
        calls = model.calls if name == "sharded" else model.module.calls
        # The look at a new model's outputs takes no part.
        found[f"{name} left"] = torch.cat([torch.rand(2), calls.detach().float().reshape(1)])
    return found


def sharded() -> dict[str, str]:
    """What a loss says of a model that `fully_shard` has cut where it can do nothing for it."""
    x, y, mask = (part[0] for part in data())
    mesh = init_device_mesh("cpu", (N_RANKS,))
    said = {}
    curved = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()
    cases: dict[str, tuple[nn.Module, dict[str, Any]]] = {
        "a curve": (curved, {"method": InputXGradient}),
        "no degree": (network(), {}),
        "every output": (network(), {"degree": 1, "outputs": "all"}),
        "a logarithm": (network(), {"method": LogGradient, "outputs": None}),
        "twice": (network(), {"degree": 1, "double_backward": True}),
    }
    for name, (model, options) in cases.items():
        fully_shard(model, mesh=mesh)
        try:
            AttributionLoss(F.cross_entropy, RightReasons(), **options)(model, x, y, mask=mask).total.backward()
        except ConfigurationError as error:
            said[name] = str(error)
        # What was refused in the middle of a pass does not stand in the way of the next.
        F.cross_entropy(model(x), y).backward()
        assert all(bool(_whole(p.grad).any()) for p in model.parameters())
    model = fully_shard(network(), mesh=mesh)
    for name in ("task", "prior", "outputs", "attributions"):
        terms = AttributionLoss(F.cross_entropy, RightReasons(), degree=1)(model, x, y, mask=mask)
        try:
            (terms.total + getattr(terms, name).square().sum()).backward()
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
    for outputs in ("target", "residual"):
        results[f"held, {outputs}"] = train("sum", rank, twice=False, outputs=outputs)
    results["refused"] = sharded()
    for outputs in ("target", "residual"):
        for name in ("per sample", "sum"):
            results[f"sharded, {name}, {outputs}"] = train(name, rank, twice=False, outputs=outputs, sharded=True)
            results[f"static graph, {name}, {outputs}"] = train(
                name, rank, twice=False, outputs=outputs, static_graph=True
            )
    for outputs in ("target", "random", "residual"):
        for wrap in ("sharded", "static graph"):
            results[f"gated, {wrap}, {outputs}"] = gated(rank, outputs, wrap)
    results["uneven"] = uneven(rank)
    results["second order"] = second_order(rank)
    # Each rank by itself: the prior sees its own samples only.
    own = data()[0][0][rank::N_RANKS]
    results["own"] = Gini(across_ranks=False)(own)
    return results


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).clone()
