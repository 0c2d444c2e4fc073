"""Images that give their class away, split for training, choosing λ and testing, and the small network they train.

Training images have a patch or a colour that tells the class. Validation images are training images held out, with the
confounder of a random class: λ is chosen where the confounder is worthless, but never on the test set, whose own
confounder (the random patch of another draw, the inverted palette) no choice has seen.

Decoy sets mask the patch. Colour MNIST has no region to mask: what must not count is colour at any place, and grey may.
So images are given in opponent coordinates, an orthonormal turn of (R, G, B) into grey and two differences of colours,

    u₀ = (R + G + B)/√3,   u₁ = (R − G)/√2,   u₂ = (R + G − 2B)/√6,

and the mask is channels u₁ and u₂. The turn is linear, so an X-DNN stays one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd import AttributionLoss, XGradient
from axiograd.datasets import TensorData, add_colour, add_decoy, fashion_mnist, mnist, shapes
from axiograd.datasets.synthetic import palette
from axiograd.priors import RightReasons
from experiments import loops

#: Rows: grey, red − green, yellow − blue; orthonormal.
OPPONENT = F.normalize(torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]))
BATCH, RATE = 128, 3e-3
#: A loss of the network on inputs and targets, with a mask of what must not count.
Objective = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Confounded:
    """One set: `train` gives the class away, `val` and `test` do not, `clean_…` have no confounder at all."""

    train: TensorData
    val: TensorData
    test: TensorData
    clean_train: TensorData
    clean_val: TensorData
    clean_test: TensorData


@cache
def load(name: str, n_val: int = 5000) -> Confounded:
    """Decoy Fashion-MNIST, Decoy MNIST, Colour MNIST, or decoys on shapes, which need no download.

    >>> load("shapes", n_val=100).train
    TensorData('Decoy grey shapes train': 3900 samples of (1, 28, 28), torch.float32)
    """
    if name == "shapes":
        train, test = (_grey(shapes(split, size=28)) for split in ("train", "test"))
    else:
        source = fashion_mnist if name == "Fashion-MNIST" else mnist
        train, test = source("train"), source("test")
    confound = _coloured if name == "Colour MNIST" else _patched
    first, last = slice(len(train) - n_val), slice(len(train) - n_val, None)
    clean = confound(train, "clean")
    return Confounded(
        train=confound(train, "class").select(first),
        val=confound(train, "random").select(last),
        test=confound(test, "test"),
        clean_train=clean.select(first),
        clean_val=clean.select(last),
        clean_test=confound(test, "clean"),
    )


def _grey(data: TensorData) -> TensorData:
    inputs = data.inputs.mean(1, keepdim=True)
    return TensorData(inputs, data.targets, data.name.replace("shapes", "grey shapes"), data.names)


def _patched(data: TensorData, how: str) -> TensorData:
    if how == "clean":
        return replace(data, shortcuts=torch.zeros_like(data.inputs, dtype=torch.bool))
    # Validation patches are not drawn with the seed of the test patches.
    return add_decoy(data, informative=how == "class", seed=1 if how == "random" else 0)


def _coloured(data: TensorData, how: str) -> TensorData:
    if how == "clean":
        coloured = replace(data, inputs=data.inputs.expand(-1, 3, -1, -1))
    elif how == "random":
        drawn = torch.randint(10, (len(data),), generator=torch.Generator().manual_seed(1))
        coloured = replace(data, inputs=data.inputs * palette(10).to(data.inputs)[drawn][:, :, None, None])
    else:
        coloured = add_colour(data, inverted=how == "test")
    inputs = torch.einsum("cd,ndhw->nchw", OPPONENT, coloured.inputs).contiguous()
    chroma = torch.tensor([False, True, True])[None, :, None, None].expand(len(data), 3, 1, 1)
    return replace(coloured, inputs=inputs, shortcuts=chroma)


def network(channels: int, classes: int, *, homogeneous: bool) -> nn.Sequential:
    """Two convolutions and a linear layer; without biases it is an X-DNN.

    Pixels become channels in squares of two by two, which costs less than a strided convolution, above all in the
    second derivatives that a prior needs.
    """
    bias = not homogeneous
    return nn.Sequential(
        nn.PixelUnshuffle(2),
        nn.Conv2d(4 * channels, 16, 3, padding=1, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=bias),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, classes, bias=bias),
    )


def fitted(
    data: TensorData, *, homogeneous: bool, epochs: int, seed: int, objective: Objective | None = None
) -> tuple[nn.Sequential, float]:
    """The network after Adam with a one-cycle schedule, and the processor seconds of an epoch."""
    torch.manual_seed(seed)
    model = network(data.inputs.shape[1], int(data.targets.max()) + 1, homogeneous=homogeneous)

    def loss(x: Tensor, y: Tensor, *wrong: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y) if objective is None else objective(model, x, y, *wrong)

    optimizer = torch.optim.Adam(model.parameters(), RATE)
    return model, loops.train(data, loss, optimizer, epochs=epochs, batch=BATCH, seed=seed)


def right_reasons(weight: float, method: type = XGradient, outputs: str | None = "random", **given) -> Objective:
    """Cross-entropy with a prior against attribution to the confounder."""
    loss = AttributionLoss(F.cross_entropy, RightReasons(), weight, method, outputs=outputs, **given)
    return lambda model, x, y, wrong: loss(model, x, y, mask=wrong).total
