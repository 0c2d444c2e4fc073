"""Stripping that keeps the accuracy, on unlabelled images: biases read off the input, weights by least squares.

The model is traced, and a twin of its graph is laid out in which every affine layer y = W h + b, with a batch norm
behind it folded in, is y = W h + b·c(h). Original and twin then walk side by side. For h of the twin so far and
z = W h + b of the original:

1. v by ridge regression so that c(h) = v · (pooled(h, W h), extremes(h)) is 1 on the images; b·c(h) stands for b.
2. ΔW by ridge regression from patches of h to z − W h − b·c(h), as far as the ReLU behind it lets through. The last
   layer before a residual sum also makes up for what the other branch has lost.

No labels and no training; images that are held out judge every layer.
"""

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, export
from torch.export.graph_signature import InputKind
from torch.nn import functional as F

from axiograd._io import progress_bar
from axiograd.errors import ConfigurationError, ConversionError, InputError
from axiograd.homogeneity.conversion.layers import ActivationAtScale, AffineOfDegreeOne, CappedReLU
from axiograd.homogeneity.conversion.scale import per_sample

# --------------------------------------------------------------------------------------------------------------- images

#: With fewer the constant is not to be told from what the images have in common.
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
    #: Fit what the next ReLU lets through, and leave it free how far below zero the rest is.
    through_gates: bool = True
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
        if self.patches < 1 or self.limit < _LEAST:
            raise ConfigurationError(
                f"patches={self.patches}, limit={self.limit}; they must be at least 1 and {_LEAST}."
            )

    @property
    def penalties(self) -> tuple[float, ...]:
        """Those that a layer's weights choose from."""
        return _PENALTIES if self.ridge is None else (self.ridge,)

    @contextmanager
    def shown(self, layers: int) -> Iterator[Callable[[str], None]]:
        """A bar for the layers, of which each is told by its name when it is done."""
        done = itertools.count(1)
        # A bar is no reason to need the library that draws it.
        shown = None if find_spec("rich") is not None else False
        with progress_bar("calibration, layers", total=layers, shown=shown) as update:

            def tell(name: str) -> None:
                number = next(done)
                update(completed=number, note=name)
                if self.progress is not None:
                    self.progress(number, layers)

            yield tell

    @classmethod
    def ensure(cls, given: Any) -> "Calibration":
        return given if isinstance(given, cls) else cls(given)


def _read_images(calibration: Calibration, example: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The images in chunks: those to fit to, and those held out (every n-th)."""
    images = _collect(calibration, example)
    _check(images)
    step = round(1 / calibration.held_out) if calibration.held_out else len(images) + 1
    held = torch.arange(len(images)) % max(step, 2) == max(step, 2) - 1
    return list(images[~held].split(_CHUNK)), list(images[held].split(_CHUNK)) if bool(held.any()) else []


def _collect(calibration: Calibration, example: Tensor) -> Tensor:
    given = calibration.images
    if not isinstance(given, Tensor) and not isinstance(given, Iterable):
        raise InputError(f"calibration is a {type(given).__name__}; pass a tensor of images or batches of them.")
    found: list[Tensor] = []
    for batch in [given] if isinstance(given, Tensor) else given:
        x = batch[0] if isinstance(batch, tuple | list) else batch
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
            raise InputError(f"calibration has a batch of {kind}; pass floating-point images as the model takes them.")
        if x.shape[1:] != example.shape[1:]:
            raise InputError(
                f"calibration has images of shape {tuple(x.shape[1:])}, the example inputs {tuple(example.shape[1:])}: "
                "prepare both alike."
            )
        found.append(x.detach().to(example))
        if sum(map(len, found)) >= calibration.limit:
            break
    return torch.cat(found)[: calibration.limit] if found else example[:0]


def _check(images: Tensor) -> None:
    if len(images) < _LEAST:
        raise InputError(
            f"calibration has {len(images)} images; it needs at least {_LEAST}, and 100 or more are better."
        )
    if not bool(torch.isfinite(images).all()):
        bad = int((~torch.isfinite(images.flatten(1)).all(1)).nonzero()[0])
        raise InputError(f"calibration image {bad} has NaN or infinite values.")
    flat = images.flatten(1)
    if flat.shape[1] > 1 and bool((flat == flat[:, :1]).all()):
        raise InputError("the calibration images are constant: every image has one value everywhere; pass real ones.")
    if bool((flat == flat[:1]).all()):
        raise InputError("the calibration images are all the same; pass different ones.")


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

    def error(self, made: Tensor, rows: Tensor) -> float:
        """Of what the next operator gets."""
        wanted = self.wanted[:, rows]
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
    rows, columns = problem.p.shape[-2:]
    if min(rows, columns) <= _DOUBLE:
        p, given, wanted = problem.p.double(), problem.given.double(), problem.wanted.double()
        problem = replace(problem, p=p, given=given, wanted=wanted)
    best = _best(problem, penalties)
    solve = _System(problem.p).solver(best) if math.isfinite(best) else _nothing(problem.p)
    w = solve(problem.targets(problem.given))
    for _ in range(_ROUNDS if problem.gated and math.isfinite(best) else 0):
        w = solve(problem.targets(problem.given + problem.p @ w))
    return w, best


def _best(problem: Problem, penalties: Sequence[float]) -> float:
    """The penalty with the least error on the judging rows; from the largest down, as long as it gets better."""
    judged, fitted = problem.judging.nonzero()[:, 0], (~problem.judging).nonzero()[:, 0]
    ordered = sorted(penalties, reverse=True)
    if len(ordered) == 1 or not len(judged) or not len(fitted):
        return ordered[-1]
    part, target = _System(problem.p[:, fitted]), problem.targets(problem.given)[:, fitted]
    best, least = ordered[0], math.inf
    for share in ordered:
        w = (part.solver(share) if math.isfinite(share) else _nothing(problem.p))(target)
        error = problem.error(problem.given[:, judged] + problem.p[:, judged] @ w, judged)
        if error >= least:
            break
        best, least = share, error
    return best


def _nothing(p: Tensor) -> Callable[[Tensor], Tensor]:
    """The solution under an infinite penalty: the weights stay as they are."""
    return lambda t: p.new_zeros(p.shape[0], p.shape[2], t.shape[2])


class _System:
    """Normal equations of rows p: by columns, or by rows where there are fewer of them."""

    def __init__(self, p: Tensor) -> None:
        self.p, self.dual = p, p.shape[-2] < p.shape[-1]
        self.gram = p @ p.mT if self.dual else p.mT @ p

    def solver(self, ridge: float) -> Callable[[Tensor], Tensor]:
        """w of targets."""
        p, gram = self.p, self.gram
        scale = p.square().sum((-2, -1)) / p.shape[-1]
        penalty = (ridge * scale).clamp_min(torch.finfo(p.dtype).tiny)[:, None, None]
        whole = gram + penalty * torch.eye(gram.shape[-1], dtype=p.dtype, device=p.device)
        factor, failed = torch.linalg.cholesky_ex(whole)

        def solve(right: Tensor) -> Tensor:
            # A tiny penalty may leave rounding below zero, which elimination does not mind.
            if bool(failed.any()):
                found: Tensor = torch.linalg.solve(whole, right)
                return found
            return torch.cholesky_solve(right, factor)

        return (lambda t: p.mT @ solve(t)) if self.dual else (lambda t: solve(p.mT @ t))


# ----------------------------------------------------------------------------------------------------- the twin's graph

_CONVOLUTIONS = {f"conv{n}d" for n in (1, 2, 3)} | {f"conv_transpose{n}d" for n in (1, 2, 3)}
_NORMS = {"batch_norm", "_native_batch_norm_legit_no_training"}
_CAPS = {"hardtanh", "relu6", "clamp"}
_GATES = {"sigmoid", "hardsigmoid"}
_SMOOTH = {"silu", "hardswish", "gelu", "mish", "elu", "celu", "selu", "softplus", "tanh", "hardtanh"}
_RESHAPES = {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "expand_as", "permute"}
_RESHAPES |= {"transpose", "slice", "contiguous", "clone", "alias"}
_IDLE = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}


def _name(node: fx.Node) -> str:
    """The operator that a node calls, without its namespace and overload."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name).removeprefix("aten::").removesuffix("_")


def _args(node: fx.Node) -> tuple[Any, ...]:
    """Arguments whose types the operator's schema says, and fx's own types do not."""
    return node.args


def _function(node: fx.Node) -> Any:
    """What a node calls, as the function of torch that people call where there is one: the held step knows those."""
    name = _name(node)
    if name == "sym_size":
        return torch.Tensor.size
    if name == "view":
        return torch.reshape  # for other memory formats than the example's
    if name == "elu" or name.startswith("_"):  # F.elu has other arguments
        return node.target
    return getattr(torch, name, None) or getattr(F, name, None) or node.target


@dataclass(frozen=True)
class Site:
    """An affine layer of the original: the node that makes its pre-activation, and the layer that takes its place."""

    name: str
    #: Nodes of the original's graph: what it reads, and what it makes with its norm folded.
    source: fx.Node
    result: fx.Node
    layer: AffineOfDegreeOne


class Layout:
    """The original's graph, its twin, and which node of the one stands for which of the other."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        example = torch.cat([example, example])[:2]  # a batch of one would be fixed
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            exported = export(model.eval(), (example,), dynamic_shapes=({0: Dim.AUTO},), strict=False)
            exported = exported.run_decompositions({})
        if not exported.call_spec.out_spec.is_leaf():
            raise ConversionError("calibration is for models that return one tensor: wrap the model so that it does.")
        self.graph = exported.graph
        self.constants: dict[fx.Node, Tensor] = {}
        #: Names of the constants in the model.
        self.titles: dict[fx.Node, str] = {}
        nodes = {node.name: node for node in self.graph.nodes}
        for spec in exported.graph_signature.input_specs:
            if spec.kind != InputKind.USER_INPUT and spec.target is not None:
                value = exported.state_dict.get(spec.target, exported.constants.get(spec.target))
                self.constants[nodes[spec.arg.name]] = value.detach()
                self.titles[nodes[spec.arg.name]] = spec.target
        self.new, self.root = fx.Graph(), nn.Module()
        self.twin: dict[fx.Node, fx.Node] = {}
        #: c in the new graph by the node of the original that carries it: a site's result, and what is made of it.
        self.one: dict[fx.Node, fx.Node] = {}
        self.sites: list[Site] = []
        for node in self.graph.nodes:
            if node in self.constants or node in self.twin:
                continue
            if node.op == "placeholder":
                self.twin[node] = self.new.placeholder(node.name)
            elif node.op == "output":
                self.new.output(self.twin[_args(node)[0][0]])
            else:
                self._visit(node)
        self.converted = fx.GraphModule(self.root, self.new)

    def _visit(self, node: fx.Node) -> None:
        name, args = _name(node), _args(node)
        if name in {*_CONVOLUTIONS, "linear"} and args[1] in self.constants and args[0] not in self.constants:
            bias = self._constant(args[2]) if len(args) > 2 else None  # noqa: PLR2004
            self._affine(node, name, args[3:], self.constants[args[1]], bias)
        elif name in _NORMS:
            scale, shift = self._norm(node)
            self._affine(node, "scale", (), scale, shift)
        elif name in _CAPS and (cap := _cap(node)) is not None and args[0] in self.one:
            self._activation(node, f"cap{len(self.sites)}", CappedReLU(cap))
        elif (name in _SMOOTH or (name in _GATES and _is_inside(node))) and args[0] in self.one:
            gate = name in _GATES and _multiplies(node)
            activation = ActivationAtScale(name, tuple(args[1:]), dict(node.kwargs), gate=gate)
            self._activation(node, f"{name}{len(self.root._modules)}", activation)  # noqa: SLF001
        elif name in _IDLE:
            self.twin[node] = self.twin[args[0]]
        else:
            made = self.twin[node] = self.new.node_copy(node, self._copied)
            if name == "sym_size":
                made.op, made.target = "call_method", "size"
            else:
                made.target = _function(node)
        if node not in self.one:
            carried = next((self.one[source] for source in node.all_input_nodes if source in self.one), None)
            if carried is not None:
                self.one[node] = carried

    def _activation(self, node: fx.Node, path: str, module: nn.Module) -> None:
        source = _args(node)[0]
        self.root.add_module(path, module)
        self.twin[node] = self.new.call_module(path, (self.twin[source], self.one[source]))

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
        scale = torch.rsqrt(variance.double() + float(args[-1] if "legit" in _name(node) else args[7]))
        scale = scale if weight is None else scale * weight.double()
        shift = -mean.double() * scale if bias is None else bias.double() - mean.double() * scale
        return scale.to(mean.dtype), shift.to(mean.dtype)

    def _affine(
        self, node: fx.Node, product: str, options: tuple[Any, ...], weight: Tensor, bias: Tensor | None
    ) -> None:
        """A layer of degree 1 in the place of an affine one and, if a batch norm alone reads it, of the norm too."""
        result, args, users = node, _args(node), list(node.users)
        folds = product != "scale" and (product != "linear" or node.meta["val"].dim() == 2)  # noqa: PLR2004
        if folds and len(users) == 1 and _name(users[0]) in _NORMS and users[0].args[0] is node:
            result = users[0]
            weight, bias = _folded(weight, bias, *self._norm(result), node=node)
        stands_for = {node, result}
        if "legit" in _name(result):
            result = next(user for user in result.users if user.target is getitem)
            stands_for.add(result)
        at = -1 if product == "linear" else 1
        read, made = args[0].meta["val"].shape, result.meta["val"].shape
        blocks = 2 * read[at], 2 * made[at], 2 * read[at] if len(read) > 2 else 0  # noqa: PLR2004
        layer = AffineOfDegreeOne(product, options, weight, bias, blocks)
        title = self.titles.get(args[1], node.name).removesuffix(".weight")
        path = title.replace(".", "_")
        while hasattr(self.root, path):
            path += "_"
        self.root.add_module(path, layer)
        before = [self.one[args[0]]] if args[0] in self.one else []
        both = self.new.call_module(path, (self.twin[args[0]], *before))
        y, one = (self.new.call_function(getitem, (both, i)) for i in (0, 1))
        for known in stands_for:
            self.twin[known], self.one[known] = y, one
        self.sites.append(Site(title, args[0], result, layer))


def calibrated_layout(model: nn.Module, example: Tensor, *, read_biases: bool = True) -> fx.GraphModule:
    """The network that `to_xdnn(..., calibration=images)` makes of this architecture, to load the weights of one into.

    `read_biases` as the calibration had it.

    >>> net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 3)
    >>> sorted(calibrated_layout(net, x).state_dict())
    ['0.bias', '0.reader', '0.weight', '2.bias', '2.reader', '2.weight']
    """
    layout = Layout(copy.deepcopy(model), example)
    if not read_biases:
        for site in layout.sites:
            site.layer.bias = site.layer.reader = None
    converted = layout.converted.eval()
    converted.input_shape = tuple(example.shape[1:])  # type: ignore[assignment]  # a plain attribute
    return converted


def _folded(
    weight: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor, *, node: fx.Node
) -> tuple[Tensor, Tensor]:
    """scale · (W h + b) + shift as W' h + b'."""
    if "transpose" in _name(node):
        groups = int(_args(node)[6]) if len(node.args) > 6 else 1  # noqa: PLR2004
        split = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        shape = [groups, 1, -1] + [1] * (weight.dim() - 2)
        folded = (split * scale.view(shape)).reshape(weight.shape)
    else:
        folded = weight * scale.view([-1] + [1] * (weight.dim() - 1))
    return folded, shift if bias is None else shift + bias * scale


def _multiplies(node: fx.Node) -> bool:
    """Whether this is a gate: something else is multiplied by it, in another shape or not, and nothing reads it."""
    return bool(node.users) and all(
        _name(user) == "mul" or (_name(user) in _RESHAPES and _multiplies(user)) for user in node.users
    )


def _is_inside(node: fx.Node) -> bool:
    """Whether this is not an output, whose probabilities would lose their meaning at another scale."""
    return bool(node.users) and all(user.op != "output" for user in node.users)


def _cap(node: fx.Node) -> float | None:
    """The upper bound of a ReLU with a cap."""
    if _name(node) == "relu6":
        return 6.0
    default = (-1.0, 1.0) if _name(node) == "hardtanh" else (None, None)
    low, high = (*node.args[1:], *default[len(node.args) - 1 :])[:2]
    return float(high) if low == 0 and isinstance(high, int | float) else None


# ------------------------------------------------------------------------------------------------------------- patches


def _can_fit(layer: AffineOfDegreeOne) -> bool:
    """Weights of linear layers, and of convolutions whose patches `F.unfold` knows."""
    padding = layer.options[1] if len(layer.options) > 1 else 0
    return layer.product in {"linear", "conv1d", "conv2d"} and not isinstance(padding, str)


def _places(layer: AffineOfDegreeOne, y: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Sampled places of each image, by number."""
    n = math.prod(size for d, size in enumerate(y.shape) if d not in {0, layer.channels % y.dim()})
    chosen = [torch.randperm(n, generator=generator)[: min(count, n)] for _ in range(len(y))]
    return torch.stack(chosen).to(y.device)


def _gather(layer: AffineOfDegreeOne, y: Tensor, at: Tensor) -> Tensor:
    """The outputs at sampled places, [images · places, channels]."""
    flat = y.movedim(layer.channels, -1).flatten(1, -2) if y.dim() > 2 else y[:, None]  # noqa: PLR2004
    return flat.gather(1, at[..., None].expand(-1, -1, flat.shape[-1])).flatten(0, 1)


def _patches(layer: AffineOfDegreeOne, h: Tensor, at: Tensor) -> Tensor:
    """What the weights see at sampled places, [images · places, groups · weights of an output]."""
    if layer.product == "linear":
        return _gather(layer, h, at)
    stride, padding, dilation = (_pair(layer, i, default) for i, default in enumerate((1, 0, 1)))
    kernel = tuple(layer.weight.shape[2:])
    if layer.product == "conv1d":
        h, kernel = h[:, :, None], (1, *kernel)
    # Image by image: all patches of a batch would take many times its memory.
    unfolded = (F.unfold(x, kernel, dilation, padding, stride)[0] for x in h.split(1))
    return torch.cat([every[:, places].T for every, places in zip(unfolded, at, strict=True)])


def _pair(layer: AffineOfDegreeOne, index: int, default: int) -> tuple[int, int]:
    """Stride, padding or dilation of a convolution, in two dimensions."""
    given = layer.options[index] if index < len(layer.options) else default
    sizes = [given] if isinstance(given, int) else list(given)
    if layer.product == "conv1d":
        return default, sizes[0]
    return sizes[0], sizes[-1]


def _grouped(layer: AffineOfDegreeOne, rows: Tensor) -> Tensor:
    """[rows, groups · n] → [groups, rows, n]."""
    groups = int(layer.options[3]) if layer.channels == 1 and len(layer.options) > 3 else 1  # noqa: PLR2004
    return rows.reshape(len(rows), groups, -1).transpose(0, 1)


# ------------------------------------------------------------------------------------------------------------- fitting

#: The last layer may be this many times as wrong on held-out images as on those that it was fitted to, and some more.
_TIMES, _MORE = 3.0, 0.1
#: Every n-th image chooses the penalty of a layer's weights.
_JUDGING = 5
_RELUS = {"relu", "relu6", "hardtanh"}


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


@torch.no_grad()
def calibrated_strip(
    model: nn.Module, example: Tensor, calibration: Calibration
) -> tuple[fx.GraphModule, tuple[LayerFit, ...]]:
    """The twin of a model in which every affine layer has degree 1, fitted to images, and how good each layer is."""
    images, held = _read_images(calibration, example)
    layout = Layout(model, example)
    fits = []
    with calibration.shown(len(layout.sites)) as tell:
        for fit in _Walk(layout, calibration, images, held).run():
            fits.append(fit)
            tell(fit.name)
    return layout.converted.eval(), tuple(fits)


class _Walk:
    """Original and twin side by side, operator by operator, on all images in chunks."""

    def __init__(self, layout: Layout, calibration: Calibration, images: list[Tensor], held: list[Tensor]) -> None:
        self.layout, self.calibration = layout, calibration
        self.chunks = [_fast(chunk) for chunk in (*images, *held)]
        self.fitted = len(images)
        self.generator = torch.Generator().manual_seed(calibration.seed)
        self.sites = {site.result: site for site in layout.sites}
        #: Values of the original and of the twin by node of the original, one per chunk; c by result of a site.
        self.original: dict[fx.Node, list[Any]] = {}
        self.twin: dict[fx.Node, list[Any]] = {}
        self.ones: dict[fx.Node, list[Tensor]] = {}

    def run(self) -> Iterator[LayerFit]:
        made = {self.layout.twin[result] for result in self.sites}
        # Nodes that a layer with its norm folded in stands for are never computed.
        folded = {
            node
            for node, twin in self.layout.twin.items()
            if twin in made and node not in self.sites and _name(node) not in _IDLE
        }
        order = [n for n in self.layout.graph.nodes if n not in self.layout.constants and n not in folded]
        last_use: dict[fx.Node, fx.Node] = {}
        for node in order:
            for source in [self.sites[node].source] if node in self.sites else node.all_input_nodes:
                last_use[source] = node
        for node in order:
            if node.op == "placeholder":
                self.original[node] = self.twin[node] = self.chunks
            elif node in self.sites:
                yield self._layer(self.sites[node])
            elif node.op != "output":
                self._operator(node)
            for source in [source for source, user in last_use.items() if user is node]:
                for values in (self.original, self.twin, self.ones):
                    values.pop(source, None)

    def _operator(self, node: fx.Node) -> None:
        self.original[node] = self._apply(node, self.original)
        twin = self.layout.twin[node]
        if twin.op == "call_module":  # an activation at the scale that was read
            (source,) = node.all_input_nodes
            activation = self.layout.converted.get_submodule(str(twin.target))
            self.twin[node] = [activation(*pair) for pair in zip(self.twin[source], self.ones[source], strict=True)]
        else:
            self.twin[node] = self._apply(node, self.twin)
        carried = next((self.ones[source] for source in node.all_input_nodes if source in self.ones), None)
        if carried is not None:
            self.ones[node] = carried

    def _apply(self, node: fx.Node, values: dict[fx.Node, list[Any]]) -> list[Any]:
        """One operator on every chunk."""
        results = []
        for i in range(len(self.chunks)):

            def read(n: fx.Node, i: int = i) -> Any:
                return self.layout.constants[n] if n in self.layout.constants else values[n][i]

            args, kwargs = fx.map_arg((node.args, node.kwargs), read)
            results.append(args[0] if _name(node) in _IDLE else _function(node)(*args, **kwargs))
        return results

    def _layer(self, site: Site) -> LayerFit:
        """Fit a layer, go through it, and say how good it is."""
        layer, calibration = site.layer, self.calibration
        h, before = self.twin[site.source], self.ones.get(site.source)
        z = self.original[site.result] = [_affine(layer, x) for x in self.original[site.source]]
        if not calibration.read_biases:
            layer.bias = layer.reader = None
        other = self._other_branch(site)
        gated = calibration.through_gates and _is_gated(site.result if other is None else next(iter(site.result.users)))
        penalty = math.nan
        if calibration.fit_weights and _can_fit(layer):
            change, penalty = change_of_weights(self._problem(site, other, gated=gated), calibration.penalties)
            layer.weight += change.transpose(1, 2).reshape(layer.weight.shape).to(layer.weight.dtype)
        y = self.twin[site.result] = [layer.linear_part(x) for x in h]
        ones = before or [part.new_zeros(len(part)) for part in y]
        if layer.bias is not None:
            features = [layer.features(*pair) for pair in zip(h, y, strict=True)]
            reader = self._reader(layer, features[: self.fitted], before)
            layer.reader = reader
            ones = [part @ reader + one for part, one in zip(features, ones, strict=True)]
            for part, one in zip(y, ones, strict=True):
                part.add_(layer.over_channels(layer.bias, part) * per_sample(one, part))
        self.ones[site.result] = ones
        pairs = list(zip(y, z, strict=True))
        if other is not None:
            pairs = [(a + b, c + d) for (a, c), b, d in zip(pairs, self.twin[other], self.original[other], strict=True)]
        if gated:
            pairs = [(a.relu(), b.relu()) for a, b in pairs]
        judged = torch.cat([torch.zeros(0), *(one.cpu() for one in ones[self.fitted :])])
        return LayerFit(
            site.name,
            _reproduced(pairs[: self.fitted], layer.channels),
            _reproduced(pairs[self.fitted :], layer.channels),
            float((judged - 1).square().mean().sqrt()) if layer.bias is not None and len(judged) else 0.0,
            penalty,
        )

    def _reader(self, layer: AffineOfDegreeOne, features: list[Tensor], before: list[Tensor] | None) -> nn.Parameter:
        whole = torch.cat(features).double()
        known = None if before is None else torch.cat(before[: self.fitted])
        v, _ = constant(whole, layer.blocks, self.calibration.bias_ridge, known)
        return nn.Parameter(v.to(layer.weight.dtype))

    def _problem(self, site: Site, other: fx.Node | None, *, gated: bool) -> Problem:
        """The regression of a layer's weights, on sampled places."""
        layer, before = site.layer, self.ones.get(site.source)
        rows, given, wanted, features = [], [], [], []
        for i, x in enumerate(self.twin[site.source][: self.fitted]):
            y, z = layer.linear_part(x), self.original[site.result][i]
            at = _places(layer, y, self.calibration.patches, self.generator)
            rows.append(_patches(layer, x, at))
            if layer.bias is not None:
                features.append(layer.features(x, y))
            if other is not None:
                y, z = y + self.twin[other][i], z + self.original[other][i]
            given.append(_gather(layer, y, at))
            wanted.append(_gather(layer, z, at))
        images = sum(map(len, self.chunks[: self.fitted]))
        made = torch.cat(given)
        image = torch.arange(images, device=made.device).repeat_interleave(len(made) // images)
        if layer.bias is not None:
            one = torch.cat(features) @ self._reader(layer, features, before)
            one = one if before is None else one + torch.cat(before[: self.fitted])
            made += one[image][:, None] * layer.bias
        p, made, z = (_grouped(layer, part) for part in (torch.cat(rows), made, torch.cat(wanted)))
        return Problem(p, made, z, image % _JUDGING == _JUDGING - 1, gated)

    def _other_branch(self, site: Site) -> fx.Node | None:
        """The other term of the sum that this layer goes into, if it has been computed."""
        users = list(site.result.users)
        if len(users) != 1 or _name(users[0]) != "add" or users[0].kwargs:
            return None
        terms = [n for n in users[0].args[:2] if isinstance(n, fx.Node) and n is not site.result]
        if len(terms) != 1 or terms[0] not in self.twin:
            return None
        same = self.twin[terms[0]][0].shape[1:] == site.result.meta["val"].shape[1:]
        return terms[0] if same else None


def _fast(images: Tensor) -> Tensor:
    """Channels last: the same numbers to rounding, and convolutions on a processor twice as fast."""
    return images.contiguous(memory_format=torch.channels_last) if images.dim() == 4 else images  # noqa: PLR2004


def _is_gated(node: fx.Node) -> bool:
    """Whether everything that reads this is a ReLU."""
    return bool(node.users) and all(_name(user) in _RELUS for user in node.users)


def _affine(layer: AffineOfDegreeOne, h: Tensor) -> Tensor:
    """The layer of the original, before it is fitted."""
    y = layer.linear_part(h)
    return y if layer.bias is None else y + layer.over_channels(layer.bias, y)


def _reproduced(pairs: list[tuple[Tensor, Tensor]], channels: int) -> float:
    """1 − ‖y − z‖² / ‖z − mean of its channel‖²."""
    if not pairs:
        return math.nan
    wanted = [z for _, z in pairs]
    error = sum(float((y - z).double().square().sum()) for y, z in pairs)
    dims = [d for d in range(wanted[0].dim()) if d != channels % wanted[0].dim()]
    count = sum(z.numel() // z.shape[channels] for z in wanted)
    mean = torch.stack([z.double().sum(dims, keepdim=True) for z in wanted]).sum(0) / count
    spread = sum(float((z - mean).square().sum()) for z in wanted)
    return 1.0 - error / spread if spread > 0 else float(error == 0)
