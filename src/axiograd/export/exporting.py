"""`export_onnx` and `export_pt2`: prediction, exact attribution and proof in one file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch.nn import functional as F

from axiograd._calls import Call, Model, logits, read_call
from axiograd._io import check_writable, write_atomically
from axiograd._state import all_modules, unwrap
from axiograd._typing import Inputs
from axiograd.attribution.passes import attribution_pass
from axiograd.datasets import Preprocess
from axiograd.errors import ConfigurationError, DataMissingError, NotFiniteError, NotHomogeneousError, StorageError
from axiograd.export.card import Card, baseline_in_words, versions, weights_hash
from axiograd.export.checking import check
from axiograd.export.joint import IMAGES, Asked, Joint, join, narrowed
from axiograd.export.subject import CheckedModel
from axiograd.homogeneity import Certificate, certify
from axiograd.homogeneity.remembered import ReadOut

TOLERANCE = 1e-5


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
    has prepared by a further input of that name. The model is exported in eval mode, whichever it is in, and the file
    is run by onnxruntime and compared with the model before it is kept.

    >>> import tempfile, torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     card = export_onnx(model, torch.randn(2, 3), f"{folder}/model.onnx")
    >>> card.certificate.degree, [name for name, *_ in card.outputs], card.check.attribution_error < 1e-5
    (1.0, ['output', 'attribution', 'gap'], True)
    """
    from axiograd.export.onnx_file import require_onnx, runner, signatures, to_bytes, to_onnx, with_gates

    goal = _goal(path, ".onnx")
    _check_tolerance(tolerance)
    onnx = require_onnx()
    import onnxruntime

    if inside and not isinstance(preprocessing, Preprocess):
        raise ConfigurationError("inside=True needs preprocessing=, an axiograd.datasets.Preprocess.")
    if inside and isinstance(preprocessing, Preprocess):
        from axiograd.export.inside import check_fit

        check_fit(preprocessing, read_call(example_inputs, additional_forward_args).features, sizes=sizes)
    if contrast and (not inside or baseline is not None):
        raise ConfigurationError("contrast=True is for files with inside=True and a baseline of zero.")
    with evaluating(model):
        made = make(
            model,
            example_inputs,
            baseline=baseline,
            additional=additional_forward_args,
            asked=target,
            sizes=sizes,
            pool=pool,
        )
        _check_classes(classes, made.joint)
        proto, named = to_onnx(made.joint)
        outcome = check(
            made,
            runner(proto),
            tolerance=tolerance,
            gated=(lambda: with_gates(proto, made.joint)) if named else None,
        )
    if inside and isinstance(preprocessing, Preprocess):
        from axiograd.export.inside import with_preprocessing

        proto = with_preprocessing(proto, preprocessing, made, contrast=contrast)
    card = Card(
        made.certificate,
        *signatures(proto),
        baseline_in_words(made.joint.features, made.baselines),
        preprocessing=str(preprocessing or ""),
        inside=inside,
        classes=tuple(classes),
        pool=pool,
        weights=weights_hash(model),
        versions=versions(onnx=onnx.__version__, onnxruntime=onnxruntime.__version__),
        check=outcome,
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
    from axiograd.export.pt2_file import runner, signatures, to_bytes

    goal = _goal(path, ".pt2")
    _check_tolerance(tolerance)
    with evaluating(model):
        made = make(
            model,
            example_inputs,
            baseline=baseline,
            additional=additional_forward_args,
            asked=target,
            sizes=sizes,
            pool=pool,
        )
        _check_classes(classes, made.joint)
        card = Card(
            made.certificate,
            *signatures(made.joint),
            baseline_in_words(made.joint.features, made.baselines),
            preprocessing=str(preprocessing or ""),
            classes=tuple(classes),
            pool=pool,
            weights=weights_hash(model),
            versions=versions(),
        )
        run = runner(made.joint, to_bytes(made.joint, card))
        outcome = check(made, run, tolerance=tolerance, gated=lambda: run)  # by the same kernels
    card = replace(card, check=outcome)
    write_atomically(goal, to_bytes(made.joint, card))
    return card


def read(path: str | os.PathLike[str]) -> Card:
    """What an exported file says about itself, and whether it is unmodified (``card.intact``)."""
    file = Path(path)
    if not file.is_file():
        raise DataMissingError(f"there is no file {file}.")
    if file.suffix == ".pt2":
        from axiograd.export.pt2_file import read_pt2

        return read_pt2(file)
    from axiograd.export.onnx_file import read_onnx

    return read_onnx(file)


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Eval mode, in which models are shipped, and each module's own afterwards."""
    modules = all_modules(model)
    modes = [(module, module.training) for module in modules]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _goal(path: str | os.PathLike[str], suffix: str) -> Path:
    goal = Path(path)
    if goal.suffix != suffix:
        raise ConfigurationError(f"{goal}: the file's name ends in {suffix}.")
    if goal.is_dir():
        raise StorageError(f"Cannot write {str(goal)!r}: it is a folder.")
    check_writable(goal.parent)
    return goal


def _check_tolerance(tolerance: Any) -> None:
    if not (isinstance(tolerance, int | float) and 0 < tolerance < 1):
        raise ConfigurationError(f"tolerance={tolerance!r}: a part of the largest attribution is between 0 and 1.")


def _check_classes(classes: Sequence[str], joint: Joint) -> None:
    """One name per output, or two for a single one; or none."""
    output = joint.graph.graph.output_node().all_input_nodes[0]
    count = math.prod(output.meta["val"].shape[1:])
    if isinstance(classes, str) or len(classes) not in {0, count, max(count, 2)}:
        raise ConfigurationError(f"classes={classes!r}: the model has {count} outputs, each of which has one name.")


def make(
    model: Model,
    example_inputs: Inputs,
    *,
    baseline: Any = None,
    additional: Any = None,
    asked: Asked = "index",
    sizes: bool = False,
    pool: int | None = None,
) -> CheckedModel:
    """Certify the model and make the graph."""
    if asked not in get_args(Asked):
        raise ConfigurationError(f"target={asked!r}: choose one of {', '.join(get_args(Asked))}.")
    model = unwrap(model)
    arguments = read_call(example_inputs, additional).prepared(create_graph=False)
    baselines = None
    if baseline is not None:
        filled = arguments.fill(baseline, "baseline")
        baselines = [narrowed(b, slot) for b, slot in zip(filled, arguments.slots, strict=True)]
    if not all(bool(x.isfinite().all()) for x in arguments.features):
        raise NotFiniteError("NaN or Inf in the example inputs: give examples like those that the model will see.")
    certificate = _certified(model, example_inputs, baseline, additional, arguments)
    if sizes:
        try:
            _run_elsewhere(model, arguments, wider=True)
        except Exception as error:
            shape = tuple(arguments.features[0].shape)
            raise ConfigurationError(
                f"sizes=True, but the model does not take images other than those of shape {shape}: {error}. Leave it "
                "out, or pool to one size before the last layers."
            ) from error
    joint = join(
        model,
        arguments,
        degree=certificate.degree or 1.0,
        baselines=baselines,
        asked=asked,
        pool=pool,
        sizes=sizes,
        any_batch=_takes_any_batch(model, arguments),
    )
    return CheckedModel(model, arguments, baselines, certificate, asked, joint)


def _takes_any_batch(model: Model, arguments: Call) -> bool:
    """Whether one row and three rows run; a model that writes its batch down is exported with that batch."""
    try:
        for rows in (arguments.rows(slice(0, 1)), arguments.rows(slice(0, 1), 3)):
            _run_elsewhere(model, rows)
    except Exception:  # noqa: BLE001 - whatever it says: the examples do run
        return False
    return True


def _run_elsewhere(model: Model, arguments: Call, *, wider: bool = False) -> None:
    """Run the model on other sizes than the examples'; by which nothing changes."""
    features = [F.pad(x, (3, 4, 5, 6)) if wider and x.dim() == IMAGES else x for x in arguments.features]
    with attribution_pass(model, features[0].device, create_graph=False, preserve=True), torch.no_grad():
        arguments.call(model, [x.clone() for x in features])


def _certified(model: Model, inputs: Inputs, baseline: Any, additional: Any, arguments: Call) -> Certificate:
    def proof(one: Model) -> Certificate:
        return certify(one, inputs, baseline=baseline, additional_forward_args=additional, wrt=arguments.slots)

    certificate = proof(model)
    if not certificate.ok and len(certificate.degrees) > 1:  # outputs beside the logits are not exported
        certificate = proof(ReadOut(model, logits))
    if not certificate.ok:
        raise NotHomogeneousError(
            f"only a homogeneous model has Integrated Gradients as one graph, and this one is not certified.\n"
            f"{certificate}\nConvert it first: axiograd.to_xdnn(model, examples).model, or "
            "`axiograd convert SPEC -o FILE.safetensors --examples FOLDER`."
        )
    return certificate
