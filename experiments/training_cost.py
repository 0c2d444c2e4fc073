"""What a training step with a prior costs beside a plain one: time and memory, on networks without biases.

A step is the forward pass, the loss with an L1 prior on attributions, and `backward()`, without the optimizer, whose
share is the same for all. Times are the processor's, medians of ratios within interleaved rounds. Memory is the most
bytes of tensors that a step has at once, above model and inputs.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd import AttributionLoss, ExpectedGradients, XGradient, to_xdnn
from axiograd.models import get_model
from axiograd.priors import L1
from benchmarks.ratios import interleaved, ratio
from experiments import lab

STEPS = ("by hand", "double backward", "residual")
WARM = 3  # the first calls certify: what is measured is the steady state


class Network(NamedTuple):
    """A network by its label, a builder of its X-DNN, the shape of its inputs, and the size of a batch."""

    label: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    rounds: int = 5


def lifted() -> nn.Module:
    return to_xdnn(get_model("squeezenet1_1", dropout=0.0), torch.randn(2, 3, 224, 224), how="lift").model


MLP, ALEXNET = partial(get_model, "xmlp"), partial(get_model, "xalexnet", dropout=0.0)
RESNET = partial(get_model, "xfixup_resnet50")
NETWORKS = {
    "mlp-64": Network("MLP, 118-512-128-32-1", MLP, (118,), 64, rounds=100),  # steps of a millisecond
    "mlp": Network("MLP, 118-512-128-32-1", MLP, (118,), 512, rounds=100),
    "alexnet": Network("AlexNet, 224 px", ALEXNET, (3, 224, 224), 16),
    "vgg11": Network("VGG11, 224 px", partial(get_model, "xvgg11", dropout=0.0), (3, 224, 224), 4),
    "resnet50": Network("Fixup-ResNet-50, 224 px", RESNET, (3, 224, 224), 2),
    "squeezenet": Network(
        "SqueezeNet 1.1, 224 px", partial(get_model, "xsqueezenet1_1", dropout=0.0), (3, 224, 224), 8
    ),
    "lifted": Network("SqueezeNet 1.1 lifted, 224 px", lifted, (3, 224, 224), 8),
    "alexnet-64": Network("AlexNet, 224 px", ALEXNET, (3, 224, 224), 64),
}
QUICK = {
    "mlp": Network("MLP, 118-64-1", partial(MLP, hidden=(64,)), (118,), 64, rounds=3),
    "alexnet": Network(
        "AlexNet of width 1/8, 64 px", partial(ALEXNET, width=0.125, hidden=64), (3, 64, 64), 4, rounds=2
    ),
    "resnet50": Network("Fixup-ResNet-50 of width 1/8, 64 px", partial(RESNET, width=0.125), (3, 64, 64), 2, rounds=2),
}


class Steps:
    """One network, its batch, and the steps that can be taken with it."""

    def __init__(self, network: Network, references: int = 2) -> None:
        torch.manual_seed(0)
        self.model = network.build().train()
        for parameter in self.model.parameters():
            # Fixup begins with layers of zeros, whose products a processor may find faster.
            if not parameter.any():
                nn.init.normal_(parameter, std=0.01)
        self.x = torch.randn(network.batch, *network.shape)
        outputs = self.model(self.x[:1]).shape[1]
        self.y = torch.randint(outputs, (network.batch,)) if outputs > 1 else torch.rand(network.batch).round()
        eg = {"references": torch.randn(2 * references, *network.shape), "n_samples": references}
        self.losses = {
            "residual": self.loss(XGradient, outputs="residual"),
            "double backward": self.loss(XGradient),
            "EG": self.loss(ExpectedGradients, **eg, internal_batch_size=references * network.batch),
            "EG by default": self.loss(ExpectedGradients, **eg),
        }

    def loss(self, method: Any, **given: Any) -> AttributionLoss:
        return AttributionLoss(task_loss, L1(), 0.1, method, **given)

    def take(self, name: str) -> None:
        """Forward pass, loss and backward pass of a step: plain, by hand, or with one of the losses."""
        self.model.zero_grad()
        if name == "plain":
            task_loss(self.model(self.x), self.y).backward()
        elif name == "by hand":
            self.by_hand(self.x.detach().requires_grad_())
        else:
            self.losses[name](self.model, self.x, self.y).total.backward()

    def by_hand(self, x: Tensor) -> None:
        """The recipe without this library: second derivatives, and no check of anything."""
        outputs = self.model(x)
        score = outputs[:, 0] if self.y.is_floating_point() else outputs[torch.arange(len(x)), self.y]
        (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        (task_loss(outputs, self.y) + 0.1 * (x * gradient).abs().flatten(1).sum(1).mean()).backward()

    def times(self, *names: str, rounds: int, warm: int = WARM) -> dict[str, list[float]]:
        """Processor seconds of each step in each round."""
        return interleaved({name: partial(self.take, name) for name in names}, rounds, warm, clock=time.process_time)

    def memory(self, name: str) -> int:
        """The most bytes of tensors that a step has at once."""
        self.take(name)
        self.model.zero_grad()
        with torch.profiler.profile(profile_memory=True) as profile:
            self.take(name)
        events = profile.profiler.kineto_results.events()
        changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
        return max(accumulate(size for _, size in changes))


def task_loss(outputs: Tensor, y: Tensor) -> Tensor:
    if y.is_floating_point():
        return F.binary_cross_entropy_with_logits(outputs.flatten(), y)
    return F.cross_entropy(outputs, y)


@lab.remember
def measured(name: str, quick: bool) -> dict[str, float]:
    """Times and memory of every step, in plain steps."""
    network = (QUICK if quick else NETWORKS)[name]
    steps = Steps(network)
    times = steps.times("plain", *STEPS, rounds=network.rounds)
    memory = {step: steps.memory(step) for step in ("plain", *STEPS[1:])}
    found = {step: ratio(times, step, "plain") for step in STEPS}
    return found | {f"memory: {step}": memory[step] / memory["plain"] for step in STEPS[1:]}


def run(*, quick: bool) -> lab.Result:
    """Every network in turn."""
    networks = QUICK if quick else NETWORKS
    return summary(
        [{"network": f"{n.label}, batch {n.batch}", **measured(name, quick)} for name, n in networks.items()]
    )


def summary(rows: list[dict[str, Any]]) -> lab.Result:
    """A line for each network."""
    table = pd.DataFrame(rows)
    large = table[~table["network"].str.contains("MLP")]
    words = {step: lab.span(large[step], ".2f") for step in STEPS}
    verdict = (
        f"On image networks a step with a prior on the residual takes {words['residual']} plain steps; with second "
        f"derivatives it takes {words['double backward']}, and {words['by hand']} where they are written by hand."
    )
    return lab.Result("What a prior costs", table, verdict, NOTE, "random inputs", "0")


NOTE = """\
A training step with a prior, in plain steps: processor time, and the peak memory of tensors above model and inputs.
By hand is the recipe without this library. The residual needs no second derivatives where the network is large;
small ones are differentiated twice, which is faster for them."""
