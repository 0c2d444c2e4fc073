"""A training step with a prior beside a plain one: time and memory, on networks without biases.

    python benchmarks/training.py --compiled --save

A step is the forward pass, the loss and `backward()`, without the optimizer, whose share is the same for all. Times are
medians of ratios within interleaved rounds, so that whatever else the machine does falls on both sides alike; only
ratios are reported. Peak memory is the growth of the high-water mark of a fresh process during one step, above the
model and the inputs, gradients included (Linux). Expected Gradients and Integrated Gradients take all references or
steps of a batch at once, as the paper does; on ResNet-50 with 32 of them that needs about 20 GB.

With `--save`, each part is kept in results/training.json as soon as it is measured, and not measured again.
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
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from axiograd import AttributionLoss, ExpectedGradients, IntegratedGradients, XGradient, certify
from axiograd.experiments.records import Records, markdown_table, provenance
from axiograd.models import get_model
from axiograd.priors import L1
from axiograd.training.compiled import CompiledStep

RESULTS = Path(__file__).parent / "results"
Action = Callable[[], object]


@dataclass(frozen=True)
class Network:
    """What is trained: a model without biases, and the shape of its inputs."""

    label: str
    model: str
    config: dict
    shape: tuple[int, ...]
    #: Batches: beside a plain step, and beside the methods with many steps (the paper's is two).
    batch: int
    small_batch: int
    #: Enough samples that a step's memory is far above what a process needs anyway.
    memory_batch: int


FULL = {
    "alexnet": Network("AlexNet, 224 px", "xalexnet", {"dropout": 0.0}, (3, 224, 224), 16, 2, 16),
    "resnet50": Network("Fixup-ResNet-50, 224 px", "xfixup_resnet50", {}, (3, 224, 224), 4, 2, 4),
    "mlp": Network("MLP, 118-512-128-32-1", "xmlp", {}, (118,), 512, 1024, 16384),
}
QUICK = {
    "alexnet": Network(
        "AlexNet of width 1/8, 64 px", "xalexnet", {"dropout": 0.0, "width": 0.125, "hidden": 64}, (3, 64, 64), 4, 2, 16
    ),
    "resnet50": Network(
        "Fixup-ResNet-50 of width 1/8, 64 px", "xfixup_resnet50", {"width": 0.125}, (3, 64, 64), 2, 2, 4
    ),
    "mlp": Network("MLP, 118-64-1", "xmlp", {"hidden": (64,)}, (118,), 64, 512, 16384),
}


class Setup:
    """One network, its batch, and the steps that can be taken with it."""

    def __init__(self, network: Network, batch: int, many: int) -> None:
        torch.manual_seed(0)
        self.model = get_model(network.model, **network.config).train()
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
            "EG": self.loss(
                ExpectedGradients, references=self.references, n_samples=many, internal_batch_size=many * batch
            ),
            "IG": self.loss(IntegratedGradients, n_steps=many, internal_batch_size=many * batch),
        }
        self.compiled: dict[str, Callable[..., object]] = {}

    def loss(self, method: Callable, **arguments: object) -> AttributionLoss:
        return AttributionLoss(task_loss, L1(), 0.1, method, **arguments)

    def actions(self, *names: str) -> dict[str, Action]:
        return {name: lambda name=name: self.step(name) for name in names}

    def step(self, name: str, n: int | None = None) -> None:
        x, y = self.x[:n], self.y[:n]
        self.model.zero_grad()
        if name == "plain":
            task_loss(self.model(x), y).backward()
        elif name == "plain compiled":
            if name not in self.compiled:
                self.compiled[name] = torch.compile(self.model)
            task_loss(self.compiled[name](x), y).backward()
        elif name == "prior compiled":
            step = self.compiled.setdefault(name, CompiledStep(self.losses["prior"], self.model))
            step(x, y)
        else:
            self.losses[name](self.model, x, y).total.backward()


def task_loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if y.is_floating_point():
        return F.binary_cross_entropy_with_logits(outputs.flatten(), y)
    return F.cross_entropy(outputs, y)


def interleaved(actions: dict[str, Action], rounds: int, warm: int = 1) -> dict[str, list[float]]:
    for _ in range(warm):
        for action in actions.values():
            action()
    times: dict[str, list[float]] = {name: [] for name in actions}
    for round_ in range(rounds):
        for name in actions if round_ % 2 else reversed(actions):
            start = time.perf_counter()
            actions[name]()
            times[name].append(time.perf_counter() - start)
        print(f"\r  round {round_ + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return times


def ratio(times: dict[str, list[float]], a: str, b: str) -> float:
    """The median of the ratios within each round."""
    return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))


def peak(network: Network, action: str, batch: int, many: int) -> float:
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
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@dataclass(frozen=True)
class Bench:
    """The sizes of one run."""

    networks: dict[str, Network]
    rounds: int
    many: int
    quick: bool
    threads: int

    def prior(self, name: str) -> dict[str, float]:
        network = self.networks[name]
        setup = Setup(network, network.batch, 1)
        # Steps of a millisecond need more rounds than steps of seconds.
        rounds = 20 * self.rounds if name == "mlp" else self.rounds
        times = interleaved(setup.actions("plain", "prior"), rounds)
        return {"time": ratio(times, "prior", "plain")}

    def compiled(self, name: str) -> dict[str, float]:
        network = self.networks[name]
        setup = Setup(network, network.batch, 1)
        steps = ("plain", "plain compiled", "prior", "prior compiled")
        rounds = 20 * self.rounds if name == "mlp" else self.rounds
        # The first step of a compiled prior runs as written, the second compiles.
        times = interleaved(setup.actions(*steps), rounds, warm=3)
        step = setup.compiled["prior compiled"]
        if not step.compiled:
            raise SystemExit(f"{name}: the step was not compiled: {step.reason}")
        return {
            "time": ratio(times, "prior compiled", "plain compiled"),
            "over_eager_plain": ratio(times, "prior compiled", "plain"),
            "over_eager_prior": ratio(times, "prior compiled", "prior"),
        }

    def memory(self, name: str) -> dict[str, float]:
        batch = self.networks[name].memory_batch
        plain, prior = (self.peak_mib(name, action, batch) for action in ("plain", "prior"))
        return {"memory": prior / plain, "plain_mib": plain, "prior_mib": prior}

    def many_steps(self, name: str) -> dict[str, float]:
        network = self.networks[name]
        setup = Setup(network, network.small_batch, self.many)
        values: dict[str, float] = {}
        for method in ("EG", "IG"):
            times = interleaved(setup.actions("prior", method), max(3, self.rounds // 2))
            values[f"{method}_time"] = ratio(times, method, "prior")
        prior = self.peak_mib(name, "prior", network.small_batch)
        for method in ("EG", "IG"):
            values[f"{method}_memory"] = self.peak_mib(name, method, network.small_batch) / prior
        return values

    def batches(self, name: str) -> dict[str, float]:
        network = self.networks[name]
        sizes = (4, 8, 16, 32)
        setup = Setup(network, sizes[-1], 1)
        times = interleaved({str(n): lambda n=n: setup.step("prior", n) for n in sizes}, self.rounds)
        return {str(n): ratio(times, str(n), "4") for n in sizes}

    def peak_mib(self, name: str, action: str, batch: int) -> float:
        command = [sys.executable, __file__, "--peak", name, action, str(batch), "--many", str(self.many)]
        command += ["--threads", str(self.threads), *(["--quick"] if self.quick else [])]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(
                f"{shlex.join(command)} ended with {done.returncode} (-9: out of memory; try --many 16):\n{done.stderr}"
            )
        return float(json.loads(done.stdout))

    def parts(self, *, compiled: bool) -> Iterator[tuple[str, str, Callable[[str], dict[str, float]]]]:
        """(network, part, how it is measured), the quick ones first."""
        for name in ("mlp", "alexnet", "resnet50"):
            yield name, "prior", self.prior
            yield name, "memory", self.memory
        yield "alexnet", "batches", self.batches
        for name in ("mlp", "alexnet", "resnet50"):
            yield name, "many", self.many_steps
        if compiled:
            for name in ("mlp", "alexnet", "resnet50"):
                yield name, "compiled", self.compiled


def rows(records: Records, networks: dict[str, Network], many: int) -> Iterator[tuple[str, str, str, str]]:
    for name, network in networks.items():

        def cells(part: str, texts: dict[str, tuple[str, str]], batch: int, name=name, network=network):
            values = records.get(network=name, part=part)
            for key, (what, wanted) in texts.items() if values else ():
                yield f"{network.label}, batch {batch}", what, f"{values[key]:.3g}", wanted

        limit = "at most 2.5" if name == "alexnet" else ""
        yield from cells("prior", {"time": ("time: X-Gradient prior / plain", limit)}, network.batch)
        texts = {
            "time": ("time: the same, both compiled", "at most 2.3" if name == "alexnet" else ""),
            "over_eager_plain": ("time: compiled prior / plain as written", ""),
            "over_eager_prior": ("time: compiled prior / prior as written", ""),
        }
        yield from cells("compiled", texts, network.batch)
        yield from cells(
            "memory", {"memory": ("peak memory: X-Gradient prior / plain", "at most 2")}, network.memory_batch
        )
        texts = {}
        for method in ("EG", "IG"):
            against = "at least 25" if name == "resnet50" and method == "EG" else ""
            texts[f"{method}_time"] = (f"time: {method}({many}) prior / X-Gradient prior", against)
            texts[f"{method}_memory"] = (f"peak memory: {method}({many}) prior / X-Gradient prior", "")
        yield from cells("many", texts, network.small_batch)
        if values := records.get(network=name, part="batches"):
            growth = ", ".join(f"{value:.2f}" for value in values.values())
            yield (
                network.label,
                f"time of a step with the prior, batch {', '.join(values)} / batch 4",
                growth,
                "1, 2, 4, 8",
            )


def render(records: Records, networks: dict[str, Network], many: int) -> str:
    table = markdown_table(("network without biases", "ratio", "measured", "wanted"), rows(records, networks, many))
    return f"# Training with a prior\n\n{table}\n\n{provenance(records)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="networks or parts, comma-separated: mlp, alexnet-memory, many, …")
    parser.add_argument("--compiled", action="store_true", help="compiled steps too (compiling takes minutes)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--many", type=int, default=32, help="references of EG, and steps of IG")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny networks, to see that it runs")
    parser.add_argument("--save", action="store_true", help=f"keep parts in {RESULTS}/training.json and write the .md")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    networks = QUICK if options.quick else FULL
    if options.peak:
        name, action, batch = options.peak
        print(json.dumps(peak(networks[name], action, int(batch), options.many)))
        return
    bench = Bench(networks, options.rounds, options.many, options.quick, options.threads)
    stem = "training-quick" if options.quick else "training"
    folder = RESULTS if options.save else Path(tempfile.mkdtemp())
    settings = {
        "many": options.many,
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": 0,
        "dtype": "float32",
    }
    command = shlex.join(["python", "benchmarks/training.py", *sys.argv[1:]])
    records = Records(folder / f"{stem}.json", command=command, data="random inputs", settings=settings)
    wanted = {word for word in options.only.split(",") if word}
    for name, part, measure in bench.parts(compiled=options.compiled):
        if wanted and not wanted & {name, part, f"{name}-{part}"}:
            continue
        print(f"{name}: {part}", file=sys.stderr, flush=True)
        records.piece(lambda measure=measure, name=name: measure(name), network=name, part=part)
        if options.save:
            (folder / f"{stem}.md").write_text(render(records, networks, options.many))
    print(render(records, networks, options.many))


if __name__ == "__main__":
    main()
