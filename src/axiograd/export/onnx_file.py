"""ONNX files: how a joint graph becomes one, runs, and is recognised as unchanged."""

from __future__ import annotations

import hashlib
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from axiograd.errors import ExportError, MissingExtraError, StorageError
from axiograd.export.card import Card, Signature
from axiograd.export.joint import Joint
from axiograd.export.rounding import is_gate
from axiograd.export.subject import Runner
from axiograd.homogeneity import conversion
from axiograd.homogeneity.nodes import Location, locate
from axiograd.homogeneity.program import untouched

if TYPE_CHECKING:
    import onnx

KEY, DIGEST = "axiograd", "axiograd.sha256"
#: What a protocol buffer can hold, less what is added to it.
MOST = 2**31 - 2**20
_CONVERSION = Path(conversion.__file__).parent
_NODE = re.compile(r"target=torch\.ops\.(?P<op>\w+\.\w+)")


def require_onnx() -> Any:
    """The three packages, or `MissingExtraError`."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtraError(package, "export", "an ONNX file") from error
    import onnx

    return onnx


def to_onnx(joint: Joint) -> tuple[onnx.ModelProto, bool]:
    """The graph in ONNX's operators, and whether its values have the names of the joint graph's nodes."""
    require_onnx()
    held = sum(t.numel() * t.element_size() for t in joint.graph.buffers())
    if held > MOST:
        raise ExportError(
            f"the weights take {held / 2**30:.1f} GB, and an ONNX file holds 2 at most: export to a .pt2 file, or a "
            "model in smaller numbers."
        )
    with untouched(joint.graph), _linear_rules():
        warnings.simplefilter("ignore")
        try:
            made = torch.onnx.export(
                _program(joint),
                input_names=list(joint.inputs),
                output_names=list(joint.outputs),
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise _named(error, joint) from error
        if made is None:
            raise ExportError("PyTorch's ONNX exporter returned nothing.")
        proto: onnx.ModelProto = made.model_proto
    _name_sizes(proto, joint)
    proto.producer_name = "axiograd"
    return proto, "program" not in vars(joint)  # what is traced once more is named anew


@contextmanager
def _linear_rules() -> Iterator[None]:
    """The optimizer without its rule for slices that are a split: it compares every node with every slice.

    That was nine tenths of an export of a Swin transformer, and there is no option for it.
    """
    from onnxscript import rewriter

    try:
        from onnxscript.rewriter.rules.common import slice_split_rule

        every = rewriter._DEFAULT_REWRITE_RULES  # noqa: SLF001
    except (ImportError, AttributeError):  # of another version: as right, and slower
        yield
        return
    rewriter._DEFAULT_REWRITE_RULES = tuple(rule for rule in every if rule is not slice_split_rule)  # noqa: SLF001
    try:
        yield
    finally:
        rewriter._DEFAULT_REWRITE_RULES = every  # noqa: SLF001


def _program(joint: Joint) -> ExportedProgram:
    """The graph as PyTorch's exporter takes it, without being traced once more by torch.export, nor by the exporter.

    Each of them would be a third of the time. The exporter decomposes what it knows nothing of; there is seldom any.
    What works in place, on tensors that no input reaches, has to be traced.
    """
    graph, held, nodes = fx.Graph(), dict(joint.graph.named_buffers()), list(joint.graph.graph.nodes)
    used = {node.target for node in nodes if node.op == "call_function"}
    if any(getattr(each, "_schema", None) is not None and each._schema.is_mutable for each in used):  # noqa: SLF001
        return joint.program
    copies: dict[fx.Node, fx.Node] = {}
    inputs = []
    for node in sorted(nodes, key=lambda n: n.op != "get_attr"):  # weights come before the inputs
        if node.op == "get_attr" and node.target in held:
            copies[node] = graph.placeholder(f"held_{len(copies)}")  # modules may have names such as `block-1`
            copies[node].meta.update(node.meta)
            inputs.append(InputSpec(InputKind.BUFFER, TensorArgument(copies[node].name), node.target, persistent=True))
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "placeholder":
            inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(copies[node].name), None))
    returned: Any = graph.output_node().args[0]
    results = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(n.name), None) for n in returned]
    program = ExportedProgram(joint.graph, graph, ExportGraphSignature(inputs, results), held, {}, [])

    def run_decompositions(table: Mapping[Any, Any], *_: Any, **__: Any) -> ExportedProgram:
        return joint.program.run_decompositions(dict(table)) if used & table.keys() else program

    program.run_decompositions = run_decompositions
    return program


def _named(error: Exception, joint: Joint) -> ExportError:
    """Which operator ONNX lacks, where it comes from, and what to do."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None:
        chain.append(current)
        current = current.__cause__
    ops = [match["op"] for each in chain for match in _NODE.finditer(str(each))]
    if not ops:
        return ExportError(f"PyTorch's ONNX exporter failed: {str(chain[-1]).strip().splitlines()[0]}.")
    op = ops[0]
    near = op.removesuffix("_backward").split(".")[-1].strip("_")
    # A composite operator is traced by its own name, and its kernel's is longer.
    nodes = [n for n in joint.forward if near in str(n.target) or near.startswith(_word(n.target))]
    place = locate(nodes[0]) if nodes else Location()
    place = replace(place, module=place.module.partition(".")[2])  # within the user's model
    if Path(place.source).absolute().is_relative_to(_CONVERSION):  # a lifted model's, not the user's
        place = Location(place.module)
    where = f" ({' '.join(filter(None, (place.module, place.source)))})" if place.module or place.source else ""
    code, what = (f", in the line `{place.code}`", "line") if place.code else ("", "layer")
    return ExportError(
        f"ONNX has no operator for {op}{where}{code}. Write that {what} with other operators, or export to a .pt2 "
        "file, which takes every operator of PyTorch."
    )


def _word(target: object) -> str:
    """The name of an operator alone: `grid_sampler` of aten.grid_sampler.default; of anything else a blank."""
    parts = str(target).split(".")
    return parts[1] if parts[0] == "aten" else " "


def _name_sizes(proto: onnx.ModelProto, joint: Joint) -> None:
    """Free sizes get names that a reader understands, in place of the tracer's symbols."""
    names: dict[str, str] = {}
    for value, free in zip(proto.graph.input, joint.dynamic, strict=True):
        for i, name in free.items():
            names.setdefault(value.type.tensor_type.shape.dim[i].dim_param, name)
    del proto.graph.value_info[:]  # runtimes infer them
    for value in (*proto.graph.input, *proto.graph.output):
        for i, size in enumerate(value.type.tensor_type.shape.dim):
            if size.dim_param:
                size.dim_param = names.get(size.dim_param, f"{value.name}_{i}")  # not the tracer's formula


def to_bytes(proto: onnx.ModelProto, card: Card) -> bytes:
    """The file: the model with its card in it, and at the very end the hash of everything before.

    Two protocol buffers, one after the other, are one with the fields of both: so the hash can cover what precedes it.
    """
    onnx = require_onnx()
    proto.doc_string = str(card)
    del proto.metadata_props[:]
    proto.metadata_props.add(key=KEY, value=card.to_json())
    content = serialised(proto)
    tail = onnx.ModelProto()
    tail.metadata_props.add(key=DIGEST, value=hashlib.sha256(content).hexdigest())
    ending: bytes = tail.SerializeToString(deterministic=True)
    return content + ending


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
    """The card of a file, and whether the file is unmodified."""
    onnx = require_onnx()
    content = path.read_bytes()
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except Exception as error:  # protobuf's own type differs between its implementations
        raise StorageError(f"{path} is not an ONNX file, or not a complete one.") from error
    said = {each.key: each.value for each in proto.metadata_props}
    if KEY not in said:
        raise StorageError(f"{path} was not written by axiograd: it says nothing about a certificate.")
    tail = onnx.ModelProto()
    tail.metadata_props.add(key=DIGEST, value=said.get(DIGEST, ""))
    ending = tail.SerializeToString(deterministic=True)
    before = content[: -len(ending)]
    intact = content.endswith(ending) and hashlib.sha256(before).hexdigest() == said.get(DIGEST)
    return Card.from_json(said[KEY], intact=intact)


def serialised(proto: onnx.ModelProto) -> bytes:
    """The bytes of a graph, whose constants may take more than the weights alone."""
    try:
        content: bytes = proto.SerializeToString(deterministic=True)
    except Exception as error:  # protobuf's own type differs between its implementations, and does not say why
        held = sum(len(each.raw_data) for each in proto.graph.initializer)
        if held > MOST:
            raise ExportError(
                f"the weights and constants take {held / 2**30:.1f} GB, and an ONNX file holds 2 at most: export to a "
                ".pt2 file, or a model in smaller numbers."
            ) from error
        raise ExportError(
            f"the graph of {held / 2**30:.1f} GB cannot be written; most likely there is not enough memory for another "
            "copy of it."
        ) from error
    return content


def _unable(what: str, error: Exception) -> ExportError:
    return ExportError(
        f"onnxruntime cannot {what} the exported graph: {str(error).strip().rstrip('.')}. Many of its kernels are for "
        "float32 alone: try model.float(), or a .pt2 file."
    )


def with_gates(proto: onnx.ModelProto, joint: Joint) -> Runner:
    """Run a graph so that it also gives its gates, under the names of the joint graph's nodes."""
    outputs = proto.graph.output
    before = len(outputs)
    have = {name for node in proto.graph.node for name in node.output} - {each.name for each in outputs}
    try:  # on the graph itself: a copy would hold all weights once more
        for node in joint.graph.graph.nodes:
            if node.name in have and is_gate(node, node.meta.get("val")):
                outputs.add(name=node.name)
        return runner(proto)
    finally:
        del outputs[before:]


def runner(proto: onnx.ModelProto) -> Runner:
    """Run a graph with onnxruntime, on as many threads as torch uses."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:  # a session keeps bytes that it is given, and not those of a file
        path = Path(folder, "model.onnx")
        path.write_bytes(serialised(proto))
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise _unable("load", error) from error
    names = [each.name for each in session.get_outputs()]
    known = {each.name for each in session.get_inputs()}

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = {name: value.detach().cpu().contiguous().numpy() for name, value in inputs.items() if name in known}
        try:
            found = session.run(names, given)
        except Exception as error:
            raise _unable("run", error) from error
        return {name: torch.from_numpy(value) for name, value in zip(names, found, strict=True)}

    return run
