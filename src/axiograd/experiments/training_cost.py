"""What a training step with a prior costs beside a plain one: time and memory, on networks without biases.

A step is the forward pass, the loss and `backward()`, without the optimizer, whose share is the same for all. Times are
taken in interleaved rounds, so that whatever else the machine does falls on all alike. Peak memory is the growth of the
high-water mark of a fresh process during one step, above the model and the inputs, gradients included (Linux). Expected
Gradients and Integrated Gradients take all references or steps of a batch at once, as the paper does.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.attribution import ExpectedGradients, IntegratedGradients, XGradient
from axiograd.errors import AxiogradError
from axiograd.homogeneity import certify, to_xdnn
from axiograd.models import get_model
from axiograd.priors import L1
from axiograd.training.loss import AttributionLoss

Action = Callable[[], object]


@dataclass(frozen=True)
class MeasuredNetwork:
    """What is trained: a model without biases, and the shape of its inputs."""

    label: str
    model: str
    config: Mapping[str, Any]
    shape: tuple[int, ...]
    #: Batches: beside a plain step, and beside the methods with many steps (two for ResNet-50, as in the paper).
    batch: int
    small_batch: int
    #: Enough samples that a step's memory is far above what a process needs anyway.
    memory_batches: tuple[int, ...]


FULL: Mapping[str, MeasuredNetwork] = {
    "alexnet": MeasuredNetwork("AlexNet, 224 px", "xalexnet", {"dropout": 0.0}, (3, 224, 224), 16, 16, (16, 64)),
    "resnet50": MeasuredNetwork("Fixup-ResNet-50, 224 px", "xfixup_resnet50", {}, (3, 224, 224), 4, 2, (4,)),
    "vgg11": MeasuredNetwork("VGG11, 224 px", "xvgg11", {"dropout": 0.0}, (3, 224, 224), 4, 2, (4,)),
    "mlp": MeasuredNetwork("MLP, 118-512-128-32-1", "xmlp", {}, (118,), 512, 1024, (16384,)),
}
#: What the steps without second derivatives are measured on.
HELD: Mapping[str, MeasuredNetwork] = {
    "mlp-64": MeasuredNetwork("MLP, 118-512-128-32-1", "xmlp", {}, (118,), 64, 64, ()),
    "mlp": MeasuredNetwork("MLP, 118-512-128-32-1", "xmlp", {}, (118,), 512, 512, (16384,)),
    "demo": MeasuredNetwork("the demonstration's network, 64 px", "demo", {}, (3, 64, 64), 64, 64, (64,)),
    "alexnet": MeasuredNetwork("AlexNet, 224 px", "xalexnet", {"dropout": 0.0}, (3, 224, 224), 16, 16, (16,)),
    "vgg11": FULL["vgg11"],
    "resnet50": MeasuredNetwork("Fixup-ResNet-50, 224 px", "xfixup_resnet50", {}, (3, 224, 224), 2, 2, (2,)),
    "squeezenet": MeasuredNetwork(
        "SqueezeNet 1.1, 224 px", "xsqueezenet1_1", {"dropout": 0.0}, (3, 224, 224), 8, 8, (8,)
    ),
    "lifted": MeasuredNetwork(
        "SqueezeNet 1.1 lifted, 224 px", "lift:squeezenet1_1", {"dropout": 0.0}, (3, 224, 224), 8, 8, (8,)
    ),
    "alexnet-64": MeasuredNetwork("AlexNet, 224 px", "xalexnet", {"dropout": 0.0}, (3, 224, 224), 64, 64, (64,)),
}
QUICK: Mapping[str, MeasuredNetwork] = {
    "alexnet": MeasuredNetwork(
        "AlexNet of width 1/8, 64 px",
        "xalexnet",
        {"dropout": 0.0, "width": 0.125, "hidden": 64},
        (3, 64, 64),
        4,
        2,
        (16,),
    ),
    "resnet50": MeasuredNetwork(
        "Fixup-ResNet-50 of width 1/8, 64 px", "xfixup_resnet50", {"width": 0.125}, (3, 64, 64), 2, 2, (4,)
    ),
    "vgg11": MeasuredNetwork(
        "VGG11 of width 1/8, 64 px", "xvgg11", {"dropout": 0.0, "width": 0.125, "hidden": 64}, (3, 64, 64), 2, 2, (4,)
    ),
    "mlp": MeasuredNetwork("MLP, 118-64-1", "xmlp", {"hidden": (64,)}, (118,), 64, 512, (16384,)),
}


class Setup:
    """One network, its batch, and the steps that can be taken with it."""

    def __init__(self, network: MeasuredNetwork, batch: int, many: int) -> None:
        torch.manual_seed(0)
        self.model = build(network).train()
        for parameter in self.model.parameters():
            # Fixup begins with layers of zeros, whose products a processor may find faster.
            if not parameter.any():
                nn.init.normal_(parameter, std=0.01)
        self.x = torch.randn(batch, *network.shape)
        n_outputs = self.model(self.x[:1]).shape[1]
        self.y = torch.randint(n_outputs, (batch,)) if n_outputs > 1 else torch.rand(batch).round()
        self.many = many
        self.references = torch.randn(2 * many, *network.shape)
        self.losses = {
            "prior": self.loss(XGradient),
            "random": self.loss(XGradient, outputs="random"),
            "residual": self.loss(XGradient, outputs="residual"),
            "double backward": self.loss(XGradient, double_backward=True),
            "EG": self.loss(
                ExpectedGradients, references=self.references, n_samples=many, internal_batch_size=many * batch
            ),
            "EG by default": self.loss(ExpectedGradients, references=self.references, n_samples=many),
            "IG": self.loss(IntegratedGradients, n_steps=many, internal_batch_size=many * batch),
        }

    def loss(self, method: Callable[..., Any], **arguments: Any) -> AttributionLoss:
        """A weak prior on the magnitude of attributions by a method."""
        return AttributionLoss(task_loss, L1(), 0.1, method, **arguments)

    def actions(self, *names: str) -> dict[str, Action]:
        """Steps by name: plain, by hand, or a loss: prior, random, residual, double backward, EG, IG."""
        return {name: partial(self.step, name) for name in names}

    def step(self, name: str, n: int | None = None) -> None:
        """Forward pass, loss and backward pass, on the first n samples."""
        x, y = self.x[:n], self.y[:n]
        self.model.zero_grad()
        if name == "plain":
            backward(task_loss(self.model(x), y))
        elif name == "by hand":
            self.by_hand(x.detach().requires_grad_(), y)
        else:
            backward(self.losses[name](self.model, x, y).total)

    def by_hand(self, x: Tensor, y: Tensor) -> None:
        """The recipe without this library: second derivatives, and no check of anything."""
        outputs = self.model(x)
        rows = torch.arange(len(x))
        score = outputs[:, 0] if y.is_floating_point() else outputs[rows, y]
        (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        backward(task_loss(outputs, y) + 0.1 * (x * gradient).abs().flatten(1).sum(1).mean())


def build(network: MeasuredNetwork) -> nn.Module:
    """The model of a network: by its name, lifted, or the demonstration's without its biases."""
    if network.model == "demo":
        from axiograd.demo.story import network as demonstration

        return to_xdnn(demonstration(), torch.randn(2, *network.shape)).model
    if network.model.startswith("lift:"):
        plain = get_model(network.model.removeprefix("lift:"), **network.config)
        return to_xdnn(plain, torch.randn(2, *network.shape), how="lift").model
    return get_model(network.model, **network.config)


def backward(loss: Tensor) -> None:
    """As in a training loop."""
    loss.backward()


def task_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy, for one logit or several."""
    if y.is_floating_point():
        return F.binary_cross_entropy_with_logits(outputs.flatten(), y)
    return F.cross_entropy(outputs, y)


def interleaved(
    actions: Mapping[str, Action],
    rounds: int,
    warm: int = 1,
    said: Callable[[int], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each action in each round, forwards and backwards in turn."""
    for _ in range(warm):
        for action in actions.values():
            action()
    times: dict[str, list[float]] = {name: [] for name in actions}
    for round_ in range(rounds):
        for name in list(actions)[:: 1 if round_ % 2 else -1]:
            start = clock()
            actions[name]()
            times[name].append(clock() - start)
        said(round_ + 1)
    return times


def ratio(times: Mapping[str, Sequence[float]], a: str, b: str) -> float:
    """The median of the ratios within each round."""
    return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))


def peak(network: MeasuredNetwork, action: str, batch: int, many: int) -> float:
    """Growth of this process's high-water mark during one step, in MiB."""
    setup = Setup(network, batch, many)
    # What happens once, certificates and checks, happens on one sample.
    setup.step(action, 1)
    setup.model.zero_grad()
    certify(setup.model, setup.x)
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = high_water()
    setup.step(action)
    return (high_water() - before) / 1024


def high_water() -> int:
    """The largest amount of memory that this process has had, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def peak_mib(name: str, action: str, batch: int, many: int, *, quick: bool, threads: int) -> float:
    """`peak`, in a fresh process."""
    options = ["--many", str(many), "--threads", str(threads), *(["--quick"] if quick else [])]
    command = [sys.executable, "-m", "axiograd.experiments.training_cost", name, action, str(batch), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  # our own module
    if done.returncode:
        raise AxiogradError(
            f"{shlex.join(command)} ended with {done.returncode} (-9: out of memory, as {many} references or steps at "
            f"once need a lot):\n{done.stderr}."
        )
    return float(json.loads(done.stdout))


def main() -> None:
    """Print the peak memory of one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=[*FULL, *HELD])
    parser.add_argument("action", choices=["plain", "prior", "residual", "double backward", "EG", "IG"])
    parser.add_argument("batch", type=int)
    parser.add_argument("--many", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    networks = {**FULL, **HELD, **(QUICK if options.quick else {})}
    network = networks[options.network]
    sys.stdout.write(json.dumps(peak(network, options.action, options.batch, options.many)))


if __name__ == "__main__":
    main()
