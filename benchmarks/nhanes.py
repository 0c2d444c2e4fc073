"""Figure 1's networks trained many at a time against a loop over models, per model and epoch.

    python benchmarks/nhanes.py --save

Processor time with one thread; with more, wall-clock time: a stack of models keeps several cores busy, the small
products of one model do not. Both train on the same subsamples from the same weights, and both compute the validation
ROC-AUC after every epoch. The loop is `train_one` of the tests' helpers: `AttributionLoss`,
`torch.optim.Adam`, and scikit-learn's `roc_auc_score`, or our own, which is faster; what a model costs once (X-Gradient
certifies it) is spread over its epochs. Rounds alternate; medians.
"""

import argparse
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from sklearn.metrics import roc_auc_score

from axiograd.errors import DataMissingError
from axiograd.experiments.nhanes.data import load, subsamples
from axiograd.experiments.nhanes.networks import METHODS, Networks
from axiograd.experiments.nhanes.training import AT_ONCE, generator, initial, train
from axiograd.experiments.records import Records, markdown_table, provenance

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

from support.nhanes_loop import train_one

RESULTS = Path(__file__).parent / "results"
CASES = [(name, 1) for name in METHODS] + [("eg", 8), ("eg", 32)]
WEIGHT = 1.0


def scikit_learn(scores, targets):
    return float(roc_auc_score(targets.numpy(), scores.numpy()))


def clock():
    """Other programs do not count, where that can be told."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def batched(data, name, references, epochs):
    """Seconds per model and epoch."""
    method, seeds = METHODS[name], range(len(data))
    networks = Networks.stack([initial(method, data.train.shape[2], seed) for seed in seeds])
    options = {"method": method, "weight": WEIGHT, "references": references}
    start = clock()
    train(networks, data, **options, generators=[generator(seed) for seed in seeds], epochs=epochs)
    return (clock() - start) / epochs / len(data)


def one_by_one(data, name, references, epochs, **options):
    """Seconds per model and epoch."""
    method = METHODS[name]
    models = [initial(method, data.train.shape[2], seed) for seed in range(len(data))]
    start = clock()
    for i, model in enumerate(models):
        rows = (data.train[i], data.train_targets[i], data.val[i], data.val_targets[i])
        options |= {"method": method, "weight": WEIGHT, "references": references, "generator": generator(i)}
        train_one(model, *rows, epochs=epochs, **options)
    return (clock() - start) / epochs / len(data)


def measure(data, few, name, references, rounds, epochs):
    """Milliseconds; the loop trains fewer models, each as long as in the experiment, where references are few."""
    ways = {
        "batched": lambda epochs: batched(data, name, references, epochs),
        "loop": lambda epochs: one_by_one(few, name, references, epochs, auc=scikit_learn),
        "loop_own_auc": lambda epochs: one_by_one(few, name, references, epochs),
    }
    for way in ways.values():
        way(2)  # warms up
    length = max(4, epochs // references)
    times = [{key: way(length) for key, way in ways.items()} for _ in range(rounds)]
    return {key: statistics.median(found[key] for found in times) * 1e3 for key in ways}


def render(records):
    header = ("model", "loop, ms", "loop with our ROC-AUC, ms", "many at a time, ms", "ratio", "ratio, our ROC-AUC")
    rows = []
    for piece in records.pieces:
        v, name, references = piece.values, piece.key["model"], piece.key["references"]
        label = f"EG({references})" if name == "eg" else METHODS[name].label
        numbers = (v["loop"], v["loop_own_auc"], v["batched"])
        ratios = (v["loop"] / v["batched"], v["loop_own_auc"] / v["batched"])
        rows.append((label, *(f"{x:.2f}" for x in numbers), *(f"{x:.1f}" for x in ratios)))
    return f"# Training many networks at a time\n\n{markdown_table(header, rows)}\n\n{provenance(records)}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="models at a time")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}/nhanes.json and .md")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    try:
        table = load("real")
    except DataMissingError:
        table = load("quick")
    data, few = subsamples(table, range(options.at_once)), subsamples(table, range(2))
    folder = RESULTS if options.save else Path(tempfile.mkdtemp())
    settings = {
        "rounds": options.rounds,
        "epochs": options.epochs,
        "at_once": options.at_once,
        "threads": options.threads,
    }
    command = shlex.join(["python", "benchmarks/nhanes.py", *sys.argv[1:]])
    records = Records(folder / "nhanes.json", command=command, data=table.name, settings=settings)
    for name, references in CASES:
        print(f"{name}, {references}", file=sys.stderr, flush=True)
        values = measure(data, few, name, references, options.rounds, options.epochs)
        records.add(values, model=name, references=references)
    if options.save:
        (folder / "nhanes.md").write_text(render(records))
    print(render(records))


if __name__ == "__main__":
    main()
