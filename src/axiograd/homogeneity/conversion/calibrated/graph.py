"""From a model to the graph of a calibrated strip: affine layers with their norms folded, caps, and what stays."""

import copy
import warnings
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, export
from torch.export.graph_signature import InputKind

from axiograd.errors import ConversionError
from axiograd.homogeneity.conversion.calibrated.functions import copied
from axiograd.homogeneity.conversion.calibrated.layers import (
    ActivationAtScale,
    AffineOfDegreeOne,
    CappedReLU,
    feature_blocks,
    scale_channels,
)
from axiograd.homogeneity.tracing.nodes import op_name

_CONVOLUTIONS = {f"aten::conv{n}d" for n in (1, 2, 3)} | {f"aten::conv_transpose{n}d" for n in (1, 2, 3)}
_AFFINE = {*_CONVOLUTIONS, "aten::linear"}
_NORMS = {"aten::batch_norm", "aten::_native_batch_norm_legit_no_training"}
_CAPS = {"aten::hardtanh", "aten::relu6", "aten::clamp"}
_GATES = {"aten::sigmoid", "aten::hardsigmoid"}
_SMOOTH = {
    f"aten::{name}"
    for name in ("silu", "hardswish", "gelu", "mish", "elu", "celu", "selu", "softplus", "tanh", "hardtanh")
}
_RESHAPES = {
    f"aten::{name}"
    for name in ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "expand_as", "permute",
                 "transpose", "slice", "contiguous", "clone", "alias")
}  # fmt: skip
_IDLE = {"aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout"}


@dataclass(frozen=True)
class Site:
    """An affine layer of the original: the node that makes its pre-activation, and the layer that takes its place."""

    name: str
    #: Nodes of the original's graph: what it reads, and what it makes with its norm folded.
    source: fx.Node
    result: fx.Node
    layer: AffineOfDegreeOne


@dataclass
class CalibrationPlan:
    """The original's graph, the converted one, and which node of the one stands for which of the other."""

    graph: fx.Graph
    constants: dict[fx.Node, Tensor]
    sites: list[Site]
    converted: fx.GraphModule
    twin: dict[fx.Node, fx.Node]


def _args(node: fx.Node) -> tuple[Any, ...]:
    """Call whose types the operator's schema says, and fx's own types do not."""
    return node.args


def plan(model: nn.Module, example: Tensor) -> CalibrationPlan:
    """Trace the model in eval mode and lay out its converted twin, not fitted yet."""
    example = torch.cat([example, example])[:2] if len(example) == 1 else example[:2]  # one image fixes the batch
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        exported = export(model.eval(), (example,), dynamic_shapes=({0: Dim.AUTO},), strict=False)
        exported = exported.run_decompositions({})
    if not exported.call_spec.out_spec.is_leaf():
        raise ConversionError("calibration is for models that return one tensor: wrap the model so that it does.")
    constants: dict[fx.Node, Tensor] = {}
    nodes = {node.name: node for node in exported.graph.nodes}
    titles: dict[fx.Node, str] = {}
    for spec in exported.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT and spec.target is not None:
            value = exported.state_dict.get(spec.target, exported.constants.get(spec.target))
            constants[nodes[spec.arg.name]] = value.detach()
            titles[nodes[spec.arg.name]] = spec.target
    return _Layout(exported.graph, constants, titles).build()


def calibrated_layout(model: nn.Module, example: Tensor, *, read_biases: bool = True) -> fx.GraphModule:
    """The network that `to_xdnn(..., calibration=images)` makes of this architecture, to load the weights of one into.

    `read_biases` as the calibration had it.

    >>> net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 3)
    >>> sorted(calibrated_layout(net, x).state_dict())
    ['0.bias', '0.reader', '0.weight', '2.bias', '2.reader', '2.weight']
    """
    layout = plan(copy.deepcopy(model), example)
    if not read_biases:
        for site in layout.sites:
            site.layer.bias = site.layer.reader = None
    converted = layout.converted.eval()
    converted.input_shape = tuple(example.shape[1:])  # type: ignore[assignment]  # a plain attribute
    return converted


class _Layout:
    def __init__(self, graph: fx.Graph, constants: dict[fx.Node, Tensor], titles: dict[fx.Node, str]) -> None:
        self.graph, self.constants, self.titles = graph, constants, titles
        self.new, self.root = fx.Graph(), nn.Module()
        self.twin: dict[fx.Node, fx.Node] = {}
        #: c in the new graph by the node of the original that carries it: a site's result, and what is made of it.
        self.one: dict[fx.Node, fx.Node] = {}
        self.sites: list[Site] = []

    def build(self) -> CalibrationPlan:
        for node in self.graph.nodes:
            if node in self.constants or node in self.twin:
                continue
            if node.op == "placeholder":
                self.twin[node] = self.new.placeholder(node.name)
            elif node.op == "output":
                self.new.output(self.twin[_args(node)[0][0]])
            else:
                self._visit(node)
                if node not in self.one and (before := self._before(node)) is not None:
                    self.one[node] = before
        return CalibrationPlan(self.graph, self.constants, self.sites, fx.GraphModule(self.root, self.new), self.twin)

    def _visit(self, node: fx.Node) -> None:
        name, args = op_name(node), _args(node)
        if name in _AFFINE and self._constant(args[1]) is not None and args[0] not in self.constants:
            bias = self._constant(args[2]) if len(args) > 2 else None  # noqa: PLR2004
            self._affine(node, node.target, args[3:], self._constant(args[1]), bias)
        elif name in _NORMS:
            scale, shift = self._norm(node)
            self._affine(node, scale_channels, (), scale, shift)
        elif name in _CAPS and (cap := _cap(node)) is not None and args[0] in self.one:
            path = f"cap{len(self.sites)}"
            self.root.add_module(path, CappedReLU(cap))
            self.twin[node] = self.new.call_module(path, (self.twin[args[0]], self.one[args[0]]))
        elif (name in _SMOOTH or (name in _GATES and _inside(node))) and args[0] in self.one:
            path = f"{name.removeprefix('aten::')}{len(self.root._modules)}"  # noqa: SLF001
            gate = name in _GATES and _multiplies(node)
            made = ActivationAtScale(node.target, tuple(args[1:]), dict(node.kwargs), gate=gate)
            self.root.add_module(path, made)
            self.twin[node] = self.new.call_module(path, (self.twin[args[0]], self.one[args[0]]))
        elif name in _IDLE:
            self.twin[node] = self.twin[args[0]]
        else:
            self.twin[node] = copied(self.new, node, self._copied)

    def _before(self, node: fx.Node) -> fx.Node | None:
        """The last c among what a node reads."""
        return next((self.one[source] for source in node.all_input_nodes if source in self.one), None)

    def _constant(self, item: Any) -> Tensor | None:
        return self.constants.get(item) if isinstance(item, fx.Node) else None

    def _copied(self, node: fx.Node) -> fx.Node:
        if node in self.constants:
            name = self.titles[node].replace(".", "_")
            if not hasattr(self.root, name):
                self.root.register_buffer(name, self.constants[node])
            return self.new.get_attr(name)
        return self.twin[node]

    def _norm(self, node: fx.Node) -> tuple[Tensor, Tensor]:
        """y = scale · h + shift."""
        args = _args(node)
        weight, bias, mean, variance = (self._constant(n) for n in args[1:5])
        if mean is None or variance is None:
            raise ConversionError(f"{node.name} normalises by its batch, and has no statistics to fold: call eval().")
        scale = torch.rsqrt(variance.double() + float(args[-1] if "legit" in op_name(node) else args[7]))
        scale = scale if weight is None else scale * weight.double()
        shift = -mean.double() * scale if bias is None else bias.double() - mean.double() * scale
        return scale.to(mean.dtype), shift.to(mean.dtype)

    def _affine(self, node: fx.Node, product: Any, options: tuple[Any, ...], weight: Any, bias: Tensor | None) -> None:
        result, args = node, _args(node)
        following = list(node.users)
        if (
            op_name(node) in _CONVOLUTIONS | {"aten::linear"}
            and len(following) == 1
            and self._folds(node, following[0])
        ):
            scale, shift = self._norm(following[0])
            weight, bias = _folded(weight, bias, scale, shift, transposed="transpose" in op_name(node), node=node)
            result = following[0]
        if "legit" in op_name(result):
            result = next(user for user in result.users if user.target is getitem)
        at = -1 if op_name(node) == "aten::linear" else 1
        blocks = feature_blocks(args[0].meta["val"].shape, result.meta["val"].shape, at)
        layer = AffineOfDegreeOne(product, options, weight, bias, blocks)
        title = self.titles.get(args[1], node.name) if isinstance(args[1], fx.Node) else node.name
        path = title.removesuffix(".weight").replace(".", "_")
        while hasattr(self.root, path):
            path += "_"
        self.root.add_module(path, layer)
        before = self.one.get(args[0])
        both = self.new.call_module(path, (self.twin[args[0]], *([] if before is None else [before])))
        y, one = self.new.call_function(getitem, (both, 0)), self.new.call_function(getitem, (both, 1))
        for stands_for in {node, result, *following} if result is not node else {node}:
            self.twin[stands_for], self.one[stands_for] = y, one
        self.sites.append(Site(title.removesuffix(".weight"), args[0], result, layer))

    def _folds(self, node: fx.Node, norm: fx.Node) -> bool:
        channels_are_first = op_name(node) != "aten::linear" or node.meta["val"].dim() == 2  # noqa: PLR2004
        return op_name(norm) in _NORMS and norm.args[0] is node and channels_are_first


def _folded(
    weight: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor, *, transposed: bool, node: fx.Node
) -> tuple[Tensor, Tensor]:
    """scale · (W h + b) + shift as W' h + b'."""
    if transposed:
        args = _args(node)
        groups = int(args[6]) if len(args) > 6 else 1  # noqa: PLR2004
        split = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        shape = [groups, 1, -1] + [1] * (weight.dim() - 2)
        folded = (split * scale.view(shape)).reshape(weight.shape)
    else:
        folded = weight * scale.view([-1] + [1] * (weight.dim() - 1))
    return folded, shift if bias is None else shift + bias * scale


def _multiplies(node: fx.Node) -> bool:
    """Whether this is a gate: something else is multiplied by it, in another shape or not, and nothing reads it."""
    return bool(node.users) and all(
        op_name(user) == "aten::mul" or (op_name(user) in _RESHAPES and _multiplies(user)) for user in node.users
    )


def _inside(node: fx.Node) -> bool:
    """Whether this is not an output, whose probabilities would lose their meaning at another scale."""
    return bool(node.users) and all(user.op != "output" for user in node.users)


def _cap(node: fx.Node) -> float | None:
    """The upper bound of a ReLU with a cap."""
    if op_name(node) == "aten::relu6":
        return 6.0
    default = (-1.0, 1.0) if op_name(node) == "aten::hardtanh" else (None, None)
    low, high = (*node.args[1:], *default[len(node.args) - 1 :])[:2]
    return float(high) if low == 0 and isinstance(high, int | float) else None
