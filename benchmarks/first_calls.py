"""What a call of X-Gradient costs from the first one on, beside Captum's InputXGradient: means, not minima.

    python benchmarks/first_calls.py > benchmarks/results/first-calls.md

One thread, processor time, calls interleaved with Captum's. "first" is the first call on a model, which proves it;
"kept" the mean of calls 2 to 13 of one object; "new" the mean of twelve objects on a known model; "certify" is in calls
of a kept object.
"""

import subprocess
import time
import warnings
from collections.abc import Callable
from statistics import mean

import captum
import torch
from captum.attr import InputXGradient, IntegratedGradients
from torch import Tensor, nn

import axiograd

CALLS = 12


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def interleaved(ours: Callable[[], object], theirs: Callable[[], object], calls: int) -> tuple[float, float]:
    """Mean seconds of both."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(calls)]
    return mean(a for a, _ in pairs), mean(b for _, b in pairs)


def row(name: str, model: nn.Module, x: Tensor, *, calls: int = CALLS) -> str:
    model.eval()
    captums = InputXGradient(model)

    def theirs() -> object:
        return captums.attribute(x, target=0)

    for _ in range(3):
        theirs()
    base = mean(seconds(theirs) for _ in range(3))
    method = axiograd.XGradient(model)
    first = seconds(lambda: method.attribute(x, target=0))
    kept, beside_kept = interleaved(lambda: method.attribute(x, target=0), theirs, calls)
    new, beside_new = interleaved(lambda: axiograd.XGradient(model).attribute(x, target=0), theirs, calls)
    certify = seconds(lambda: axiograd.certify(model, x))
    numbers = (first / base, kept / beside_kept, new / beside_new, certify / kept)
    return f"| {name} | {beside_kept * 1e3:.2f} | " + " | ".join(f"{n:.2f}" for n in numbers) + " |"


def steps_row(name: str, model: nn.Module, x: Tensor, steps: int, internal: int | None) -> str:
    """Integrated Gradients beside Captum's, for the same steps."""
    model.eval()
    ours, captums = axiograd.IntegratedGradients(model, n_steps=steps), IntegratedGradients(model)

    def theirs() -> object:
        return captums.attribute(x, target=0, n_steps=steps, internal_batch_size=internal)

    ours.attribute(x, target=0)
    theirs()
    a, b = interleaved(lambda: ours.attribute(x, target=0), theirs, 3)
    return f"| {name} | {steps} | {internal or 'all'} | {a / b:.2f} |"


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    layers = (nn.Linear(20, 64, bias=False), nn.ReLU(), nn.Linear(64, 64, bias=False), nn.ReLU())
    mlp = nn.Sequential(*layers, nn.Linear(64, 3, bias=False))
    axiograd.XGradient(nn.Linear(3, 1, bias=False)).attribute(torch.ones(2, 3))  # loads what every trace needs
    alexnet, resnet = axiograd.models.get_model("xalexnet"), axiograd.models.get_model("xfixup_resnet50")
    print("# X-Gradient from the first call, in calls of Captum's InputXGradient\n")
    print("| network | Captum, ms | first | kept | new | certify |\n|---|---|---|---|---|---|")
    print(row("MLP 20-64-64-3, batch 1", mlp, torch.randn(1, 20), calls=300))
    print(row("X-AlexNet, batch 8", alexnet, torch.randn(8, 3, 224, 224)))
    print(row("X-Fixup-ResNet-50, batch 2", resnet, torch.randn(2, 3, 224, 224)))
    print("\n# Integrated Gradients, in calls of Captum's\n")
    print("| network | steps | Captum's internal batch | ours |\n|---|---|---|---|")
    print(steps_row("MLP 20-64-64-3, batch 64", mlp, torch.randn(64, 20), 128, None))
    print(steps_row("X-AlexNet, batch 2", alexnet, torch.randn(2, 3, 224, 224), 32, 64))
    print(steps_row("X-Fixup-ResNet-50, batch 1", resnet, torch.randn(1, 3, 224, 224), 16, None))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    print(
        f"\n`python benchmarks/first_calls.py`, seed 0, random inputs, one thread, processor time; commit "
        f"{commit.stdout.strip()}, torch {torch.__version__}, captum {captum.__version__}."
    )


if __name__ == "__main__":
    main()
