"""`export_onnx` and `export_pt2`: prediction, exact attribution and completeness gap in one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch

from axiograd._calls import Call, Model, logits, read_call
from axiograd._io import check_writable, write_atomically
from axiograd._state import in_mode, unwrap
from axiograd._typing import Inputs
from axiograd.datasets import Preprocess
from axiograd.errors import ConfigurationError, DataMissingError, NotHomogeneousError, StorageError
from axiograd.export.card import Card, baseline_in_words, versions, weights_hash
from axiograd.export.checking import Subject, check
from axiograd.export.joint import Asked, Explain, join, narrowed
from axiograd.homogeneity import Certificate
from axiograd.homogeneity.remembered import certified

TOLERANCE = 1e-3


def export_onnx(
    model: Model,
    example_inputs: Inputs,
    path: str | os.PathLike[str],
    *,
    baseline: Any = None,
    additional_forward_args: Any = None,
    target: Asked = "index",
    sizes: bool = False,
    pool: int | None = None,
    preprocessing: Preprocess | str | None = None,
    inside: bool = False,
    contrast: bool = False,
    classes: Sequence[str] = (),
    tolerance: float = TOLERANCE,
) -> Card:
    """Write F(x), (x − b)·∇F(x)/k and Σ attribution − F(x) of a certified model as one ONNX graph.

    Inputs of the graph: the model's (``input``, or their names) and ``target``, one int64 per sample, −1 for the
    largest output; with ``target="weights"`` instead ``weights``, one number per output. Outputs: ``output``,
    ``attribution`` (``attribution_NAME`` where several inputs scale), ``gap``, and with ``pool=8`` also ``pooled``, the
    attributions summed over channels and windows of 8 × 8 pixels. The batch is free; with ``sizes=True`` so are height
    and width. With ``inside=True`` the file prepares uint8 images itself, and with ``contrast=True`` multiplies what it
    has prepared by a further input of that name. The model is exported in eval mode, whichever it is in. The graph is
    compared with the model in float64, and the file, run by onnxruntime, has to be within ``tolerance`` of it in the
    median of some new inputs.

    >>> import tempfile, torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     card = export_onnx(model, torch.randn(2, 3), f"{folder}/model.onnx")
    >>> card.certificate.degree, [name for name, *_ in card.outputs], card.check.structure < 1e-12
    (1.0, ['output', 'attribution', 'gap'], True)
    """
    from axiograd.export.onnx_file import require_onnx, runner, signatures, to_bytes, to_onnx

    goal = _goal(path, ".onnx")
    onnx = require_onnx()
    import onnxruntime

    how = preprocessing if isinstance(preprocessing, Preprocess) and inside else None
    if inside and how is None:
        raise ConfigurationError("inside=True needs preprocessing=, an axiograd.datasets.Preprocess.")
    if contrast and (how is None or baseline is not None):
        raise ConfigurationError("contrast=True is for files with inside=True and a baseline of zero.")
    if how is not None:
        from axiograd.export.inside import check_fit, with_preprocessing

        check_fit(how, read_call(example_inputs, additional_forward_args).features, sizes=sizes)
    with in_mode(model, training=False):
        subject = _subject(model, example_inputs, additional_forward_args, baseline, target, pool, sizes=sizes)
        _check_classes(classes, subject)
        proto = to_onnx(subject.joint)
        outcome = check(subject, runner(proto), tolerance=tolerance)
    if how is not None:
        proto = with_preprocessing(proto, how, subject.joint, contrast=contrast)
    card = Card(
        subject.certificate,
        *signatures(proto),
        baseline_in_words(subject.call.slots, subject.baselines),
        str(preprocessing or ""),
        inside,
        tuple(classes),
        weights_hash(model),
        versions(onnx=onnx.__version__, onnxruntime=onnxruntime.__version__),
        outcome,
    )
    write_atomically(goal, to_bytes(proto, card))
    return card


def export_pt2(
    model: Model,
    example_inputs: Inputs,
    path: str | os.PathLike[str],
    *,
    baseline: Any = None,
    additional_forward_args: Any = None,
    target: Asked = "index",
    sizes: bool = False,
    pool: int | None = None,
    preprocessing: Preprocess | str | None = None,
    classes: Sequence[str] = (),
    tolerance: float = TOLERANCE,
) -> Card:
    """The same graph in torch.export's own format: `torch.export.load(path).module()(x, target)` runs it.

    >>> import tempfile, torch
    >>> from torch import nn
    >>> model, x = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU()), torch.ones(1, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = export_pt2(model, x, f"{folder}/model.pt2")
    ...     output, attribution, gap = torch.export.load(f"{folder}/model.pt2").module()(x, torch.tensor([1]))
    >>> torch.allclose(output, model(x)), attribution.shape, gap.abs().item() < 1e-6
    (True, torch.Size([1, 3]), True)
    """
    from axiograd.export.pt2_file import runner, to_bytes

    goal = _goal(path, ".pt2")
    with in_mode(model, training=False):
        subject = _subject(model, example_inputs, additional_forward_args, baseline, target, pool, sizes=sizes)
        _check_classes(classes, subject)
        outcome = check(subject, runner(subject.joint), tolerance=tolerance)
    card = Card(
        subject.certificate,
        subject.joint.inputs,
        subject.joint.outputs,
        baseline_in_words(subject.call.slots, subject.baselines),
        str(preprocessing or ""),
        classes=tuple(classes),
        weights=weights_hash(model),
        versions=versions(),
        check=outcome,
    )
    write_atomically(goal, to_bytes(subject.joint, card))
    return card


def read(path: str | os.PathLike[str]) -> Card:
    """The card that an exported file holds."""
    file = Path(path)
    if not file.is_file():
        raise DataMissingError(f"there is no file {file}.")
    if file.suffix == ".pt2":
        from axiograd.export.pt2_file import read_pt2

        return read_pt2(file)
    from axiograd.export.onnx_file import read_onnx

    return read_onnx(file)


def _goal(path: str | os.PathLike[str], suffix: str) -> Path:
    goal = Path(path)
    if goal.suffix != suffix:
        raise ConfigurationError(f"{goal}: the file's name ends in {suffix}.")
    if goal.is_dir():
        raise StorageError(f"Cannot write {str(goal)!r}: it is a folder.")
    check_writable(goal.parent)
    return goal


def _check_classes(classes: Sequence[str], subject: Subject) -> None:
    """One name per output, or two for a single one; or none."""
    count = subject.n_outputs
    if isinstance(classes, str) or len(classes) not in {0, count, max(count, 2)}:
        raise ConfigurationError(f"classes={classes!r}: the model has {count} outputs, each of which has one name.")


def _subject(
    model: Model,
    inputs: Inputs,
    additional: Any,
    baseline: Any,
    asked: Asked,
    pool: int | None,
    *,
    sizes: bool,
) -> Subject:
    """Certify the model and make the graph."""
    if asked not in get_args(Asked):
        raise ConfigurationError(f"target={asked!r}: choose one of {', '.join(get_args(Asked))}.")
    model = unwrap(model)
    call = read_call(inputs, additional).prepared(create_graph=False)
    baselines: list[torch.Tensor] = []
    if baseline is not None:
        filled = call.fill(baseline, "baseline")
        baselines = [narrowed(each, slot) for each, slot in zip(filled, call.slots, strict=True)]
    certificate = _certificate(model, call, baseline)
    explain = Explain(certificate.degree or 1.0, asked, pool)
    joint = join(model, call, explain, baselines=baselines, sizes=sizes)
    return Subject(model, call, baselines, certificate, explain, joint)


def _certificate(model: Model, call: Call, baseline: Any) -> Certificate:
    certificate = certified(model, call, baseline=baseline)
    if not certificate.ok and len(certificate.degrees) > 1:  # outputs beside the logits are not exported
        certificate = certified(model, call, baseline=baseline, readout=logits)
    if not certificate.ok:
        raise NotHomogeneousError(
            f"only a homogeneous model has Integrated Gradients as one graph, and this one is not certified.\n"
            f"{certificate}\nConvert it first: axiograd.to_xdnn(model, examples).model, or "
            "`axiograd convert SPEC -o FILE.safetensors --examples FOLDER`."
        )
    return certificate
