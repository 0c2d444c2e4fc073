"""Rows per second on NHANES: X-Gradient beside shap's explainers, all against the mean of every feature.

    python benchmarks/tables.py --save

One network without biases (106 → 64 → 64 → 1, ReLU) is trained on the reconstructed NHANES I table; its log-odds are
explained. Each method takes turns with X-Gradient on the same rows at once; only ratios, in processor time, and
agreement are reported.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import shap
import torch
from ratios import interleaved, ratio
from torch import nn
from versions import versions

import axiograd
from axiograd.datasets import catalogue, table

RESULTS = Path(__file__).parent / "results" / "tables.md"
ROUNDS, WARM, REPEATED = 5, 10, 20


def trained(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    torch.manual_seed(0)
    width = x.shape[1]
    model = axiograd.models.get_model("xmlp", in_channels=width, hidden=(64, 64), num_classes=1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-4)
    for epoch in range(15):
        for rows in torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch)).split(256):
            loss = nn.functional.binary_cross_entropy_with_logits(model(x[rows])[:, 0], y[rows].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def methods(model: nn.Module, width: int) -> dict[str, tuple[int, Callable[[torch.Tensor], np.ndarray]]]:
    """By name: how many rows it is timed on, and what it gives for them."""
    zero = np.zeros((1, width), dtype=np.float32)

    def scores(rows: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(np.asarray(rows, dtype=np.float32))).numpy()[:, 0]

    ours, theirs = axiograd.XGradient(model), axiograd.IntegratedGradients(model, 64)
    kernel, permutation = shap.KernelExplainer(scores, zero), shap.PermutationExplainer(scores, zero, seed=0)
    gradient = shap.GradientExplainer(model, torch.from_numpy(zero))

    def quiet(work: Callable[[np.ndarray], np.ndarray]) -> Callable[[torch.Tensor], np.ndarray]:
        return lambda x: np.asarray(work(x.numpy()), dtype=np.float64).reshape(len(x), -1)

    return {
        "X-Gradient": (1000, lambda x: ours.attribute(x).double().numpy()),
        "IntegratedGradients, 64 steps": (100, lambda x: theirs.attribute(x).double().numpy()),
        "shap GradientExplainer, 200 samples": (
            20,
            lambda x: np.asarray(gradient.shap_values(x, nsamples=200, rseed=0)).reshape(len(x), -1),
        ),
        "shap PermutationExplainer, 10 permutations": (
            5,
            quiet(lambda x: permutation(x, max_evals=10 * 2 * width + 10, silent=True).values),
        ),
        "shap KernelExplainer, 2,260 evaluations": (
            3,
            quiet(lambda x: kernel.shap_values(x, nsamples=2 * width + 2048, silent=True, l1_reg=0)),
        ),
    }


def agreement(found: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Mean correlation of a row's attributions, and how many of its ten largest are the same."""
    correlation = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(found, exact, strict=True)])
    top = [
        len(set(np.argsort(-abs(a))[:10]) & set(np.argsort(-abs(b))[:10])) for a, b in zip(found, exact, strict=True)
    ]
    return float(correlation), float(np.mean(top))


def measure() -> dict[str, object]:
    path = next(entry.path for entry in catalogue() if entry.loader == "nhanes (reconstructed)")
    options = {"label": "y_survived15", "drop": ["seqn"], "missing": "mean"}
    file = path / "nhanes_reconstructed.csv.gz"
    train, held = table(file, **options), table(file, **options, split="validation")
    model = trained(train.inputs, train.targets)
    with torch.no_grad():
        accuracy = float(((model(held.inputs)[:, 0] > 0) == held.targets.bool()).double().mean())
    x = held.inputs
    rows, ratios, given = methods(model, x.shape[1]), {}, {}
    largest, ours = rows["X-Gradient"]
    for _ in range(WARM):  # the first calls check the proof more often
        ours(x[:largest])
    for name, (n, work) in rows.items():
        given[name] = work(x[:n])
        pair = {"X-Gradient": partial(repeat, ours, x[:n]), "other": partial(work, x[:n])}
        times = interleaved(pair, ROUNDS, clock=time.process_time)
        ratios[name] = ratio(times, "other", "X-Gradient") * REPEATED
        if name == "X-Gradient":
            fastest = statistics.median(times["other"]) / n
    exact = given["X-Gradient"]
    with torch.no_grad():
        score = model(x).double().numpy()[:, 0]
    found = {}
    for name, values in given.items():
        correlation, top = agreement(values, exact[: len(values)])
        gap = np.abs(values.sum(1) - score[: len(values)]).mean() / np.sqrt(np.mean(score**2))
        found[name] = {
            "times_slower": ratios[name],
            "correlation": correlation,
            "same_of_ten": top,
            "completeness_gap": float(gap),
            "rows": len(values),
        }
    about = {"accuracy": accuracy, "rows_per_second": 1 / fastest, "features": x.shape[1]}
    return {**about, "methods": found, "versions": versions(shap=shap.__version__)}


def repeat(work: Callable[[torch.Tensor], np.ndarray], x: torch.Tensor) -> None:
    """A few rows take less than the clock can tell."""
    for _ in range(REPEATED):
        work(x)


def page(found: dict) -> str:
    lines = [
        "# Tables: X-Gradient beside shap",
        "",
        (
            f"A network without biases ({found['features']} → 64 → 64 → 1) on the reconstructed NHANES I table, "
            f"accuracy {found['accuracy']:.1%} on held-out rows; the log-odds of survival, baseline: every feature at "
            f"its mean. Processor time in that of X-Gradient on the same rows at once: medians of {ROUNDS} interleaved "
            "rounds, one thread."
        ),
        "",
        "| method | rows | time | correlation with X-Gradient | same among the ten largest | completeness gap |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in found["methods"].items():
        times = "1" if name == "X-Gradient" else f"{row['times_slower']:,.0f} ×"
        lines.append(
            f"| {name} | {row['rows']:,} | {times} | {row['correlation']:.3f} | {row['same_of_ten']:.1f} "
            f"| {row['completeness_gap']:.1e} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            (
                f"X-Gradient: {found['rows_per_second']:,.0f} rows per second in this run. Kernel and Permutation "
                "estimate Shapley values, which are another attribution than Integrated Gradients where features "
                "interact, so that agreement below 1 is not an error of either; GradientExplainer estimates "
                "Integrated Gradients."
            ),
            "",
            f"`python benchmarks/tables.py --save`, seed 0; {found['versions']}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = measure()
    print(json.dumps(found, indent=2))
    if arguments.save:
        RESULTS.with_suffix(".json").write_text(json.dumps(found, indent=2) + "\n")
        RESULTS.write_text(page(found))


if __name__ == "__main__":
    main()
