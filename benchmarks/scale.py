"""What a row of a table costs, in forward and backward passes of the bare network, and beside Captum's IG(50).

    python benchmarks/scale.py

SqueezeNet 1.1, lifted, photos in memory, batches of 16, one thread. Processor time; the ways take turns, and numbers
are medians of ratios within a turn, so that whatever else the machine does falls on all of them. Proof and start are in
none.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from captum.attr import IntegratedGradients

import axiograd
from axiograd.datasets import SQUEEZENET
from axiograd.models import get_model
from axiograd.scale import Attribute, Listed, Windows, write_attributions

PHOTOS, BATCH, TURNS = 64, 16, 5


def seconds(call: Callable[[], object], photos: int) -> float:
    """Of processor time, per photo."""
    start = time.process_time()
    call()
    return (time.process_time() - start) / photos


def main() -> None:
    torch.set_num_threads(1)
    data = axiograd.datasets.imagenet_sample(transform=SQUEEZENET)
    photos = torch.stack([data[i][0] for i in range(PHOTOS)])
    model = axiograd.to_xdnn(get_model("squeezenet1_1", weights="default").eval(), photos[:8], how="lift").model
    model = model.to(memory_format=torch.channels_last)
    x = photos[:BATCH].contiguous(memory_format=torch.channels_last)
    target = model(x).argmax(1).detach()
    attribute, source = Attribute(model), Listed("photos", [str(i) for i in range(PHOTOS)], photos.__getitem__)
    folder = Path(tempfile.mkdtemp())

    def gradient() -> object:
        inputs = x.clone().requires_grad_()
        return torch.autograd.grad(model(inputs).gather(1, target[:, None]).sum(), inputs)

    def rows(out: str) -> object:
        return write_attributions(attribute, source, folder / out, batch_size=BATCH, progress=False)

    def captum() -> object:
        method = IntegratedGradients(model)
        return Windows()(method.attribute(x[:2], target=target[:2], n_steps=50, internal_batch_size=BATCH))

    rows("first")
    turns = [
        (seconds(gradient, BATCH), seconds(lambda turn=turn: rows(str(turn)), PHOTOS), seconds(captum, 2))
        for turn in range(TURNS)
    ]
    size = sum(part.stat().st_size for part in (folder / "0").glob("*.parquet")) / PHOTOS
    print(f"a row in forward and backward passes: {median(row / bare for bare, row, _ in turns):.2f}")
    print(f"Captum's Integrated Gradients (50) in rows: {median(theirs / row for _, row, theirs in turns):.1f}")
    print(f"bytes of a row: {size:,.0f}")


if __name__ == "__main__":
    main()
