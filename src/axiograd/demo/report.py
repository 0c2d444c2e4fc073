"""The demonstration as a page: steps, certificate, and the same images before and after."""

from __future__ import annotations

import torch
from torch import nn

from axiograd.attribution import XGradient
from axiograd.demo.story import Data, Result, normalised
from axiograd.homogeneity import Certificate, Conversion
from axiograd.report import Report, bounding_box


def demo_report(
    result: Result,
    data: Data,
    certificate: Certificate,
    conversion: Conversion,
    *,
    before: nn.Module,
    after: nn.Module,
    n: int = 24,
) -> Report:
    """What `axiograd demo` found, with exact attributions of ``n`` test images."""
    regular, xdnn, fixed = (result.accuracies[name] for name in ("regular", "x_dnn", "x_dnn_with_prior"))
    tag_before, tag_after = result.on_tag["x_dnn"], result.on_tag["x_dnn_with_prior"]
    report = Report(
        "Right for the right reason",
        lead=(
            "Faint discs, squares, triangles and crosses, each with a coloured tag in a corner. In training the tag's "
            "colour gives the class away. A network learns the tag; exact attributions show it; training with them "
            "makes it look at the shape."
        ),
        headline={
            "accuracy with a random tag": (f"{xdnn.random_tag:.1f} %", f"{fixed.random_tag:.1f} %"),
            "attribution on the tag": (f"{tag_before:.0f} %", f"{tag_after:.1f} %"),
            "faster than 128-step Integrated Gradients": f"{result.speed.ratio:.0f} times",
        },
        command=result.command,
        model_name="a small convolutional network",
        data="procedural shapes, the tag's colour random in these test images",
        baseline="zero, a mid-grey image",
        certificate={"regular network": certificate, "X-DNN": conversion.certificate},
    )
    report.add_step(
        "A regular network learns the shortcut",
        "Where the tag is random, it cannot tell the shapes.",
        numbers={
            "with the tag of its class": f"{regular.tagged:.1f} %",
            "with a random tag": f"{regular.random_tag:.1f} %",
        },
    )
    report.add_step(
        "The certificate refuses it",
        "Its biases keep it from being homogeneous, so there is no exact attribution in one pass. Each is named below.",
        numbers={"violations": len(certificate.violations)},
        code="axiograd.certify(network, images)",
    )
    report.add_step(
        "Converted, it is an X-DNN",
        "Without biases, trained a little longer, it still relies on the tag.",
        numbers={"with the tag of its class": f"{xdnn.tagged:.1f} %", "with a random tag": f"{xdnn.random_tag:.1f} %"},
        code="axiograd.to_xdnn(network, images)",
    )
    report.add_step(
        "X-Gradient is Integrated Gradients, in one backward pass",
        f"The attributions add up to the outputs: {result.completeness}.",
        numbers={
            "largest relative difference to 128 steps": f"{result.speed.relative_difference:.1e}",
            "times faster": f"{result.speed.ratio:.0f}",
        },
        code="axiograd.XGradient(xdnn).attribute(images, target=classes)",
    )
    report.add_step(
        "Trained for the right reason",
        "The loss gets a term: the squared attribution on the tag, for what the network still gets wrong.",
        numbers={
            "with a random tag": (f"{xdnn.random_tag:.1f} %", f"{fixed.random_tag:.1f} %"),
            "attribution on the tag": (f"{tag_before:.0f} %", f"{tag_after:.1f} %"),
        },
        code='axiograd.AttributionLoss(cross_entropy, axiograd.priors.RightReasons(), outputs="residual")',
    )
    _add_samples(report, data, before, after, n)
    return report


def _add_samples(report: Report, data: Data, before: nn.Module, after: nn.Module, n: int) -> None:
    images, classes, names = data.random_tag.inputs[:n], data.random_tag.targets[:n], data.random_tag.names
    tags = data.random_tag.per_sample()["shortcuts"]
    x = normalised(images)
    maps = {"before": XGradient(before).attribute(x, classes), "after": XGradient(after).attribute(x, classes)}
    errors = XGradient(after).completeness(x, classes).relative
    with torch.no_grad():
        predictions = {"before": before(x).argmax(1), "after": after(x).argmax(1)}
    # First those that show it best: wrong before, right after, and most of the attribution on the tag.
    fixed = (predictions["before"] != classes) & (predictions["after"] == classes)
    size = maps["before"].abs()
    on_tag = (size * tags[:n]).sum((1, 2, 3)) / size.sum((1, 2, 3))
    for rank, i in enumerate((fixed + on_tag).argsort(descending=True).tolist()):
        report.add_sample(
            f"image {i}",
            {name: attribution[i] for name, attribution in maps.items()},
            image=images[i],
            label=names[classes[i]],
            prediction={view: names[predicted[i]] for view, predicted in predictions.items()},
            completeness=float(errors[i]),
            boxes=[box for box in [bounding_box(tags[i, 0])] if box],
            featured=rank < 3,  # noqa: PLR2004  # as many as fit beside each other
        )
