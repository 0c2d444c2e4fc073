"""Efficiency: time and memory of a training step with Expected Gradients of 32 references and with X-Gradient."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.paper import EFFICIENCY
from axiograd.experiments.records import Records
from axiograd.experiments.training_cost import FULL, QUICK, MeasuredNetwork, Setup, interleaved, peak_mib, ratio

#: References of Expected Gradients: where they catch up with X-Gradient in the paper's Figure 1.
REFERENCES = 32
#: The paper's network comes last: it takes the longest.
ORDER = ("mlp", "alexnet", "resnet50")
#: Steps before the first that is measured.
WARM = 10
ROUNDS: Mapping[str, int] = {"quick": 3, "real": 3}


def networks(setting_scale: str) -> Mapping[str, MeasuredNetwork]:
    """Small ones for the quick form."""
    return QUICK if setting_scale == "quick" else FULL


def measure_time(name: str, setting: Setting, eg: str = "EG") -> dict[str, Any]:
    """Processor seconds of a step in its steady state: medians of interleaved rounds, and of the ratios within one."""
    network = networks(setting.scale)[name]
    setup = Setup(network, network.small_batch, REFERENCES)
    for _ in range(WARM):  # the first steps check their proof more often
        setup.step("prior")
    times = interleaved(setup.actions("plain", "prior", eg), ROUNDS[setting.scale], clock=time.process_time)
    seconds = {action: float(f"{statistics.median(found):.4g}") for action, found in times.items()}
    pairs = {"EG_over_prior": (eg, "prior"), "prior_over_plain": ("prior", "plain")}
    return {"seconds": seconds, **{words: float(f"{ratio(times, *pair):.4g}") for words, pair in pairs.items()}}


def measure_memory(name: str, setting: Setting) -> dict[str, Any]:
    """MiB that a step needs beyond the model and its inputs."""
    batch = networks(setting.scale)[name].small_batch
    peak = partial(peak_mib, quick=setting.scale == "quick", threads=torch.get_num_threads())
    return {action: round(peak(name, action, batch, REFERENCES), 1) for action in ("plain", "prior", "EG")}


def plan(setting: Setting) -> Plan:
    """Time and memory of each network."""

    def stage(_: Records) -> Sequence[Work]:
        costs = {"mlp": 1, "alexnet": 10, "resnet50": 100}
        return [
            Work({"network": name, "what": what}, partial(measure, name, setting), costs[name])
            for name in ORDER
            for what, measure in (("time", measure_time), ("memory", measure_memory))
        ] + [
            Work(
                {"network": name, "what": "default"}, partial(measure_time, name, setting, "EG by default"), costs[name]
            )
            for name in ORDER
        ]

    settings = {
        "references": REFERENCES,
        "rounds": ROUNDS[setting.scale],
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "scale": setting.scale,
    }
    return Plan("random inputs", settings, (stage,))


def table(records: Records) -> Table:
    """One line per network; the paper's numbers are those of ResNet-50 on an A100."""
    rows: list[tuple[Cell, ...]] = []
    for name in ORDER:
        network = networks(records.settings["scale"])[name]
        times, memory = (records.get(network=name, what=what) for what in ("time", "memory"))
        if times is None and memory is None:
            continue
        seconds = [f"{times['seconds'][a]:.3g}" if times else None for a in ("prior", "EG")]
        mib = [f"{memory[a]:.4g}" if memory else None for a in ("prior", "EG")]
        ratios = (
            f"{times['EG_over_prior']:.3g}" if times else None,
            f"{memory['EG'] / memory['prior']:.3g}" if memory and memory["prior"] > 0 else None,
        )
        paper = (f"{EFFICIENCY.time_ratio:g}", f"{EFFICIENCY.memory_ratio:g}") if name == "resnet50" else (None, None)
        label = f"{network.label}, batch {network.small_batch}"
        rows.append((f"{label}, all references at once", *seconds, ratios[0], paper[0], *mib, ratios[1], paper[1]))
        if default := records.get(network=name, what="default"):
            taken = [default["seconds"]["prior"], default["seconds"]["EG by default"], default["EG_over_prior"]]
            rows.append(
                (
                    f"{label}, one reference after the other (the default)",
                    *(f"{value:.3g}" for value in taken),
                    *[None] * 5,
                )
            )
    header = (
        "network without biases", "X-Gradient (s)", "EG(32) (s)", "time ratio", "paper", "X-Gradient (MiB)",
        "EG(32) (MiB)", "memory ratio", "paper's",
    )  # fmt: skip
    return Table(header, tuple(rows), NOTE)


NOTE = (
    "A step is the forward pass, the loss with an L1 prior on attributions, and the backward pass; memory is what it "
    "needs beyond the model and its inputs. References are taken all at once (internal_batch_size = 32 × batch), but "
    "in the rows that say otherwise. Seconds are the processor's, medians of interleaved rounds after ten steps with "
    "the prior, because the first ones check the proof more often; ratios are medians of those within a round. The "
    f"paper (ResNet-50, batch of two, one A100): {EFFICIENCY.eg_seconds:g} s and {EFFICIENCY.eg_gigabytes:g} GB with "
    "EG(32), "
    f"{EFFICIENCY.x_gradient_seconds:g} s and {EFFICIENCY.x_gradient_gigabytes:g} GB with X-Gradient, memory of the "
    "whole process. EG(32) takes 32 times as many gradients; how much of that shows in time depends on how busy one "
    "gradient keeps the machine."
)

ITEM = Item("efficiency", "Efficiency: training with EG(32) and with X-Gradient", plan, table, scales=("quick", "real"))
