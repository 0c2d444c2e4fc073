"""Efficiency: time and memory of a training step with Expected Gradients of 32 references and with X-Gradient."""

import statistics

import pandas as pd

from benchmarks.ratios import ratio
from experiments import lab, training_cost

#: References of Expected Gradients: where they catch up with X-Gradient in the paper's Figure 1.
REFERENCES = 32
#: Appendix, ResNet-50 with a batch of two on an A100: how many times the seconds and the memory of X-Gradient EG takes.
PAPER_TIME, PAPER_MEMORY = 130, 3.46
#: How many times the time of EG has to be for the claim to hold in part: half of the gradients that it adds.
CHEAPER = 16
NETWORKS = {name: training_cost.NETWORKS[name] for name in ("mlp", "alexnet", "resnet50")}
NETWORKS["mlp"] = NETWORKS["mlp"]._replace(batch=1024)


def run(*, quick: bool) -> lab.Result:
    names = ("mlp", "alexnet") if quick else tuple(NETWORKS)
    return result([measured(name, quick) for name in names])


@lab.remember
def measured(name: str, quick: bool) -> dict:
    """Processor seconds of a step and bytes of its tensors, references one after the other and all at once."""
    network = (training_cost.QUICK if quick else NETWORKS)[name]
    references = 4 if quick else REFERENCES
    steps = training_cost.Steps(network, references)
    found: dict = {"network": f"{network.label}, batch {network.batch}"}
    for eg in ("EG", "EG by default"):
        times = steps.times("double backward", eg, rounds=3, warm=1)
        found |= {f"{eg}: {step} s": statistics.median(times[step]) for step in times}
        found[f"{eg}: time"] = ratio(times, eg, "double backward")
    memory = {step: steps.memory(step) / 2**20 for step in ("double backward", "EG")}
    return found | {f"{step} MiB": size for step, size in memory.items()}


def result(found: list[dict]) -> lab.Result:
    lines = []
    for one in found:
        for eg, how in (("EG", "all references at once"), ("EG by default", "one after the other (the default)")):
            line = {"network without biases": f"{one['network']}, {how}"}
            line |= {"X-Gradient (s)": one[f"{eg}: double backward s"], "EG(32) (s)": one[f"{eg}: {eg} s"]}
            line["time ratio"] = one[f"{eg}: time"]
            if eg == "EG":
                line |= {"X-Gradient (MiB)": one["double backward MiB"], "EG(32) (MiB)": one["EG MiB"]}
                line["memory ratio"] = one["EG MiB"] / one["double backward MiB"]
            lines.append(line)
    table = pd.DataFrame(lines)
    time, memory = table["time ratio"], table["memory ratio"].dropna()
    said = "Reproduces" if time.min() >= PAPER_TIME else "In part" if time.min() >= CHEAPER else "Does not reproduce"
    lighter = "Reproduces" if memory.min() >= PAPER_MEMORY else "Does not reproduce"
    verdict = (
        f"{said}: a step with EG(32) takes {lab.span(time, '.0f')} times as long as one with X-Gradient, on one core "
        f"(paper, ResNet-50 on a GPU: {PAPER_TIME}). {lighter}: it takes {lab.span(memory, '.3g')} times the memory "
        f"beyond model and inputs (paper, whole process: {PAPER_MEMORY})."
    )
    note = (
        "A step is the forward pass, the loss with an L1 prior on attributions, and the backward pass; memory is what "
        "it needs beyond the model and its inputs. Seconds are the processor's, medians of interleaved rounds; ratios "
        "are medians of those within a round. The paper (ResNet-50, batch of two, one A100): 1.12 s and 14.57 GB with "
        "EG(32), 0.0086 s and 4.21 GB with X-Gradient. EG(32) takes 32 times as many gradients; how much of that shows "
        "in time depends on how busy one gradient keeps the machine."
    )
    return lab.Result(
        "Efficiency: training with EG(32) and with X-Gradient", table, verdict, note, "random inputs", "0"
    )
