"""Stripping that keeps the accuracy, on unlabelled images: biases read off the input, weights by least squares.

The model is traced, and a twin of its graph is laid out in which every affine layer y = W h + b, with a batch norm
behind it folded in, is y = W h + b·c(h). Where c = 1 the twin is the original, so both walk side by side. For h of the
twin so far and z = W h + b of the original:

1. v by ridge regression so that c(h) = v · (pooled(h, W h), extremes(h)) is 1 on the images; b·c(h) stands for b.
2. ΔW by ridge regression from patches of h to z − W h − b·c(h), as far as the ReLU behind it lets through. The last
   layer before a residual sum also makes up for what the other branch has lost.

No labels and no training; images that are held out judge every layer.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, export
from torch.export.graph_signature import InputKind
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights

from axiograd._io import progress_bar
from axiograd.errors import ConfigurationError, ConversionError, InputError
from axiograd.homogeneity.conversion.layers import ActivationAtScale, AffineOfDegreeOne, CappedReLU

# --------------------------------------------------------------------------------------------------------------- images

#: With fewer images the constant cannot be told from what they have in common.
_LEAST = 8
#: Images that are worked on at a time.
_CHUNK = 10
#: Penalties that a layer's weights choose from; with the last they stay as they are.
_PENALTIES = (0.03, 0.3, 3.0, math.inf)


@dataclass(frozen=True)
class Calibration:
    """Images, and how they are used; `to_xdnn(..., calibration=images)` is this with the defaults.

    >>> Calibration(torch.randn(32, 3, 8, 8), fit_weights=False).patches
    40
    """

    #: A tensor, or anything that yields batches: tensors, or tuples that begin with one.
    images: Tensor | Iterable[Any]
    #: b → b·c(h); False is the strictly bias-free network.
    read_biases: bool = True
    #: W → W + ΔW by least squares.
    fit_weights: bool = True
    #: Penalty of the weights as a share of the mean diagonal of the Gram matrix; None: the best on images left out.
    ridge: float | None = None
    #: Penalty of c; None: the best by leave-one-out.
    bias_ridge: float | None = None
    #: Places of each image that a regression sees.
    patches: int = 40
    #: Share of the images that are kept back to judge every layer.
    held_out: float = 0.1
    #: No more images than these are read from a loader.
    limit: int = 512
    seed: int = 0
    #: Called with the number of layers done and of all.
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        for name, value in (("ridge", self.ridge), ("bias_ridge", self.bias_ridge)):
            if value is not None and not value >= 0:
                raise ConfigurationError(f"{name}={value}; a penalty must be zero or more.")
        if not 0 <= self.held_out < 1:
            raise ConfigurationError(f"held_out={self.held_out}; it is a share of the images, at least 0 and below 1.")

    @classmethod
    def ensure(cls, given: Any) -> "Calibration":
        return given if isinstance(given, cls) else cls(given)

    def loaded(self, example: Tensor) -> "Calibration":
        """The same with all images in one tensor."""
        if not isinstance(self.images, Iterable):
            raise InputError(f"calibration is a {type(self.images).__name__}; pass a tensor of images or batches.")
        found: list[Tensor] = []
        for batch in [self.images] if isinstance(self.images, Tensor) else self.images:
            x = batch[0] if isinstance(batch, tuple | list) else batch
            if not isinstance(x, Tensor) or not x.is_floating_point():
                kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
                raise InputError(f"calibration has a batch of {kind}; pass floating-point images as the model takes.")
            if x.shape[1:] != example.shape[1:]:
                raise InputError(
                    f"calibration has images of shape {tuple(x.shape[1:])}, the example inputs "
                    f"{tuple(example.shape[1:])}: prepare both alike."
                )
            found.append(x.detach().to(example))
            if sum(map(len, found)) >= self.limit:
                break
        images = torch.cat([example[:0], *found])[: self.limit]
        if len(images) < _LEAST:
            raise InputError(
                f"calibration has {len(images)} images; it needs at least {_LEAST}, and 100 or more are better."
            )
        if not bool(torch.isfinite(images).all()):
            raise InputError("the calibration images have NaN or infinite values.")
        return replace(self, images=images)

    def split(self) -> tuple[Tensor, Tensor]:
        """Loaded images to fit to, and those held out (every n-th)."""
        images: Tensor = self.images  # type: ignore[assignment]  # they are loaded
        step = max(round(1 / self.held_out), 2) if self.held_out else len(images) + 1
        held = torch.arange(len(images)) % step == step - 1
        return images[~held], images[held]


# ---------------------------------------------------------------------------------------------------------- regressions

#: Systems up to this size are solved in double precision: a ridge keeps larger ones well-conditioned enough.
_DOUBLE = 1024
#: Penalties that a constant's reader chooses from by leave-one-out, as shares of the mean eigenvalue.
_READER = tuple(10.0**k for k in (-5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0, 1, 2, 4))
#: Rounds in which targets behind a ReLU are moved to where they are wanted.
_ROUNDS = 3


def constant(
    features: Tensor, blocks: Sequence[int], ridge: float | None, before: Tensor | None = None
) -> tuple[Tensor, float]:
    """v with c + features · v = 1 by ridge regression, c given or 0, and the error of an image that is left out.

    Every block of columns is brought to the same size first. The penalty, if not given, is the best one by
    leave-one-out: the error of an image left out is (t − ŷ)/(1 − H), t = 1 − c, H the diagonal of K (K + λ)⁻¹.

    >>> v, error = constant(torch.tensor([[1.0, 3.0], [1.0, -2.0], [1.0, 0.5]]).double(), [2], 1e-12)
    >>> v.round(decimals=6) + 0, round(error, 6)
    (tensor([1., 0.], dtype=torch.float64), 0.0)
    """
    sizes = [float(part.square().mean().sqrt()) for part in features.split(list(blocks), 1)]
    scales = torch.cat([features.new_full((n,), size or 1.0) for n, size in zip(blocks, sizes, strict=True)])
    scaled = features / scales
    values, vectors = torch.linalg.eigh(scaled @ scaled.T)
    values = values.clamp_min(0)
    target = torch.ones(len(features)).to(features) if before is None else 1 - before.to(features)
    turned = vectors.T @ target
    mean = values.mean().clamp_min(torch.finfo(torch.float64).tiny)
    errors = {}
    for share in _READER if ridge is None else (ridge,):
        kept = values / (values + share * mean)
        left_out = (target - vectors @ (kept * turned)) / (1 - (vectors.square() @ kept)).clamp_min(1e-12)
        errors[share] = float(left_out.square().mean().sqrt())
    best = min(errors, key=lambda share: errors[share])
    dual: Tensor = vectors @ (turned / (values + best * mean))
    return scaled.T @ dual / scales, errors[best]


@dataclass(frozen=True)
class Problem:
    """Rows p [groups, rows, columns] and what the layer gives there and should give, [groups, rows, outputs]."""

    p: Tensor
    given: Tensor
    wanted: Tensor
    #: Rows by which a penalty is chosen, [rows]; the weights are then fitted to all of them.
    judging: Tensor
    #: The next operator is a ReLU: below zero, it does not matter how far.
    gated: bool

    def targets(self, made: Tensor) -> Tensor:
        """What ΔW should add: up to what is wanted, or to anything below zero where the ReLU shuts."""
        if not self.gated:
            return self.wanted - self.given
        return torch.where(self.wanted > 0, self.wanted, made.clamp_max(0)) - self.given

    def error(self, w: Tensor, rows: Tensor) -> float:
        """Of what the next operator gets."""
        made, wanted = self.given[:, rows] + self.p[:, rows] @ w, self.wanted[:, rows]
        return float(((made.relu() - wanted.relu()) if self.gated else (made - wanted)).square().sum())


def change_of_weights(problem: Problem, penalties: Sequence[float]) -> tuple[Tensor, float]:
    """argmin ‖p·w − t‖² + λ‖w‖² for each group, [groups, columns, outputs], and λ as a share of pᵀp's mean diagonal.

    λ is the best of the penalties on the judging rows. Behind a ReLU, t is moved a few times to the nearest value
    that the ReLU does not tell from the one wanted, which never makes the sum of squares larger.

    >>> p = torch.tensor([[[1.0], [2.0]]]).double()
    >>> problem = Problem(p, torch.zeros_like(p), 3 * p, torch.zeros(2, dtype=torch.bool), False)
    >>> change_of_weights(problem, [0.0])[0].round(decimals=6)
    tensor([[[3.]]], dtype=torch.float64)
    """
    if min(problem.p.shape[-2:]) <= _DOUBLE:
        p, given, wanted = problem.p.double(), problem.given.double(), problem.wanted.double()
        problem = replace(problem, p=p, given=given, wanted=wanted)
    best = _best_penalty(problem, penalties)
    solve = _Ridge(problem.p).solver(best)
    w = solve(problem.targets(problem.given))
    for _ in range(_ROUNDS if problem.gated and math.isfinite(best) else 0):
        w = solve(problem.targets(problem.given + problem.p @ w))
    return w, best


def _best_penalty(problem: Problem, penalties: Sequence[float]) -> float:
    """The penalty with the least error on the judging rows; from the largest down, as long as it gets better."""
    judged, fitted = problem.judging.nonzero()[:, 0], (~problem.judging).nonzero()[:, 0]
    best, *smaller = sorted(penalties, reverse=True)
    if not smaller or not len(judged) or not len(fitted):
        return min(penalties)
    ridge, targets = _Ridge(problem.p[:, fitted]), problem.targets(problem.given)[:, fitted]
    least = problem.error(ridge.solver(best)(targets), judged)
    for penalty in smaller:
        error = problem.error(ridge.solver(penalty)(targets), judged)
        if error >= least:
            break
        best, least = penalty, error
    return best


class _Ridge:
    """Normal equations of rows p: by columns, or by rows where there are fewer of them."""

    def __init__(self, p: Tensor) -> None:
        self.p, self.dual = p, p.shape[-2] < p.shape[-1]
        self.gram = p @ p.mT if self.dual else p.mT @ p

    def solver(self, ridge: float) -> Callable[[Tensor], Tensor]:
        """w of targets."""
        p, gram = self.p, self.gram
        if math.isinf(ridge):
            return lambda t: p.new_zeros(p.shape[0], p.shape[2], t.shape[2])
        scale = p.square().sum((-2, -1)) / p.shape[-1]
        penalty = (ridge * scale).clamp_min(torch.finfo(p.dtype).tiny)[:, None]
        factors = torch.linalg.lu_factor(gram + torch.diag_embed(penalty.expand(-1, gram.shape[-1])))
        if self.dual:
            return lambda t: p.mT @ torch.linalg.lu_solve(*factors, t)
        return lambda t: torch.linalg.lu_solve(*factors, p.mT @ t)


# ----------------------------------------------------------------------------------------------------- the twin's graph

_CONVOLUTIONS = {f"conv{n}d" for n in (1, 2, 3)}
_PRODUCTS = {"linear", *_CONVOLUTIONS, *(f"conv_transpose{n}d" for n in (1, 2, 3))}
_NORM = "_native_batch_norm_legit_no_training"
_GATES = {"sigmoid", "hardsigmoid"}
_SMOOTH = {"silu", "hardswish", "gelu", "mish", "elu", "celu", "selu", "softplus", "tanh", "hardtanh"}
_RESHAPES = {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "expand_as", "permute"}
_RESHAPES |= {"transpose", "slice", "contiguous", "clone", "alias"}


def _name(node: Any) -> str:
    """The operator that a node calls, without its namespace and overload."""
    schema = getattr(getattr(node, "target", None), "_schema", None)
    return "" if schema is None else str(schema.name).removeprefix("aten::").removesuffix("_")


def _function(node: fx.Node) -> Any:
    """What a node calls, as the function of torch that people call where there is one: the held step knows those."""
    name = _name(node)
    if name == "view":
        return torch.reshape  # for other memory formats than the example's
    if name == "elu" or name.startswith("_"):  # F.elu has other arguments
        return node.target
    return getattr(torch, name, None) or getattr(F, name, None) or node.target


class _Layout:
    """The twin of a model's graph, in which affine layers have degree 1 and activations are taken at their scale."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        example = torch.cat([example, example])[:2]  # a batch of one would be fixed
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            exported = export(model.eval(), (example,), dynamic_shapes=({0: Dim.AUTO},), strict=False)
            exported = exported.run_decompositions({})
        if not exported.call_spec.out_spec.is_leaf():
            raise ConversionError("calibration is for models that return one tensor: wrap the model so that it does.")
        values = {**exported.state_dict, **exported.constants}
        targets = {
            spec.arg.name: str(spec.target)
            for spec in exported.graph_signature.input_specs
            if spec.kind != InputKind.USER_INPUT
        }
        #: Names of the constants in the model, and their values, by node of its graph.
        self.titles = {node: targets[node.name] for node in exported.graph.nodes if node.name in targets}
        self.constants: dict[Any, Tensor] = {node: values[title].detach() for node, title in self.titles.items()}
        self.root, self.graph = nn.Module(), fx.Graph()
        #: By node of the original: that of the twin, and the twin's c.
        self.twin: dict[fx.Node, fx.Node] = {}
        self.one: dict[fx.Node, fx.Node] = {}
        for node in exported.graph.nodes:
            if node.op == "output":
                self.graph.output(self.twin[node.args[0][0]])
            elif node.op != "placeholder":
                self._visit(node)
            elif node not in self.constants:
                self.twin[node] = self.graph.placeholder(node.name)
        self.converted = fx.GraphModule(self.root, self.graph)

    def _visit(self, node: Any) -> None:
        name, args = _name(node), node.args
        if name == _NORM or self._folds(node):  # together with what reads it
            return
        if self._is_affine(node):
            bias = self.constants.get(args[2]) if len(args) > 2 else None  # noqa: PLR2004
            self._affine(node, node, name, self.constants[args[1]], bias)
        elif node.target is getitem and _name(args[0]) == _NORM:
            self._norm(node, args[0])
        elif name.endswith("dropout"):
            self.twin[node] = self.twin[args[0]]
        elif name == "sym_size":
            self.twin[node] = self.graph.call_method("size", (self.twin[args[0]], args[1]))
        elif args and args[0] in self.one and (activation := _activation_at_scale(node)) is not None:
            self.twin[node] = self._call(activation, name, (self.twin[args[0]], self.one[args[0]]))
        else:
            self.twin[node] = self.graph.node_copy(node, self._copied)
            self.twin[node].target = _function(node)
        if node not in self.one:
            carried = next((self.one[source] for source in node.all_input_nodes if source in self.one), None)
            if carried is not None:
                self.one[node] = carried

    def _is_affine(self, node: Any) -> bool:
        args = node.args
        return _name(node) in _PRODUCTS and args[1] in self.constants and args[0] not in self.constants

    def _folds(self, node: Any) -> bool:
        """Whether a batch norm alone reads this layer, channel by channel, so that both are one."""
        users = list(node.users)
        if not self._is_affine(node) or len(users) != 1 or _name(users[0]) != _NORM:
            return False
        return _name(node) in _CONVOLUTIONS or (_name(node) == "linear" and node.meta["val"].dim() == 2)  # noqa: PLR2004

    def _norm(self, result: fx.Node, norm: Any) -> None:
        """A batch norm, together with the layer before it or as a product per channel."""
        source, *numbers = norm.args
        weight, bias, mean, variance = (self.constants.get(n) for n in numbers[:4])
        folds, product, before = self._folds(source), "scale", None
        own = torch.ones_like(variance)[:, None]  # type: ignore[arg-type]  # in eval mode there are statistics
        if folds:
            product, own = _name(source), self.constants[source.args[1]]
            before = self.constants.get(source.args[2]) if len(source.args) > 2 else None  # noqa: PLR2004
        fused, shift = fuse_conv_bn_weights(own, before, mean, variance, norm.args[-1], weight, bias)  # type: ignore[arg-type]
        self._affine(source if folds else norm, result, product, fused if folds else fused[:, 0], shift)

    def _affine(self, node: Any, result: Any, product: str, weight: Tensor, bias: Tensor | None) -> None:
        """A layer of degree 1 in the place of the nodes from `node` to `result`."""
        source, at = node.args[0], -1 if product == "linear" else 1
        read, made = source.meta["val"].shape, result.meta["val"].shape
        blocks = 2 * read[at], 2 * made[at], 2 * read[at] if len(read) > 2 else 0  # noqa: PLR2004
        options = () if product == "scale" else node.args[3:]
        if product in _CONVOLUTIONS:  # stride, padding, dilation, groups: the graph leaves out defaults at the end
            options = (*options, *(1, 0, 1, 1)[len(options) :])
        title = self.titles.get(node.args[1], node.name).removesuffix(".weight")
        layer = AffineOfDegreeOne(product, options, weight.detach(), bias, blocks, title)
        before = [self.one[source]] if source in self.one else []
        both = self._call(layer, title, (self.twin[source], *before))
        self.twin[result], self.one[result] = (self.graph.call_function(getitem, (both, i)) for i in (0, 1))

    def _call(self, module: nn.Module, title: str, args: tuple[fx.Node, ...]) -> fx.Node:
        path = title.replace(".", "_")
        while hasattr(self.root, path):
            path += "_"
        self.root.add_module(path, module)
        return self.graph.call_module(path, args)

    def _copied(self, node: fx.Node) -> fx.Node:
        if node in self.twin:
            return self.twin[node]
        name = self.titles[node].replace(".", "_")
        if not hasattr(self.root, name):
            self.root.register_buffer(name, self.constants[node])
        return self.graph.get_attr(name)


def calibrated_layout(model: nn.Module, example: Tensor, *, read_biases: bool = True) -> fx.GraphModule:
    """The network that `to_xdnn(..., calibration=images)` makes of this architecture, to load the weights of one into.

    `read_biases` as the calibration had it.

    >>> net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 3)
    >>> sorted(calibrated_layout(net, x).state_dict())
    ['0.bias', '0.reader', '0.weight', '2.bias', '2.reader', '2.weight']
    """
    converted = _Layout(copy.deepcopy(model), example).converted.eval()
    for layer in converted.children():
        if isinstance(layer, AffineOfDegreeOne) and not read_biases:
            layer.bias = layer.reader = None
    converted.input_shape = tuple(example.shape[1:])  # type: ignore[assignment]  # a plain attribute
    return converted


def _activation_at_scale(node: Any) -> nn.Module | None:
    """What stands for an activation that is not homogeneous; None for other operators."""
    name, args = _name(node), node.args
    low, high = {"relu6": (0, 6), "hardtanh": (-1, 1)}.get(name, (None, None))
    low, high = (*args[1:], *(low, high)[len(args) - 1 :])[:2]
    if name in {"relu6", "hardtanh", "clamp"} and low == 0 and isinstance(high, int | float):
        return CappedReLU(float(high))
    # A gate at the output is a probability, which would lose its meaning at another scale.
    if name in _SMOOTH or (name in _GATES and all(user.op != "output" for user in node.users)):
        gate = name in _GATES and _multiplies(node)
        return ActivationAtScale(name, tuple(args[1:]), dict(node.kwargs), gate=gate)
    return None


def _multiplies(node: fx.Node) -> bool:
    """Whether this is a gate: something else is multiplied by it, in another shape or not, and nothing reads it."""
    return bool(node.users) and all(
        _name(user) == "mul" or (_name(user) in _RESHAPES and _multiplies(user)) for user in node.users
    )


# ------------------------------------------------------------------------------------------------------------- fitting

#: The last layer may be this many times as wrong on held-out images as on those that it was fitted to, and some more.
_TIMES, _MORE = 3.0, 0.1
#: Every n-th image chooses the penalty of a layer's weights.
_JUDGING = 5


@dataclass(frozen=True)
class LayerFit:
    """How much of a layer's variance over images and places the twin reproduces: 1 is all of it."""

    name: str
    calibration: float
    held_out: float
    #: Root mean square of c(h) − 1 on held-out images; 0 for a layer without bias.
    bias_error: float
    #: Penalty of the weights, as a share of the mean diagonal of the Gram matrix; NaN where they were not fitted.
    penalty: float = math.nan

    def __str__(self) -> str:
        return f"{self.name}: {self.calibration:.3f} calibration, {self.held_out:.3f} held out"


class OverfittingWarning(UserWarning):
    """Too few calibration images for the weights that are fitted to them."""


def warn_of_overfitting(fits: tuple[LayerFit, ...]) -> None:
    """Compare what the last layer reproduces on the images that it was fitted to and on held-out ones."""
    if fits and 1 - fits[-1].held_out > _TIMES * (1 - fits[-1].calibration) + _MORE:
        warnings.warn(
            f"the last layer reproduces {fits[-1].calibration:.2f} of the original on the calibration images and "
            f"{fits[-1].held_out:.2f} on those held out of them: use more images.",
            OverfittingWarning,
            stacklevel=4,
        )


def _channels_last(images: Tensor) -> Tensor:
    """Convolutions on a processor are twice as fast then."""
    return images.contiguous(memory_format=torch.channels_last) if images.dim() == 4 else images  # noqa: PLR2004


@torch.no_grad()
def calibrated_strip(
    model: nn.Module, example: Tensor, calibration: Calibration
) -> tuple[fx.GraphModule, tuple[LayerFit, ...]]:
    """The twin of a model in which every affine layer has degree 1, fitted to images, and how good each layer is."""
    fitted, held = (list(_channels_last(part).split(_CHUNK)) if len(part) else [] for part in calibration.split())
    converted = _Layout(model, example).converted.eval()
    layers = sum(isinstance(layer, AffineOfDegreeOne) for layer in converted.children())
    fitting = _Fitting(converted, calibration, fitted, held)
    # rich, which draws the bar, is optional.
    with progress_bar("calibration, layers", total=layers, shown=None if find_spec("rich") else False) as update:

        def tell(number: int, name: str) -> None:
            update(completed=number, note=name)
            if calibration.progress is not None:
                calibration.progress(number, layers)

        fitting.fit(tell)
    return converted, tuple(fitting.fits)


class _Fitting(fx.Interpreter):
    """The twin's graph, node by node, on all images: first for the original (c = 1), then for the twin so far.

    The value of a node is a list: of the original for every chunk of images, then of the twin for every chunk.
    """

    def __init__(
        self, twin: fx.GraphModule, calibration: Calibration, fitted: list[Tensor], held: list[Tensor]
    ) -> None:
        super().__init__(twin)
        self.calibration, self.chunks = calibration, [*fitted, *held]
        self.n, self.fitted = len(self.chunks), len(fitted)
        self.generator = torch.Generator().manual_seed(calibration.seed)
        self.fits: list[LayerFit] = []

    def fit(self, tell: Callable[[int, str], None]) -> None:
        """Fit all layers; `tell` is called with the number and the name of each that is done."""
        self.tell = tell
        self.run()

    def run_node(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            return self.chunks * 2
        if (layer := self._module(node, AffineOfDegreeOne)) is not None:
            return self._layer(node, layer)
        results = []
        for i in range(2 * self.n):
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda source: self.env[source][i])  # noqa: B023
            results.append(getattr(self, node.op)(node.target, args, kwargs))
        return results

    def _module(self, node: fx.Node, kind: type) -> Any:
        module = self.module.get_submodule(str(node.target)) if node.op == "call_module" else None
        return module if isinstance(module, kind) else None

    def _layer(self, node: Any, layer: AffineOfDegreeOne) -> list[tuple[Tensor, Tensor]]:
        """Fit a layer, go through it, and say how good it is."""
        calibration, n = self.calibration, self.n
        source = self.env[node.args[0]]
        original, h = source[:n], source[n:]
        before = self.env[node.args[1]][n:] if len(node.args) > 1 else [x.new_zeros(len(x)) for x in h]
        ones = [x.new_ones(len(x)) for x in original]
        z = [layer.with_bias(layer.linear_part(x), one) for x, one in zip(original, ones, strict=True)]
        if not calibration.read_biases:
            layer.bias = layer.reader = None
        made = next(user for user in node.users if user.args[1] == 0)
        other = self._other_branch(made, z[0])
        gated = self._is_gated(made if other is None else next(iter(made.users)))
        penalty = math.nan
        if calibration.fit_weights and layer.has_patches():
            problem = self._problem(layer, h, z, before, other, gated=gated)
            change, penalty = change_of_weights(
                problem, _PENALTIES if calibration.ridge is None else (calibration.ridge,)
            )
            layer.weight += change.transpose(1, 2).reshape(layer.weight.shape).to(layer.weight.dtype)
        if layer.bias is not None:
            features = [layer.features(x, layer.linear_part(x)) for x in h[: self.fitted]]
            layer.reader = nn.Parameter(self._reader(layer, features, before))
        results = [layer(*pair) for pair in zip(h, before, strict=True)]
        pairs = [(y, wanted) for (y, _), wanted in zip(results, z, strict=True)]
        if other is not None:
            pairs = [(y + other[n + i], wanted + other[i]) for i, (y, wanted) in enumerate(pairs)]
        if gated:
            pairs = [(y.relu(), wanted.relu()) for y, wanted in pairs]
        held = [(c - 1).square() for _, c in results[self.fitted :]]
        self.fits.append(
            LayerFit(
                layer.title,
                _reproduced(pairs[: self.fitted], layer.channels),
                _reproduced(pairs[self.fitted :], layer.channels),
                float(torch.cat(held).mean().sqrt()) if layer.bias is not None and held else 0.0,
                penalty,
            )
        )
        self.tell(len(self.fits), layer.title)
        return [*zip(z, ones, strict=True), *results]

    def _reader(self, layer: AffineOfDegreeOne, features: list[Tensor], before: list[Tensor]) -> Tensor:
        known = torch.cat(before[: self.fitted])
        v, _ = constant(torch.cat(features).double(), layer.blocks, self.calibration.bias_ridge, known)
        return v.to(layer.weight.dtype)

    def _problem(
        self,
        layer: AffineOfDegreeOne,
        h: list[Tensor],
        z: list[Tensor],
        before: list[Tensor],
        other: list[Tensor] | None,
        *,
        gated: bool,
    ) -> Problem:
        """The regression of a layer's weights, on sampled places."""
        rows, given, wanted, features = [], [], [], []
        for i, x in enumerate(h[: self.fitted]):
            y, target = layer.linear_part(x), z[i]
            if layer.bias is not None:
                features.append(layer.features(x, y))
            if other is not None:
                y, target = y + other[self.n + i], target + other[i]
            places = y[0].numel() // y.shape[layer.channels]
            every = [torch.randperm(places, generator=self.generator) for _ in x]
            at = torch.stack([one[: self.calibration.patches] for one in every]).to(x.device)
            rows.append(layer.patches(x, at))
            given.append(layer.at_places(y, at))
            wanted.append(layer.at_places(target, at))
        made = torch.cat(given)
        images = sum(map(len, self.chunks[: self.fitted]))
        image = torch.arange(images, device=made.device).repeat_interleave(len(made) // images)
        if layer.bias is not None:
            c = torch.cat(features) @ self._reader(layer, features, before) + torch.cat(before[: self.fitted])
            made += c[image][:, None] * layer.bias
        p, made, target = (
            part.reshape(len(part), layer.groups, -1).transpose(0, 1)
            for part in (torch.cat(rows), made, torch.cat(wanted))
        )
        return Problem(p, made, target, image % _JUDGING == _JUDGING - 1, gated)

    def _other_branch(self, made: fx.Node, like: Tensor) -> list[Tensor] | None:
        """The other term of the sum that this layer goes into, if it has been computed."""
        users = list(made.users)
        if len(users) != 1 or users[0].target is not torch.add or users[0].kwargs:
            return None
        terms = [self.env.get(term) for term in users[0].all_input_nodes if term is not made]
        return terms[0] if len(terms) == 1 and terms[0] is not None and terms[0][0].shape == like.shape else None

    def _is_gated(self, node: fx.Node) -> bool:
        """Whether everything that reads this is a ReLU."""
        return bool(node.users) and all(
            user.target is torch.relu or self._module(user, CappedReLU) is not None for user in node.users
        )


def _reproduced(pairs: list[tuple[Tensor, Tensor]], channels: int) -> float:
    """1 − ‖y − z‖² / ‖z − mean of its channel‖²."""
    if not pairs:
        return math.nan
    error = sum(float((y - z).double().square().sum()) for y, z in pairs)
    rows = [z.movedim(channels, 0).flatten(1) for _, z in pairs]
    mean = torch.stack([z.double().sum(1) for z in rows]).sum(0) / sum(z.shape[1] for z in rows)
    spread = sum(float((z - mean[:, None]).square().sum()) for z in rows)
    return 1.0 - error / spread if spread > 0 else float(error == 0)
