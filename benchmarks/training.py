"""A training step with a prior beside a plain one: time and memory, on networks without biases.

    python benchmarks/training.py --save
    python benchmarks/training.py --held --threads 1 --save

A step is the forward pass, the loss and `backward()`, without the optimizer, whose share is the same for all. Times are
the processor's, medians of ratios within interleaved rounds, after five steps of each; only ratios are reported. Peak
memory is the growth of the high-water mark of a fresh process during one step, above the model and the inputs,
gradients included (Linux). Beside Expected Gradients: `axiograd reproduce efficiency`.

With `--held`, steps without second derivatives stand beside plain ones and beside the recipe written by hand; results
go to results/held-gates.md.

With `--save`, each part is kept in results/training.json as soon as it is measured, and not measured again.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from targets import judged

from axiograd.experiments.records import Records, markdown_table, provenance
from axiograd.experiments.training_cost import (
    FULL,
    HELD,
    QUICK,
    Action,
    MeasuredNetwork,
    Setup,
    interleaved,
    peak_mib,
    ratio,
)

RESULTS = Path(__file__).parent / "results"
#: Of the residual and of single outputs, by network.
WANTED = {"alexnet": "at most 1.5", "vgg11": "at most 1.5", "resnet50": "at most 1.6"}
PRIORS = ("double backward", "residual", "prior")
WARM = 5  # the first calls check more than the later ones do: what is measured is the steady state


def peak_of_tensors(setup: Setup, step: str) -> int:
    """The most bytes of tensors that a step has at once, above model and inputs."""
    for _ in range(WARM):
        setup.step(step)
    setup.model.zero_grad()
    with torch.profiler.profile(profile_memory=True) as profile:
        setup.step(step)
    found = profile.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in found if event.name() == "[memory]")
    return max(accumulate(size for _, size in changes))


def timed(actions: dict[str, Action], rounds: int) -> dict[str, list[float]]:
    """Processor seconds of each action in each round."""
    times = interleaved(
        actions,
        rounds,
        WARM,
        lambda n: print(f"\r  round {n} of {rounds}", end="", file=sys.stderr, flush=True),
        time.process_time,
    )
    print(file=sys.stderr)
    return times


@dataclass(frozen=True)
class Bench:
    """The sizes of one run."""

    networks: dict[str, MeasuredNetwork]
    rounds: int
    quick: bool
    threads: int

    def prior(self, name: str) -> dict[str, float]:
        network = self.networks[name]
        setup = Setup(network, network.batch, 1)
        # Steps of a millisecond need more rounds than steps of seconds.
        rounds = 20 * self.rounds if name == "mlp" else self.rounds
        times = timed(setup.actions("plain", "prior"), rounds)
        return {"time": ratio(times, "prior", "plain")}

    def held(self, name: str) -> dict[str, float]:
        network = self.networks[name]
        setup = Setup(network, network.batch, 1)
        steps = ("plain", "by hand", "double backward", "residual", "prior", "random")
        rounds = 20 * self.rounds if name.startswith(("mlp", "demo")) else self.rounds
        times = timed(setup.actions(*steps), rounds)
        return {step: ratio(times, step, "plain") for step in steps[1:]} | {
            f"twice {step}": float(bool(setup.losses[step].why_twice)) for step in ("residual", "prior", "random")
        }

    def held_memory(self, name: str) -> dict[str, float]:
        batch = self.networks[name].memory_batches[0]
        plain = self.peak_mib(name, "plain", batch)
        return {step: self.peak_mib(name, step, batch) / plain for step in PRIORS}

    def held_tensors(self, name: str) -> dict[str, float]:
        network = self.networks[name]
        setup = Setup(network, network.batch, 1)
        peaks = {step: peak_of_tensors(setup, step) for step in ("plain", *PRIORS)}
        return {step: peaks[step] / peaks["plain"] for step in PRIORS}

    def memory(self, name: str) -> dict[str, float]:
        values = {}
        for batch in self.networks[name].memory_batches:
            plain, prior = (self.peak_mib(name, action, batch) for action in ("plain", "prior"))
            values |= {f"memory_{batch}": prior / plain, f"plain_mib_{batch}": plain, f"prior_mib_{batch}": prior}
        return values

    def batches(self, name: str) -> dict[str, float]:
        network = self.networks[name]
        sizes = (4, 8, 16, 32)
        setup = Setup(network, sizes[-1], 1)
        times = timed({str(n): lambda n=n: setup.step("prior", n) for n in sizes}, self.rounds)
        return {str(n): ratio(times, str(n), "4") for n in sizes}

    def peak_mib(self, name: str, action: str, batch: int) -> float:
        return peak_mib(name, action, batch, 1, quick=self.quick, threads=self.threads)

    def parts(self, *, held: bool) -> Iterator[tuple[str, str, Callable[[str], dict[str, float]]]]:
        """(network, part, how it is measured), the quick ones first."""
        if held:
            for name in self.networks:
                yield name, "held", self.held
            for name, network in self.networks.items():
                if network.memory_batches:
                    yield name, "held-memory", self.held_memory
            for name in self.networks:
                yield name, "held-tensors", self.held_tensors
            return
        for name in ("mlp", "alexnet", "resnet50"):
            yield name, "prior", self.prior
            yield name, "memory", self.memory
        yield "alexnet", "batches", self.batches


def rows(records: Records, networks: dict[str, MeasuredNetwork]) -> Iterator[tuple[str, str, str, str]]:
    for name, network in networks.items():

        def cells(part: str, texts: dict[str, tuple[str, str]], batch: int, name=name, network=network):
            values = records.get(network=name, part=part)
            for key, (what, wanted) in texts.items() if values else ():
                yield f"{network.label}, batch {batch}", what, f"{values[key]:.3g}", judged(values[key], wanted)

        limit = "at most 2.5" if name == "alexnet" else ""
        yield from cells("prior", {"time": ("time: X-Gradient prior / plain", limit)}, network.batch)
        for batch in network.memory_batches:
            texts = {f"memory_{batch}": ("peak memory: X-Gradient prior / plain", "at most 2")}
            yield from cells("memory", texts, batch)
        if values := records.get(network=name, part="batches"):
            growth = ", ".join(f"{value:.2f}" for value in values.values())
            yield (
                network.label,
                f"time of a step with the prior, batch {', '.join(values)} / batch 4",
                growth,
                "1, 2, 4, 8",
            )


def held_rows(records: Records, networks: dict[str, MeasuredNetwork]) -> Iterator[tuple[str, ...]]:
    for name, network in networks.items():
        if values := records.get(network=name, part="held"):
            times = [
                f"{values[step]:.2f}{' ²' if values.get(f'twice {step}') else ''}"
                for step in ("by hand", "double backward", "residual", "prior", "random")
            ]
            tensors, process = (records.get(network=name, part=f"held-{kind}") for kind in ("tensors", "memory"))
            memory = [
                " / ".join(f"{found[step]:.2f}" if found else "–" for found in (tensors, process)) for step in PRIORS
            ]
            kind = name.partition("-")[0]
            yield (
                f"{network.label}, batch {network.batch}",
                *times,
                judged(values["residual"], WANTED.get(kind, "")),
                *memory,
            )


def held_misses(records: Records, networks: dict[str, MeasuredNetwork]) -> Iterator[str]:
    """Which networks miss what is wanted of all of them."""
    wanted = (("held", "prior", 2.3, "true class"), ("held", "random", 2.3, "random combinations"))
    for part, step, limit, words in (*wanted, ("held-tensors", "residual", 1.25, "memory of tensors, residual")):
        found = {name: values[step] for name in networks if (values := records.get(network=name, part=part))}
        missed = [
            f"{networks[name].label}, batch {networks[name].batch} ({value:.2f})"
            for name, value in found.items()
            if value > limit
        ]
        if missed:
            yield f"{words}, at most {limit:g}: missed by {len(missed)} of {len(found)}, {'; '.join(missed)}"


def render_held(records: Records, networks: dict[str, MeasuredNetwork]) -> str:
    head = ("network without biases", "by hand", "double backward", "residual", "true class", "random", "wanted")
    memory = ("memory: double backward", "memory: residual", "memory: true class")
    table = markdown_table((*head, *memory), held_rows(records, networks))
    note = (
        "A training step with a prior, in plain steps: processor time, medians of ratios in interleaved rounds, one "
        "thread, after five steps of each, because the first ones check the proof more often; peak memory of one step "
        "above model and inputs, of its tensors after five steps / of the process in an early step, with what the "
        "allocator and libraries hold and with the check along the path. Wanted of the residual's time stands in its "
        "column."
    )
    twice = any(
        v.values.get(f"twice {step}") for v in records.find(part="held") for step in ("residual", "prior", "random")
    )
    note += " ²: differentiated twice, because the network is small." if twice else ""
    note += "".join(f" Wanted of {each}." for each in held_misses(records, networks))
    return f"# What a prior costs\n\n{table}\n\n{note}\n\n{provenance(records)}\n"


def render(records: Records, networks: dict[str, MeasuredNetwork]) -> str:
    table = markdown_table(("network without biases", "ratio", "measured", "wanted"), rows(records, networks))
    note = (
        "Where the batch is small, the bulk of AlexNet's memory, and much of its time, is the gradients of its 58 "
        "million weights in linear layers, which every step has once, and a prior needs twice."
    )
    return f"# Training with a prior\n\n{table}\n\n{note}\n\n{provenance(records)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="networks or parts, comma-separated: mlp, alexnet-memory, …")
    parser.add_argument("--held", action="store_true", help="steps without second derivatives beside the others")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny networks, to see that it runs")
    parser.add_argument("--save", action="store_true", help=f"keep parts in {RESULTS}/training.json and write the .md")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    networks = QUICK if options.quick else HELD if options.held else FULL
    bench = Bench(networks, options.rounds, options.quick, options.threads)
    stem = ("held-gates" if options.held else "training") + ("-quick" if options.quick else "")
    folder = RESULTS if options.save else Path(tempfile.mkdtemp())
    settings = {
        **({"many": 32} if options.held else {}),  # as in the records that are there
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": 0,
        "dtype": "float32",
    }
    command = shlex.join(["python", "benchmarks/training.py", *sys.argv[1:]])
    records = Records(folder / f"{stem}.json", command=command, data="random inputs", settings=settings)
    wanted = {word for word in options.only.split(",") if word}
    for name, part, measure in bench.parts(held=options.held):
        if wanted and not wanted & {name, part, f"{name}-{part}"}:
            continue
        print(f"{name}: {part}", file=sys.stderr, flush=True)
        records.piece(lambda measure=measure, name=name: measure(name), network=name, part=part)
    text = render_held(records, networks) if options.held else render(records, networks)
    if options.save:
        (folder / f"{stem}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
