"""ONNX files: how a joint graph becomes one, runs, and is read back."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from axiograd._extras import optional
from axiograd.errors import ExportError, StorageError
from axiograd.export.card import KEY, Card, Signature
from axiograd.export.checking import Runner
from axiograd.export.joint import Joint
from axiograd.homogeneity.program import untouched

if TYPE_CHECKING:
    import onnx

#: What a protocol buffer can hold, less what is added to it.
MOST = 2**31 - 2**20
_OPERATOR = re.compile(r"target=torch\.ops\.(\w+\.\w+)")


def require_onnx() -> Any:
    """onnx, where what it is written and run with is installed too, or `MissingExtraError`."""
    onnx, *_ = (optional(package, "export", "an ONNX file") for package in ("onnx", "onnxscript", "onnxruntime"))
    return onnx


def to_onnx(joint: Joint) -> onnx.ModelProto:
    """The graph in ONNX's operators."""
    held = sum(t.numel() * t.element_size() for t in joint.constants.values())
    if held > MOST:
        raise ExportError(
            f"the weights take {held / 2**30:.1f} GB, and an ONNX file holds 2 at most: export to a .pt2 file, or a "
            "model in smaller numbers."
        )
    with untouched(joint.graph):
        warnings.simplefilter("ignore")
        try:
            # Runtimes optimise by themselves when they load a file; here it takes minutes where there are many slices.
            made: Any = torch.onnx.export(joint.program, dynamo=True, verbose=False, optimize=False)
        except torch.onnx.errors.OnnxExporterError as error:
            raise _named(error) from error
    graph, ours = made.model.graph, joint.inputs + joint.outputs
    names = {name for name, *_ in ours}
    for value in [value for node in graph for value in node.outputs if value.name in names]:
        value.name += "_value"  # an input may be called `embedding`
    for value, (name, *_) in zip((*graph.inputs, *graph.outputs), ours, strict=True):
        value.name = name
    proto: onnx.ModelProto = made.model_proto
    del proto.graph.value_info[:]  # runtimes infer them
    for value, (_, _, sizes) in zip((*proto.graph.input, *proto.graph.output), ours, strict=True):
        for dim, size in zip(value.type.tensor_type.shape.dim, sizes, strict=True):
            if isinstance(size, str):
                dim.dim_param = size  # not the tracer's symbol
    proto.producer_name = "axiograd"
    return proto


def _named(error: BaseException) -> ExportError:
    """Which operator ONNX lacks, and what to do."""
    said = []
    cause: BaseException | None = error
    while cause is not None:
        said.append(str(cause))
        cause = cause.__cause__
    missing = _OPERATOR.search("\n".join(said))
    if missing is None:
        return ExportError(f"PyTorch's ONNX exporter failed: {said[-1].strip().splitlines()[0]}.")
    return ExportError(
        f"ONNX has no operator for {missing[1]}. Write the model with other operators, or export to a .pt2 file, which "
        "takes every operator of PyTorch."
    )


def to_bytes(proto: onnx.ModelProto, card: Card) -> bytes:
    """The file: the graph with its card in it."""
    proto.doc_string = str(card)
    del proto.metadata_props[:]
    proto.metadata_props.add(key=KEY, value=card.to_json())
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def signatures(proto: onnx.ModelProto) -> tuple[Signature, Signature]:
    """Names, dtypes and sizes of inputs and of outputs."""
    onnx = require_onnx()

    def of(values: Iterable[Any]) -> Signature:
        found = []
        for value in values:
            kind = value.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name
            found.append((value.name, dtype, tuple(d.dim_param or d.dim_value for d in kind.shape.dim)))
        return tuple(found)

    return of(proto.graph.input), of(proto.graph.output)


def read_onnx(path: Path) -> Card:
    """The card of a file."""
    onnx = require_onnx()
    try:
        proto = onnx.load(path)
    except Exception as error:  # protobuf's own type differs between its implementations
        raise StorageError(f"{path} is not an ONNX file, or not a complete one.") from error
    said = {each.key: each.value for each in proto.metadata_props}
    if KEY not in said:
        raise StorageError(f"{path} was not written by axiograd: it has no certificate.")
    return Card.from_json(said[KEY])


def runner(proto: onnx.ModelProto) -> Runner:
    """Run a graph with onnxruntime, on as many threads as torch uses."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    session = _tried("load", lambda: onnxruntime.InferenceSession(proto.SerializeToString(), options))
    names = [each.name for each in session.get_outputs()]
    known = {each.name for each in session.get_inputs()}

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = {name: value.detach().cpu().contiguous().numpy() for name, value in inputs.items() if name in known}
        found = _tried("run", lambda: session.run(names, given))
        return {name: torch.from_numpy(value) for name, value in zip(names, found, strict=True)}

    return run


def _tried(what: str, work: Any) -> Any:
    try:
        return work()
    except Exception as error:
        raise ExportError(
            f"onnxruntime cannot {what} the exported graph: {str(error).strip().rstrip('.')}. Many of its kernels are "
            "for float32 alone: try model.float(), or a .pt2 file."
        ) from error
