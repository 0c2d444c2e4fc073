"""Small transformers trained from scratch, and how well attributions of them find what their answers rest on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import axiograd
from axiograd.datasets import TensorData, add_decoy, fashion_mnist, shapes, tiny_imagenet
from axiograd.experiments.docstrings import FAMILIES, LONGEST, PADDING, VOCABULARY, docstrings
from axiograd.experiments.loop import train_epochs
from axiograd.models import TextEncoder, ViT

BATCH, LEARNING_RATE, STEPS, WIDTH, EPOCHS = 64, 5e-3, 50, 48, 8
#: Regular; lifted before it is trained; built to be homogeneous.
FORMS = ("regular", "lifted", "built")
#: Training samples that no network is trained with: what is chosen is chosen by them.
HELD_OUT = 500
#: Shares of patches or words that are taken out or put back.
FRACTIONS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Set:
    """Inputs and classes for training and testing, and the transformer that suits them."""

    name: str
    train: TensorData
    test: TensorData
    build: Callable[[bool], nn.Module]
    epochs: int
    #: Side of a patch; None for words.
    patch: int | None

    def call(self, x: Tensor) -> dict[str, Tensor]:
        """The arguments of the network."""
        return {"x": x} if self.patch else {"input_ids": x, "attention_mask": (x != PADDING).long()}

    @property
    def layer(self) -> str | None:
        """What is attributed to: pixels, or the words' embeddings."""
        return None if self.patch else "embedding"

    def tokens(self, attribution: Tensor) -> Tensor:
        """One number per patch or word."""
        if self.patch is None:
            return attribution.sum(2)
        n, channels, height, width = attribution.shape
        patches = attribution.reshape(n, channels, height // self.patch, self.patch, width // self.patch, self.patch)
        return patches.sum((1, 3, 5)).flatten(1)

    def without(self, x: Tensor, out: Tensor) -> Tensor:
        """The input without some of its tokens, [n, tokens] booleans: patches of the mean colour, words left out."""
        if self.patch is None:
            return x.masked_fill(out, PADDING)
        side = x.shape[-1] // self.patch
        mask = out.reshape(len(x), 1, side, side).repeat_interleave(self.patch, 2).repeat_interleave(self.patch, 3)
        return x.masked_fill(mask, 0.0)


@cache
def load(name: str, n_train: int, n_test: int, *, held_out: bool = False) -> Set:
    """A set by its name; images have mean 0 and standard deviation 1 over the training set.

    With `held_out`, samples of the training set that come after the first `n_train` take the place of the test set.
    """
    parts = ("train", slice(n_train)), ("train", slice(n_train, n_train + n_test)) if held_out else ("", slice(n_test))
    if name == "docstrings":
        texts = dict(zip(("train", ""), docstrings(), strict=True))
        some = [
            TensorData(texts[split].ids[rows], texts[split].targets[rows], name)
            for split, part in parts
            for rows in [torch.randperm(len(texts[split]), generator=torch.Generator().manual_seed(0))[part]]
        ]
        build = lambda x: TextEncoder(len(FAMILIES), VOCABULARY, homogeneous=x, dim=WIDTH, depth=2, longest=LONGEST)  # noqa: E731
        return Set(name, some[0], some[1], build, EPOCHS, None)
    if name == "tiny-imagenet-20":
        train, test = (_stacked(split or "val", part) for split, part in parts)
        patch, size, channels, classes, epochs = 8, 64, 3, 20, EPOCHS
    elif name == "shapes":
        train, test = (shapes(split or "test").select(part) for split, part in parts)
        patch, size = 4, train.inputs.shape[-1]
        channels, classes, epochs = train.inputs.shape[1], int(train.targets.max()) + 1, 3
    else:
        train, test = (fashion_mnist(split or "test").select(part) for split, part in parts)
        if name == "decoy-fashion-mnist":
            train, test = add_decoy(train, informative=True), add_decoy(test, informative=False, seed=1)
        patch, size, channels, classes, epochs = 4, 28, 1, 10, EPOCHS
    mean, std = train.inputs.mean(), train.inputs.std()
    train, test = (TensorData((d.inputs - mean) / std, d.targets, name, shortcuts=d.shortcuts) for d in (train, test))

    def vit(homogeneous: bool) -> nn.Module:
        return ViT(classes, channels, homogeneous=homogeneous, image_size=size, patch=patch, dim=WIDTH, depth=2)

    return Set(name, train, test, vit, epochs, patch)


def _stacked(split: str, part: slice) -> TensorData:
    files = tiny_imagenet(split)
    rows = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))[part].tolist()
    items = [files[i] for i in rows]
    return TensorData(torch.stack([x[0] for x in items]), torch.tensor([int(x[1]) for x in items]), "tiny-imagenet-20")


def fitted(data: Set, seed: int, form: str, weight: float = 0.0) -> nn.Module:
    """A network trained with cross-entropy, and with a prior against attribution to what gives the class away."""
    torch.manual_seed(seed)
    model = data.build(form == "built")
    if form == "lifted":
        model = lifted(model.eval(), data).train()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.01)
    objective = axiograd.AttributionLoss(
        cross_entropy, axiograd.priors.RightReasons(), weight, method=partial(axiograd.XGradient, layer=data.layer)
    )

    def loss(x: Tensor, y: Tensor, shortcut: Tensor | None = None) -> Tensor:
        if not weight or shortcut is None:
            value: Tensor = cross_entropy(model(**data.call(x)), y)
            return value
        mask = shortcut if data.patch else shortcut[:, :, None].expand(-1, -1, WIDTH)
        inputs: Any = x if data.patch else data.call(x)
        terms: axiograd.LossTerms = objective(model, inputs, y, mask=mask)
        return terms.total

    train_epochs(data.train, loss, optimizer, epochs=data.epochs, batch=BATCH, seed=seed, clip=1.0)
    return model.eval()


@torch.no_grad()
def answers(model: Callable[..., Tensor], data: Set, x: Tensor) -> Tensor:
    """Logits."""
    return torch.cat([model(**data.call(part)) for part in x.split(250)])


def per_cent(model: Callable[..., Tensor], data: Set, test: TensorData | None = None) -> float:
    """Of the test inputs that are classified rightly."""
    test = data.test if test is None else test
    return 100 * float((answers(model, data, test.inputs).argmax(1) == test.targets).float().mean())


def lifted(model: nn.Module, data: Set) -> nn.Module:
    """The lift at the scale of the training inputs, from pixels or from embeddings on."""
    x = data.train.inputs[:64]
    if data.patch:
        return axiograd.to_xdnn(model, x, how="lift").model
    call = data.call(x)
    embeds = model.get_submodule("embedding")(x).detach()
    example = {"inputs_embeds": embeds, "attention_mask": call["attention_mask"]}
    inside = axiograd.to_xdnn(model, example, how="lift").model
    return _FromIds(inside, model.get_submodule("embedding"))


class _FromIds(nn.Module):
    """A function of embeddings as one of words."""

    def __init__(self, inside: nn.Module, embedding: nn.Module) -> None:
        super().__init__()
        self.inside, self.embedding = inside, embedding

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found: Tensor = self.inside(inputs_embeds=self.embedding(input_ids), attention_mask=attention_mask)
        return found


def judged(model: nn.Module, data: Set, n: int, *, certified: bool) -> dict[str, Any]:
    """Deletion, insertion and completeness of every method that a network takes, on the predicted class."""
    x = data.test.inputs[:n]
    target = answers(model, data, x).argmax(1)
    methods: dict[str, axiograd.Attribution] = {
        "IG (50)": axiograd.IntegratedGradients(model, STEPS, internal_batch_size=250, layer=data.layer),
        "Input×Gradient": axiograd.InputXGradient(model, layer=data.layer),
    }
    if certified:
        methods = {"X-Gradient": axiograd.XGradient(model, layer=data.layer), **methods}
    found: dict[str, Any] = {}
    maps: dict[str, Tensor] = {}
    # Embeddings of zero, from where X-Gradient starts: a baseline in their dimensions, and not in those of words.
    baseline = torch.zeros(1, 1, 1) if data.layer else None
    for name, method in methods.items():
        inputs = data.call(x) if data.layer else x
        attribution = method.attribute(inputs, target, baselines=baseline)
        maps[name] = data.tokens(attribution)
        relative = method.completeness(inputs, target, baselines=baseline).relative
        found[name] = {"completeness": float(relative.mean())}
    inner = getattr(model, "model", model)
    if hasattr(inner, "blocks"):
        maps["gradient × rollout"] = rollout(model, data, x, target)
    maps["random order"] = torch.rand(maps["IG (50)"].shape, generator=torch.Generator().manual_seed(0))
    for name, scores in maps.items():
        found.setdefault(name, {}).update(masked(model, data, x, target, scores))
    return found


def masked(model: nn.Module, data: Set, x: Tensor, target: Tensor, scores: Tensor) -> dict[str, float]:
    """Mean probability of the class without the highest-ranked tokens, and with these alone, at equal numbers."""
    there = (x != PADDING) if data.patch is None else torch.ones_like(scores, dtype=torch.bool)
    rank = scores.masked_fill(~there, -torch.inf).argsort(1, descending=True).argsort(1)
    count = there.sum(1, keepdim=True)

    def probability(out: Tensor) -> float:
        logits = answers(model, data, data.without(x, out & there))
        return float(logits.softmax(1).gather(1, target[:, None]).mean())

    # Never none and never all of them: a text without a word has no answer.
    out = [rank < (f * count).round().clamp_min(1).minimum(count - 1) for f in FRACTIONS]
    return {
        "deletion": 100 * sum(map(probability, out)) / len(FRACTIONS),
        "insertion": 100 * sum(probability(~top) for top in out) / len(FRACTIONS),
    }


def rollout(model: nn.Module, data: Set, x: Tensor, target: Tensor) -> Tensor:
    """Attention weights times their positive gradients, multiplied over the layers, as Chefer et al. (2021) do."""
    blocks: Any = getattr(model, "model", model).blocks
    for block in blocks:
        block.attention.keeps = True
    try:
        score = model(**data.call(x)).gather(1, target[:, None]).sum()
        weights = [block.attention.weights for block in blocks]
        gradients = torch.autograd.grad(score, weights)
    finally:
        for block in blocks:
            block.attention.keeps, block.attention.weights = False, None
    total = torch.eye(weights[0].shape[-1]).expand(len(x), -1, -1)
    for weight, gradient in zip(weights, gradients, strict=True):
        total = total + (weight * gradient).clamp_min(0).mean(1).detach() @ total
    there = (x != PADDING).float() if data.patch is None else torch.ones(total.shape[:2])
    return (total * there[:, :, None]).sum(1) / there.sum(1, keepdim=True)


def transformer(data: Set, seed: int, n: int, form: str) -> Mapping[str, Any]:
    """One network: its accuracy, what its attributions are worth, and what a lift leaves of a regular one."""
    model = fitted(data, seed, form)
    found: dict[str, Any] = {"accuracy": per_cent(model, data)}
    found["judged"] = judged(model, data, n, certified=form != "regular")
    if form == "regular":
        found["lifted_accuracy"] = per_cent(lifted(model, data), data)
    return found


def shortcut(data: Set, clean: Set, seed: int, weight: float) -> Mapping[str, Any]:
    """The built network on inputs that give their class away, with and without a prior against that."""
    model = fitted(data, seed, "built", weight)
    return {"misleading": per_cent(model, data), "clean": per_cent(model, data, clean.test)}


@cache
def giving_away(name: str, n_train: int, n_test: int, *, held_out: bool = False) -> tuple[Set, Set]:
    """A set whose training inputs give the class away and whose test inputs lie about it, and the set without that."""
    clean = load(name, n_train, n_test, held_out=held_out)
    if clean.patch:
        marked = load(f"decoy-{name}", n_train, n_test, held_out=held_out)
        return marked, clean
    from dataclasses import replace

    from axiograd.experiments.docstrings import GIVE_AWAY, Texts

    def marked_texts(data: TensorData, seed: int, *, informative: bool) -> TensorData:
        texts = Texts(data.inputs, data.targets).give_away(seed, informative=informative)
        own = (texts.ids >= GIVE_AWAY[0]) & (texts.ids <= GIVE_AWAY[-1])
        return TensorData(texts.ids, texts.targets, name, shortcuts=own)

    train, test = marked_texts(clean.train, 0, informative=True), marked_texts(clean.test, 1, informative=False)
    return replace(clean, train=train, test=test), clean
