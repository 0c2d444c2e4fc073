"""Held gradients against other attributions on small transformers for texts and images.

Tokens (words or patches) are taken out, or put back, in the order of their attributions, equally many for every method.
"""

import ast
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from captum.attr import LayerIntegratedGradients
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import axiograd
from axiograd.datasets import TensorData, fashion_mnist, tiny_imagenet
from axiograd.models import TextEncoder, ViT
from experiments import lab, loops

WIDTH, DEPTH, HEADS = 48, 2, 4
BATCH, LEARNING_RATE, EPOCHS, TRAIN, TEST, JUDGED = 64, 3e-3, 8, 3000, 1000, 40
#: Shares of the tokens that are taken out or put back.
FRACTIONS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
PADDING, UNKNOWN, FIRST, LONGEST, VOCABULARY = 0, 1, 2, 33, 3000
#: Families of modules of Python's standard library by their folder or file.
FAMILIES = (
    "asyncio concurrent multiprocessing threading.py subprocess.py selectors.py",
    "email http urllib xmlrpc socketserver.py smtplib.py ftplib.py imaplib.py",
    "unittest doctest.py pdb.py trace.py cProfile.py bdb.py",
    "tkinter idlelib turtle.py curses",
    "decimal.py _pydecimal.py fractions.py statistics.py random.py numbers.py datetime.py",
    "zipfile.py tarfile.py shutil.py pathlib.py tempfile.py gzip.py os.py mailbox.py",
)


# ------------------------------------------------------------------------------------------------------------ the data


def docstrings(tree: ast.AST) -> Iterator[str]:
    """What a file says about itself."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    yield from (ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds))


def code(tree: ast.AST) -> Iterator[str]:
    """Its functions, without docstrings and comments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.unparse(node.body[1:] if ast.get_docstring(node) else node.body)


@cache
def texts(of: Callable[[ast.AST], Iterator[str]]) -> tuple[TensorData, TensorData]:
    """Numbers of words behind a first token, padded on the right; every fourth file is for testing."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, list[tuple[list[str], int]]] = {"train": [], "test": []}
    for family, places in enumerate(FAMILIES):
        roots = [library / place for place in places.split()]
        files = sorted(path for root in roots for path in (root.rglob("*.py") if root.is_dir() else [root]))
        for number, path in enumerate(path for path in files if "test" not in path.parts):
            for text in of(ast.parse(path.read_bytes())):
                words = re.findall(r"[a-z]+", text.lower())
                pieces = [words[i : i + LONGEST - 1] for i in range(0, len(words), LONGEST - 1)]
                found["test" if number % 4 == 3 else "train"] += [(w, family) for w in pieces if len(w) > 3]
    counts = Counter(word for words, _ in found["train"] for word in words)
    numbers = {word: i for i, (word, _) in enumerate(counts.most_common(VOCABULARY - 3), start=3)}

    def numbered(part: list[tuple[list[str], int]]) -> TensorData:
        rows = [[FIRST, *(numbers.get(word, UNKNOWN) for word in words)] for words, _ in part]
        ids = torch.tensor([row + [PADDING] * (LONGEST - len(row)) for row in rows])
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        return TensorData(ids[order], torch.tensor([family for _, family in part])[order], of.__name__)

    return numbered(found["train"]), numbered(found["test"])


@cache
def images(name: str) -> tuple[TensorData, TensorData]:
    """Mean 0 and standard deviation 1 over the training set."""
    if name == "Fashion-MNIST":
        train, test = fashion_mnist("train"), fashion_mnist("test")
    else:
        train, test = tiny_imagenet("train").load(), tiny_imagenet("val").load()
    mean, deviation = train.inputs.mean(), train.inputs.std()
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(part), generator=generator) for part in (train, test)]
    train, test = (
        TensorData((part.inputs[order] - mean) / deviation, part.targets[order], name)
        for part, order in zip((train, test), orders, strict=True)
    )
    return train, test


# -------------------------------------------------------------------------------------------------------- the networks


class Logits(nn.Module):
    """A Hugging Face model of this size, and its logits alone."""

    def __init__(self, kind: str, **settings: Any) -> None:
        super().__init__()
        import transformers

        config = getattr(transformers, f"{kind}Config")(
            hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=2 * WIDTH,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager", **settings,
        )  # fmt: skip
        task = "ForSequenceClassification" if kind == "Bert" else "ForImageClassification"
        self.model = getattr(transformers, kind + task)(config)

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()  # type: ignore[no-any-return]

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.model(*args, **kwargs).logits  # type: ignore[no-any-return]


def bert() -> nn.Module:
    return Logits("Bert", vocab_size=VOCABULARY, num_labels=len(FAMILIES), max_position_embeddings=LONGEST)


def vit(name: str, *, class_token: bool = False, homogeneous: bool = False) -> nn.Module:
    """Patches of which there are 7 × 7 or 8 × 8, by our network, which takes the mean of tokens, or Hugging Face's."""
    classes, channels, size, patch = (20, 3, 64, 8) if name == "Tiny ImageNet" else (10, 1, 28, 4)
    if class_token:
        return Logits("ViT", num_labels=classes, num_channels=channels, image_size=size, patch_size=patch)
    shape = {"image_size": size, "patch": patch, "dim": WIDTH, "depth": DEPTH, "heads": HEADS}
    return ViT(classes, channels, homogeneous=homogeneous, **shape)


ENCODER = partial(TextEncoder, len(FAMILIES), VOCABULARY, dim=WIDTH, depth=DEPTH, heads=HEADS, longest=LONGEST)
FASHION, TINY = (partial(vit, name) for name in ("Fashion-MNIST", "Tiny ImageNet"))
#: Data and network; side of a patch, None for words.
NETWORKS: dict[str, tuple[Callable[[], tuple[TensorData, TensorData]], Callable[[], nn.Module], int | None]] = {
    "docstrings": (partial(texts, docstrings), ENCODER, None),
    "docstrings, built so": (partial(texts, docstrings), partial(ENCODER, homogeneous=True), None),
    "code, BERT": (partial(texts, code), bert, None),
    "Fashion-MNIST": (partial(images, "Fashion-MNIST"), FASHION, 4),
    "Fashion-MNIST, class token": (partial(images, "Fashion-MNIST"), partial(FASHION, class_token=True), 4),
    "Fashion-MNIST, built so": (partial(images, "Fashion-MNIST"), partial(FASHION, homogeneous=True), 4),
    "Tiny ImageNet": (partial(images, "Tiny ImageNet"), TINY, 8),
}


def answers(model: nn.Module, x: Tensor) -> Tensor:
    return model(x) if x.is_floating_point() else model(input_ids=x, attention_mask=(x != PADDING).long())


@lab.remember
def trained(name: str, seed: int, quick: bool) -> tuple[dict[str, Tensor], float]:
    """The parameters of a network, and its accuracy in per cent."""
    data, build, _ = NETWORKS[name]
    train, test = (part.select(slice(60 if quick else n)) for part, n in zip(data(), (TRAIN, TEST), strict=True))
    torch.manual_seed(seed)
    model = build().train()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.01)
    epochs = 1 if quick else EPOCHS
    loops.train(
        train, lambda x, y: F.cross_entropy(answers(model, x), y), optimizer,
        epochs=epochs, batch=BATCH, seed=seed, clip=1.0,
    )  # fmt: skip
    with torch.no_grad():
        correct = [answers(model.eval(), x).argmax(1) == y for x, y in test.batches(250)]
    return model.state_dict(), 100 * float(torch.cat(correct).float().mean())


# -------------------------------------------------------------------------------------------------------- the methods


class Softmaxes(TorchFunctionMode):
    """Notes attention weights of any model whose attention is not fused, or holds them."""

    def __init__(self, *, hold: bool = False) -> None:
        super().__init__()
        self.hold = hold
        self.weights: list[Tensor] = []

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") != "softmax":
            return found
        self.weights.append(found)
        return found.detach() if self.hold else found


def rollouts(model: nn.Module, x: Tensor, target: Tensor, *, class_token: bool) -> dict[str, Tensor]:
    """Attention multiplied over layers (Abnar & Zuidema, 2020), and by positive gradients (Chefer et al., 2021)."""
    with Softmaxes() as noted:
        score = answers(model, x).gather(1, target[:, None]).sum()
    gradients = torch.autograd.grad(score, noted.weights)
    one = torch.eye(noted.weights[0].shape[-1])
    plain = weighted = one.expand(len(x), -1, -1)
    for weights, gradient in zip(noted.weights, gradients, strict=True):
        plain = (weights.detach().mean(1) + one) / 2 @ plain
        weighted = weighted + (weights * gradient).clamp_min(0).mean(1).detach() @ weighted
    if class_token:
        rows = torch.zeros(plain.shape[:2])
        rows[:, 0] = 1
    else:
        rows = (x != PADDING).float() if x.dim() == 2 else torch.ones(plain.shape[:2])
    found = {"Attention rollout": plain, "Gradient × rollout": weighted}
    sums = {name: (rows[:, :, None] * total).sum(1) for name, total in found.items()}
    # A class token of images is no patch.
    return {name: total[:, 1:] if class_token and x.is_floating_point() else total for name, total in sums.items()}


def embedded(model: nn.Module, x: Tensor) -> Any:
    """What is attributed to: pixels, or the embeddings of words."""
    if x.is_floating_point():
        return x
    return {"inputs_embeds": model.get_input_embeddings()(x).detach(), "attention_mask": (x != PADDING).long()}


def maps(model: nn.Module, name: str, x: Tensor, target: Tensor, *, long: bool) -> dict[str, Tensor]:
    """Every method's number per pixel, patch or word; those that need a baseline start from zero."""
    inputs = embedded(model, x)
    if "built so" in name:
        methods = {"X-Gradient": axiograd.XGradient(model)}
    else:
        sample = NETWORKS[name][0]()[0].inputs[:64]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what a lift loses is not the question here
            lifted = axiograd.to_xdnn(model, embedded(model, sample), how="lift").model
        methods = {"Lift": axiograd.XGradient(lifted)}
        for n in (50, 300) if long else (50,):
            methods[f"IG ({n})"] = axiograd.IntegratedGradients(model, n, internal_batch_size=250)
    held = axiograd.HeldGradient(model)
    methods |= {"Held gradient": held, "Input×Gradient": axiograd.InputXGradient(model)}

    def attributed(method: Any, scale: float = 1.0) -> Tensor:
        if isinstance(inputs, Tensor):
            return method.attribute(scale * inputs, target) / scale  # type: ignore[no-any-return]
        scaled = {**inputs, "inputs_embeds": scale * inputs["inputs_embeds"]}
        return method.attribute(scaled, target)["inputs_embeds"].sum(2) / scale  # type: ignore[no-any-return]

    found = {title: attributed(method) for title, method in methods.items()}
    found["… at x and x/3"] = (found["Held gradient"] + attributed(held, 1 / 3)) / 2
    with Softmaxes(hold=True):
        found["… weights held"] = attributed(held)
    if not isinstance(inputs, Tensor):
        captum = LayerIntegratedGradients(model, model.get_input_embeddings())
        words = torch.where(x == FIRST, x, PADDING)
        found["LayerIG (50), from padding"] = captum.attribute(
            x, words, target, additional_forward_args=((x != PADDING).long(),), internal_batch_size=250
        ).sum(2)
    found |= rollouts(model, x, target, class_token="class token" in name or "BERT" in name)
    return {**found, "Random": torch.rand(x.shape, generator=torch.Generator().manual_seed(0))}


# ------------------------------------------------------------------------------------------------------- the judgement


def masked(model: nn.Module, x: Tensor, target: Tensor, scores: Tensor, patch: int | None) -> dict[str, float]:
    """Mean probability of the class without the tokens of highest rank, and with these alone, at equal numbers."""
    there = (x != PADDING) & (x != FIRST) if patch is None else torch.ones_like(scores, dtype=torch.bool)
    rank = scores.masked_fill(~there, -torch.inf).argsort(1, descending=True).argsort(1)
    count = there.sum(1, keepdim=True)

    @torch.no_grad()
    def probability(out: Tensor) -> float:
        out = out & there
        left = x.masked_fill(out, PADDING) if patch is None else x.masked_fill(per_pixel(out, x, patch), 0.0)
        return 100 * float(answers(model, left).softmax(1).gather(1, target[:, None]).mean()) / len(FRACTIONS)

    # Never none and never all of them.
    tops = [rank < (f * count).round().clamp_min(1).minimum(count - 1) for f in FRACTIONS]
    return {"deletion ↓": sum(map(probability, tops)), "insertion ↑": sum(probability(~top) for top in tops)}


def per_pixel(tokens: Tensor, x: Tensor, patch: int) -> Tensor:
    """A number per patch as one per pixel."""
    n, channels, height, width = x.shape
    grid = tokens.reshape(n, 1, height // patch, width // patch)
    return grid.repeat_interleave(patch, 2).repeat_interleave(patch, 3).expand(-1, channels, -1, -1)


@lab.remember
def judged(name: str, seed: int, n: int, quick: bool) -> dict[str, dict[str, float]]:
    """Every method on one network, by the classes that it predicts."""
    data, build, patch = NETWORKS[name]
    model = build().eval()
    parameters, accuracy = trained(name, seed, quick)
    model.load_state_dict(parameters)
    x = data()[1].inputs[:n]
    with torch.no_grad():
        target = answers(model, x).argmax(1)
    found = {}
    for title, scores in maps(model, name, x, target, long=seed == 0).items():
        tokens, curves = scores, {}
        if patch is not None:
            pixels = scores if scores.dim() == x.dim() else per_pixel(scores, x, patch)
            tokens = F.avg_pool2d(pixels.sum(1), patch).flatten(1)
            curves = axiograd.metrics.masking_curves(model, x, pixels, target, masking=0.0, fractions=FRACTIONS)
        numbers = masked(model, x, target, tokens, patch) | {metric: c.area for metric, c in curves.items()}
        found[title] = {"accuracy": accuracy, **numbers}
    return found


#: Trainings of each network.
SEEDS = dict.fromkeys(NETWORKS, 3) | {"Fashion-MNIST, built so": 2, "Tiny ImageNet": 1}


def run(*, quick: bool) -> lab.Result:
    """Every method on every network of every seed."""
    names = ["docstrings", "Fashion-MNIST, class token"] if quick else list(NETWORKS)
    found = [
        {"network": name, "method": method, **numbers}
        for name in names
        for seed in range(1 if quick else SEEDS[name])
        for method, numbers in judged(name, seed, 2 if quick else JUDGED, quick).items()
    ]
    table = loops.over_seeds(found, by=["network", "method"])
    shown = table.set_index(["network", "method"])

    def both(name: str, method: str) -> str:
        return f"{shown.loc[(name, method), 'deletion ↓']:.1f} / {shown.loc[(name, method), 'insertion ↑']:.1f}"

    exact = {name: "X-Gradient" if "built so" in name else "IG (50)" for name in names}
    words = [f"{name} {both(name, 'Held gradient')} ({exact[name]} {both(name, exact[name])})" for name in names]
    verdict = f"Deletion ↓ / insertion ↑ of the held gradient: {'; '.join(words)}."
    figure = drawn(shown, names)
    return lab.Result("Held gradients of transformers", table, verdict, NOTE, "; ".join(names), "0 to 2", figure)


def drawn(table: pd.DataFrame, names: list[str]) -> Figure:
    """Deletion and insertion, a group per network, a dot per method."""
    figure, axes = lab.figure(7.2, 4.0, columns=2)
    styles = {"Held gradient": "#e06a10", "IG (50)": "#135fa7", "X-Gradient": "#3f8f6b", "Lift": "#7a4fa3"}
    styles |= {"Gradient × rollout": "#b09030", "Random": "#6b6f76"}
    for ax, column in zip(axes, ("deletion ↓", "insertion ↑"), strict=True):
        for method, colour in styles.items():
            rows = [i for i, name in enumerate(names) if (name, method) in table.index]
            values = [table.loc[(names[i], method), column] for i in rows]
            ax.plot(values, rows, "o", color=colour, label=method, markersize=5)
        ax.set_yticks(range(len(names)), names if ax is axes[0] else [""] * len(names))
        ax.invert_yaxis()
        ax.set_title(column, fontsize=9)
        ax.grid(axis="x", color="#d5d8dc", linewidth=0.5)
    axes[1].legend(fontsize=7, frameon=False)
    return figure


NOTE = """\
Deletion and insertion: probability of the predicted class in per cent, mean over 10, 20, 30, 50, 70 and 90 % of the
words or patches taken out (deletion, lower is better) or alone left (insertion, higher is better), in the order of the
attribution, equally many for every method; on the first 40 test inputs. Words are padded, patches become the mean
colour. KPM, KNM (logit), KAM and RAM (accuracy) are the areas of axiograd's masking metrics between 10 and 90 % of the
pixels; rollouts have a value per patch. ± is the standard deviation over networks of their own seeds; the last column
says how many there are. IG (300) was computed for the first seed alone, and differs from IG (50) by a point at most.

"… weights held" is the held gradient with attention weights held as well, the detach trick of Ali et al. (2022); "… at
x and x/3" is the mean of two held gradients on the path from zero, which costs two passes. Integrated Gradients of
texts start from embeddings of zero, and Captum's layer form from padding. Networks built so are X-DNNs, where
X-Gradient is Integrated Gradients.

Held gradients are ahead on texts, where embeddings of zero are a poor place to start from, and on networks built so.
Integrated Gradients are ahead on images by regular networks, where zero is the mean colour that deletion paints. More
steps are not the reason, as one will do: on the first seed's networks the gradient at half the image deletes to 9.5
(class token) and 11.3 (without one). It is the norms. Held gradients at half the image delete to 16.2 and 9.0, with the
norms' own gradient to 10.1 and 11.5; at the image itself a norm is blind along its input, and its own gradient is far
worse (27.0 and 36.0). Positions take over in a norm where a patch fades, which a held scale does not see. Centring on
the mean image, other shares of queries and keys, and GELU's own gradient changed little or made it worse.

Texts are docstrings and code of Python's standard library, classified by what their module is for. Networks are small,
two layers of width 48, trained for eight epochs on 3,000 samples: compare within a network. `lxt` 2.1, the reference
code of AttnLRP, does not import beside transformers 5."""
