"""Transformers as X-DNNs: what being homogeneous costs them, and what their attributions are worth.

A vision transformer and a text encoder are trained from scratch as they are usually built (regular), lifted and then
trained, and built so that they are homogeneous. Attributions are judged by deletion and insertion with equal numbers of
patches or words, and a prior takes a shortcut away from the built ones.
"""

import warnings
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import axiograd
from axiograd.priors import RightReasons
from experiments import lab, loops
from experiments.transformer_data import PADDING, WIDTH, Set, load

BATCH, LEARNING_RATE, STEPS, EPOCHS, SEEDS = 64, 5e-3, 50, 8, 3
FORMS = {"regular": "regular", "lifted": "lifted, then trained", "built": "built so"}
DATA = ("Fashion-MNIST", "Tiny ImageNet, 20 classes", "docstrings")
#: Shares of patches or words that are taken out or put back.
FRACTIONS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
#: λ that are tried with the first seed on held-out samples, by the data whose shortcut a prior takes away.
WEIGHTS = {"Fashion-MNIST": (10.0, 100.0), "docstrings": (30.0, 300.0)}
TRAIN, TEST, HELD_OUT, JUDGED = 2000, 1000, 500, 60


def fitted(data: Set, seed: int, form: str, epochs: int, weight: float = 0.0) -> nn.Module:
    """A network trained with cross-entropy, and with a prior against attribution to what gives the class away."""
    torch.manual_seed(seed)
    model = data.build(homogeneous=form == "built")
    if form == "lifted":
        model = lifted(model.eval(), data).train()
    method = partial(axiograd.XGradient, layer=data.layer)
    objective = axiograd.AttributionLoss(F.cross_entropy, RightReasons(), weight, method=method)

    def loss(x: Tensor, y: Tensor, *shortcut: Tensor) -> Tensor:
        if not weight:
            return F.cross_entropy(model(**data.call(x)), y)
        mask = shortcut[0] if data.patch else shortcut[0][:, :, None].expand(-1, -1, WIDTH)
        return objective(model, x if data.patch else data.call(x), y, mask=mask).total

    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.01)
    loops.train(data.train, loss, optimizer, epochs=epochs, batch=BATCH, seed=seed, clip=1.0)
    return model.eval()


class FromIds(nn.Module):
    """A function of embeddings as one of words."""

    def __init__(self, inside: nn.Module, embedding: nn.Module) -> None:
        super().__init__()
        self.inside, self.embedding = inside, embedding

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.inside(inputs_embeds=self.embedding(input_ids), attention_mask=attention_mask)


def lifted(model: nn.Module, data: Set) -> nn.Module:
    """The lift at the scale of the training inputs, from pixels or from embeddings on."""
    x = data.train.inputs[:64]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what a lift loses is measured
        if data.patch:
            return axiograd.to_xdnn(model, x, how="lift").model
        embedding = model.get_submodule("embedding")
        example = {"inputs_embeds": embedding(x).detach(), "attention_mask": data.call(x)["attention_mask"]}
        return FromIds(axiograd.to_xdnn(model, example, how="lift").model, embedding)


@torch.no_grad()
def logits(model: nn.Module, data: Set, x: Tensor) -> Tensor:
    return torch.cat([model(**data.call(part)) for part in x.split(250)])


def accuracy(model: nn.Module, data: Set) -> float:
    """Per cent of the test inputs."""
    return 100 * float((logits(model, data, data.test.inputs).argmax(1) == data.test.targets).float().mean())


def judged(model: nn.Module, data: Set, n: int, form: str) -> dict[str, dict[str, float]]:
    """Deletion, insertion and completeness of every method that a network takes, on the predicted class."""
    x = data.test.inputs[:n]
    target, inputs = logits(model, data, x).argmax(1), data.call(x) if data.layer else x
    methods = {
        "IG (50)": axiograd.IntegratedGradients(model, STEPS, internal_batch_size=250, layer=data.layer),
        "Input×Gradient": axiograd.InputXGradient(model, layer=data.layer),
    }
    if form != "regular":
        methods = {"X-Gradient": axiograd.XGradient(model, layer=data.layer), **methods}
    found: dict[str, dict[str, float]] = {}
    maps: dict[str, Tensor] = {}
    # Embeddings of zero, from where X-Gradient starts: a baseline in their dimensions, and not in those of words.
    baseline = torch.zeros(1, 1, 1) if data.layer else None
    for name, method in methods.items():
        maps[name] = data.tokens(method.attribute(inputs, target, baselines=baseline))
        relative = method.completeness(inputs, target, baselines=baseline).relative
        found[name] = {"completeness error": float(relative.mean())}
    if hasattr(getattr(model, "model", model), "blocks"):
        maps["gradient × rollout"] = rollout(model, data, x, target)
    maps["random order"] = torch.rand(maps["IG (50)"].shape, generator=torch.Generator().manual_seed(0))
    return {name: masked(model, data, x, target, scores) | found.get(name, {}) for name, scores in maps.items()}


def masked(model: nn.Module, data: Set, x: Tensor, target: Tensor, scores: Tensor) -> dict[str, float]:
    """Mean probability of the class without the highest-ranked tokens, and with these alone, at equal numbers."""
    there = (x != PADDING) if data.patch is None else torch.ones_like(scores, dtype=torch.bool)
    rank = scores.masked_fill(~there, -torch.inf).argsort(1, descending=True).argsort(1)
    count = there.sum(1, keepdim=True)

    def probability(out: Tensor) -> float:
        found = logits(model, data, data.without(x, out & there)).softmax(1)
        return 100 * float(found.gather(1, target[:, None]).mean()) / len(FRACTIONS)

    # Never none and never all of them: a text without a word has no answer.
    out = [rank < (f * count).round().clamp_min(1).minimum(count - 1) for f in FRACTIONS]
    return {"deletion ↓": sum(map(probability, out)), "insertion ↑": sum(probability(~top) for top in out)}


def rollout(model: nn.Module, data: Set, x: Tensor, target: Tensor) -> Tensor:
    """Attention weights times their positive gradients, multiplied over the layers, as Chefer et al. (2021) do."""
    attentions = [block.attention for block in getattr(model, "model", model).blocks]
    for attention in attentions:
        attention.keeps = True
    score = model(**data.call(x)).gather(1, target[:, None]).sum()
    weights = [attention.weights for attention in attentions]
    gradients = torch.autograd.grad(score, weights)
    for attention in attentions:
        attention.keeps, attention.weights = False, None
    total = torch.eye(weights[0].shape[-1]).expand(len(x), -1, -1)
    for weight, gradient in zip(weights, gradients, strict=True):
        total = total + (weight * gradient).clamp_min(0).mean(1).detach() @ total
    there = (x != PADDING).float() if data.patch is None else torch.ones(total.shape[:2])
    return (total * there[:, :, None]).sum(1) / there.sum(1, keepdim=True)


@lab.remember
def trained(name: str, form: str, seed: int, quick: bool) -> dict[str, Any]:
    """One network: its accuracy, what its attributions are worth, and what a lift leaves of a regular one."""
    data = load(name, *((100, 40) if quick else (TRAIN, TEST)))
    model = fitted(data, seed, form, 1 if quick else EPOCHS)
    found: dict[str, Any] = {"accuracy": accuracy(model, data)}
    if form == "regular":
        found["lifted"] = accuracy(lifted(model, data), data)
    return {**found, "judged": judged(model, data, 2 if quick else JUDGED, form)}


@lab.remember
def shortcut(name: str, weight: float, seed: int, held_out: bool) -> dict[str, float]:
    """The built network on inputs that give their class away: accuracy where that misleads, and without it."""
    n = HELD_OUT if held_out else TEST
    data = load(name, TRAIN, n, held_out=held_out, shortcut=True)
    model = fitted(data, seed, "built", EPOCHS, weight)
    return {"misleading": accuracy(model, data), "clean": accuracy(model, load(name, TRAIN, n, held_out=held_out))}


def run(*, quick: bool) -> lab.Result:
    """Every network of every seed, then the shortcuts with the best λ."""
    found = [
        {"data": name, "form": form, **trained(name, form, seed, quick)}
        for name in (("docstrings",) if quick else DATA)
        for form in FORMS
        for seed in range(1 if quick else SEEDS)
    ]
    shortcuts = []
    for name, weights in {} if quick else WEIGHTS.items():
        best = max(weights, key=lambda weight, name=name: shortcut(name, weight, 0, True)["misleading"])
        shortcuts += [
            {"data": name, "λ": weight, **shortcut(name, weight, seed, False)}
            for weight in (0.0, best)
            for seed in range(SEEDS)
        ]
    return summary(found, shortcuts)


def summary(runs: list[dict[str, Any]], shortcuts: list[dict[str, Any]]) -> lab.Result:
    """A line per set, form and method; the shortcuts stand below."""
    lines = []
    for run in runs:
        key = {"data": run["data"], "network": FORMS[run["form"]], "accuracy": run["accuracy"]}
        lines += [{**key, "method": method, **values} for method, values in run["judged"].items()]
        if run["form"] == "regular":
            lines.append({**key, "network": "lifted after training", "accuracy": run["lifted"], "method": ""})
    table = loops.over_seeds(lines, by=["data", "network", "method"]).drop(columns="completeness error ±")
    table = table[["data", "network", "method", *table.columns.drop(["data", "network", "method"])]]
    names = list(table["data"].unique())
    found = table.drop_duplicates(["data", "network"]).set_index(["data", "network"])["accuracy"]
    words = [f"{data} {', '.join(f'{form} {found[data, form]:.1f}' for form in FORMS.values())}" for data in names]
    said = []
    for row in loops.over_seeds(shortcuts, by=["data", "λ"]).to_dict("records") if shortcuts else ():
        values = [f"{row[name]:.1f} ± {row[f'{name} ±']:.1f}" for name in ("misleading", "clean")]
        said.append(f"{row['data']}, λ = {row['λ']:g}: accuracy where it misleads {values[0]}, without it {values[1]}.")
    note = "\n".join([NOTE, "", "Shortcuts, networks built so:", *said]) if said else NOTE
    verdict = f"Accuracy in per cent: {'; '.join(words)}."
    return lab.Result("Transformers as X-DNNs", table, verdict, note, ", ".join(names), "0 to 2")


NOTE = """\
Accuracy in per cent; mean ± standard deviation of the seeds. Deletion and insertion: probability of the predicted class
in per cent, mean over 10, 20, 30, 50, 70 and 90 % of the patches or words taken out (deletion, lower is better) or
alone left (insertion, higher is better), in the order of the attribution, equally many for every method. Patches
become the mean colour, words are masked. The completeness error is relative to the root mean square of F(x) − F(0).
Lifts are made at the scale of the training inputs, of a trained network (lifted after training) or of one that is
trained then. Gradient × rollout does not add up. Networks are small and trained briefly on two thousand samples:
compare within a set, not with what such networks can reach. λ of the priors was chosen among two with the first seed on
500 further samples of the training set, and so were the learning rate, the same for all, and the form of the positions
of the networks built so. The texts are docstrings of Python's standard library; their shortcut is a word at a random
place that names the class, that of images a patch in a corner."""
