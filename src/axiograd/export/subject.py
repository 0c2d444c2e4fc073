"""What is exported, and what PyTorch itself answers for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from axiograd._calls import Call, Model, logits
from axiograd.attribution.passes import attribution_pass, run
from axiograd.export.joint import Asked, Joint, tensor_slots
from axiograd.homogeneity import Certificate

#: Runs the exported file: input name → value, to output name → value.
Runner = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]


@dataclass(frozen=True)
class CheckedModel:
    """What is compared with the file."""

    model: Model
    arguments: Call
    baselines: Sequence[Tensor] | None
    certificate: Certificate
    asked: Asked
    joint: Joint

    @property
    def attributions(self) -> list[str]:
        """The names of the attributions among the outputs."""
        return [name for name in self.joint.outputs if name.startswith("attribution")]

    def answers(self, found: Mapping[str, Tensor]) -> list[Tensor]:
        """The output, and the attributions, of what a file has found."""
        return [found["output"], *(found[name] for name in self.attributions)]


def eager(
    subject: CheckedModel, arguments: Call, ask: Tensor | None, generator: torch.Generator
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Output, attributions and what was asked, by PyTorch's own autograd on the user's model."""
    x = [feature.detach().clone().requires_grad_() for feature in arguments.features]
    with attribution_pass(subject.model, x[0].device, create_graph=False, preserve=True):
        output = logits(run(subject.model, arguments, x))
        flat = output.flatten(1) if output.dim() > 1 else output[:, None]
        if ask is None and subject.asked == "weights":
            ask = torch.randn(output.shape, generator=generator).to(output)
        elif ask is None:
            ask = torch.randint(flat.shape[1], (len(flat),), generator=generator)
        weighted = subject.asked == "weights"
        score = (flat * ask.flatten(1)).sum(1) if weighted else flat.gather(1, ask[:, None]).squeeze(1)
        gradients = torch.autograd.grad(score.sum(), x, materialize_grads=True)
    origins = subject.baselines or [torch.zeros(())] * len(x)
    attributions = [
        ((each.detach() - origin) * gradient / (subject.certificate.degree or 1.0))
        for each, origin, gradient in zip(x, origins, gradients, strict=True)
    ]
    return output.detach(), attributions, ask


def named(subject: CheckedModel, arguments: Call, ask: Tensor) -> dict[str, Tensor]:
    """The graph's inputs by name."""
    where, names = tensor_slots(arguments)
    values = [arguments.positional[s] if isinstance(s, int) else arguments.keyword[s] for s in where]
    return {**dict(zip(names, values, strict=True)), subject.joint.inputs[-1]: ask}


def relative(found: Sequence[Tensor], expected: Sequence[Tensor]) -> Tensor:
    """Per row: the largest difference, over all tensors, by the largest expected value."""
    rows = [(a - b).abs().reshape(len(a), -1).amax(1) for a, b in zip(found, expected, strict=True)]
    scale = torch.stack([b.abs().reshape(len(b), -1).amax(1) for b in expected]).amax(0)
    difference = torch.stack(rows).amax(0)
    return torch.where(difference == 0, 0.0, difference / scale)
