"""Table 2's question with a third form: what do networks lose that are trained without biases, or with carried ones?

Regular networks, X-DNNs without biases (the paper's) and X-DNNs with carried biases (`axiograd.layers`) are trained
alike, by the paper's recipes for fewer epochs, and judged on test images: accuracy, the same at a tenth of the
contrast, and how far one gradient is from Integrated Gradients with 128 steps.
"""

from typing import Any

import pandas as pd
import torch

from axiograd import InputXGradient, IntegratedGradients, XGradient
from axiograd.metrics import mean_absolute_relative_difference
from experiments import lab, networks
from experiments.networks import FORMS, NETWORKS

FIXUP, ALEXNET, VGG, RESNET = NETWORKS
TINY, FASHION = "Tiny ImageNet, 20 classes", "Fashion-MNIST"
#: Network, data, epochs and seeds.
TRAININGS: tuple[tuple[str, str, int, tuple[int, ...]], ...] = (
    (FIXUP, TINY, 40, (0, 1, 2)),
    (FIXUP, FASHION, 4, (0, 1, 2)),
    (RESNET, TINY, 20, (0,)),
    (ALEXNET, FASHION, 4, (0,)),
    (VGG, FASHION, 4, (0,)),
)
STEPS, COMPARED = 128, 100


@lab.remember
def judge(network: str, form: str, data: str, epochs: int, seed: int) -> dict[str, float]:
    """Numbers of one trained network, in per cent but for the loss."""
    model, (_, test) = networks.load(network, form, data, epochs, seed), networks.images(data)
    outputs = networks.logits(model, test.inputs)
    fainter = networks.logits(model, 0.1 * test.inputs).argmax(1)
    x, predicted = test.inputs[:COMPARED], outputs[:COMPARED].argmax(1)
    one = (InputXGradient if form == "regular" else XGradient)(model).attribute(x, predicted)
    integrated = IntegratedGradients(model, STEPS, internal_batch_size=512).attribute(x, predicted)
    return {
        "top-1 %": _share(outputs.argmax(1) == test.targets),
        "top-5 %": _share((outputs.topk(min(5, len(test.names))).indices == test.targets[:, None]).any(1)),
        "top-1 % at contrast 0.1": _share(fainter == test.targets),
        "training loss": networks.trained(network, form, data, epochs, seed)["loss"][-1],
        "one gradient from IG(128) %": 100 * mean_absolute_relative_difference(one, integrated).value,
    }


def _share(hits: torch.Tensor) -> float:
    return 100 * float(hits.double().mean())


def run(*, quick: bool) -> lab.Result:
    trainings = ((ALEXNET, "shapes", 2, (0, 1)),) if quick else TRAININGS
    rows: list[dict[str, Any]] = []
    for network, data, epochs, seeds in trainings:
        for form in FORMS:
            found = pd.DataFrame([judge(network, form, data, epochs, seed) for seed in seeds])
            row: dict[str, Any] = {"data": data, "network": network, "form": form, "seeds": len(seeds)}
            for column in found:
                row[column] = found[column].mean()
                row[f"{column} ±"] = found[column].sem() if len(seeds) > 1 else None
            rows.append(row)
    table = pd.DataFrame(rows)
    return lab.Result(
        title="Networks with carried biases, trained from scratch",
        table=table,
        verdict=_verdict(table),
        note=(
            "Mean ± standard error over seeds. The paper's recipes for fewer epochs, in batches of 64: Fixup and "
            "BatchNorm networks by SGD at 0.1 with a cosine and mixup 0.7, AlexNet and VGG by SGD at 0.01 in steps; "
            f"images are mirrored at random. Epochs: {', '.join(f'{n} on {d} {e}' for n, d, e, _ in trainings)}. "
            "The last column is the mean absolute relative difference of Input×Gradient (regular) or X-Gradient to "
            f"Integrated Gradients with {STEPS} steps on {COMPARED} test images, as in the paper's Table 2; the "
            "training loss includes mixup."
        ),
        data="; ".join(dict.fromkeys(data for _, data, _, _ in trainings)),
        seed="; ".join(dict.fromkeys(", ".join(map(str, seeds)) for *_, seeds in trainings)),
        figure=_figure(table),
    )


def _verdict(table: pd.DataFrame) -> str:
    said = []
    for (data, network), rows in table.groupby(["data", "network"], sort=False):
        top = rows.set_index("form")["top-1 %"]
        said.append(
            f"{network} on {data}: without biases {top['strict X'] - top['regular']:+.1f} points of top-1, "
            f"with carried ones {top['carried'] - top['regular']:+.1f}"
        )
    return "; ".join(said) + "."


def _figure(table: pd.DataFrame) -> Any:
    groups = list(table.groupby(["data", "network"], sort=False))
    figure, axes = lab.figure(2.1 * len(groups) + 0.6, 2.8, len(groups))
    for axis, ((data, network), rows) in zip(axes, groups, strict=True):
        colours = [lab.COLOURS[form] for form in rows["form"]]
        axis.bar(rows["form"], rows["top-1 %"], yerr=rows["top-1 % ±"].astype(float), color=colours, capsize=3)
        axis.set_title(f"{network}\n{data}", fontsize=8)
    axes[0].set_ylabel("top-1 accuracy (%)", fontsize=8)
    return figure
