"""PyTorch's own operator samples: certify each call, and let brute force in float64 try to refute what is proved.

Nothing of the package is in the oracle: scaling by powers of four (which rounds nothing), Euler's identity, and
central differences along a random direction, at the sample and at points of other signs and sparsities.
A proof that `certify` itself withdraws after running the model is put to the same tests: it should not have been made.

python -m support.certificates.samples results.jsonl [samples per operator] [shard/shards] writes a line per operator,
and goes on where it was stopped.
"""

import json
import math
import sys
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from axiograd.homogeneity import certify

#: Powers of four scale sums, products, roots and comparisons without rounding.
ALPHAS = (0.25, 4.0, 16.0)
KINDS = ("sample", "any", "negative", "sparse", "zero")
#: What an iteration to convergence, or a root of an ill-conditioned matrix, may be off.
TOLERANCE = 1e-6
#: Of central differences: where outputs are cast to something coarser, as far as their rounding asks for.
STEP = 1e-6


@dataclass
class Count:
    calls: int = 0
    certified: int = 0
    #: Outputs with a degree, also where it is below 1.
    claims: int = 0
    tested: int = 0
    #: Proofs that certify withdrew itself.
    withdrawn: list = field(default_factory=list)
    refuted: list = field(default_factory=list)


def operators():
    """Every operator of the data base that takes dense float64, under the name that its samples are known by."""
    found = {}
    for op in op_db:
        # What `torch.empty` returns is whatever the memory held.
        if op.supports_dtype(torch.float64, "cpu") and not op.name.startswith(("sparse.", "empty", "new_empty")):
            name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
            found[name] = op
    return found


def examine(name, op, count, *, most=None):
    """Certify the samples of one operator with its first argument moving, and with all of them moving."""
    torch.manual_seed(0)
    for index, sample in enumerate(op.sample_inputs("cpu", torch.float64, requires_grad=False)):
        if most is not None and index >= most:
            return
        whole = (sample.input, tuple(sample.args), dict(sample.kwargs))
        leaves, spec = pytree.tree_flatten(whole)
        places = [i for i, v in enumerate(leaves) if isinstance(v, Tensor) and v.is_floating_point()]
        first = [i for i in places if i < len(pytree.tree_leaves(sample.input))]
        for moving in (first, places) if first != places else (first,):
            if moving:
                title = f"{name}[{index}]{'' if moving is first else ' all'}"
                _examine(title, _Function(op, leaves, spec, moving), count)


class _Function:
    """A call of an operator as a function of some of its tensors."""

    def __init__(self, op, leaves, spec, moving):
        self.op, self.spec, self.moving = op, spec, moving
        self.leaves = [v.detach().clone() if isinstance(v, Tensor) else v for v in leaves]

    @property
    def start(self):
        return [self.leaves[i] for i in self.moving]

    def __call__(self, *tensors):
        leaves = [v.clone() if isinstance(v, Tensor) else v for v in self.leaves]
        for place, tensor in zip(self.moving, tensors, strict=True):
            leaves[place] = tensor
        given, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.op(given, *args, **kwargs)

    def outputs(self, tensors):
        torch.manual_seed(0)
        return pytree.tree_leaves(self(*(t.clone() for t in tensors)))


def _examine(title, function, count):
    count.calls += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function.outputs(function.start)
        except Exception:  # noqa: BLE001 - a sample that PyTorch itself refuses in this form
            return
        certificate = certify(function.__call__, tuple(t.clone() for t in function.start))
        count.certified += certificate.ok
        known = [(i, d) for i, d in enumerate(certificate.degrees) if d is not None]
        count.claims += len(known)
        differentiable = all(v.kind in {"output", "refuted"} for v in certificate.violations)
        count.withdrawn += [(title, v.reason) for v in certificate.violations if v.kind == "refuted"]
        if not known:
            return
        for kind in KINDS:
            fault = _fault(function, _point(function.start, kind), known, kind, differentiable, certificate.exact)
            if fault is not None:
                count.refuted.append((title, certificate.ok, fault))
                return
        count.tested += 1


def _point(tensors, kind):
    generator = torch.Generator().manual_seed(5)
    found = []
    for t in tensors:
        drawn = torch.randn(t.shape, generator=generator, dtype=t.dtype)
        if kind == "sample":
            drawn = t
        elif kind == "negative":
            drawn = -drawn.abs()
        elif kind == "sparse":
            drawn = drawn * (torch.rand(t.shape, generator=generator) < 0.5)
        elif kind == "zero":
            drawn = torch.zeros_like(t)
        found.append(drawn.detach())
    return found


def _fault(function, point, known, kind, differentiable, exact):
    try:
        base = function.outputs(point)
    except Exception:  # noqa: BLE001 - not every matrix has an inverse
        return None
    # An epsilon is far below its divisor at one of two scales, unless that is zero.
    sizes = (1.0,) if exact else (2.0**20, 2.0**-20)
    for index, degree in known:
        if index >= len(base) or not isinstance(base[index], Tensor):
            continue
        faults = [_scaling(function, [size * t for t in point], index, degree) for size in sizes]
        if all(faults):
            return f"{kind}: output {index} of degree {degree:g}: {faults[0]}"
    if differentiable and kind in {"sample", "any", "negative"}:
        faults = [_gradient(function, [size * t for t in point], known, kind) for size in sizes]
        if all(faults):
            return f"{kind}: {faults[0]}"
    return None


def _real(value):
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    return value if value.is_floating_point() else value.to(torch.float64)


def _scaling(function, point, index, degree):
    base = _real(function.outputs(point)[index].detach()).double()
    if degree == float("inf"):
        return None if bool((base == 0).all()) else "is not zero"
    for alpha in ALPHAS:
        try:
            found = function.outputs([alpha * t for t in point])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            return f"fails at α = {alpha:g} ({error})"
        scaled = _real(found[index].detach()).double()
        if scaled.shape != base.shape:
            return f"has another shape at α = {alpha:g}"
        wanted = base * alpha**degree
        same = (scaled == wanted) | (scaled.isnan() & wanted.isnan())
        size = torch.where(wanted.isfinite(), wanted.abs(), 0.0)
        gap = torch.where(same, 0.0, (scaled - wanted).abs())
        if base.numel() and not bool((gap <= TOLERANCE * size.max()).all()):
            return f"off by {float(gap.max()):.3g} of {float(size.max()):.3g} at α = {alpha:g}"
    return None


def _gradient(function, point, known, kind):
    """Euler's identity, and autograd's gradient against central differences."""
    leaves = [t.clone().requires_grad_() for t in point]
    weights, rounding = {}, [0.0]

    def score(tensors):
        outputs = function.outputs(tensors)
        terms = []
        for place, (index, _) in enumerate(known):
            out = outputs[index]
            if not isinstance(out, Tensor) or not (out.is_floating_point() or out.is_complex()):
                terms.append(None)
                continue
            rounding.append(torch.finfo(out.dtype).eps)
            out = _real(out).double()
            if place not in weights:
                generator = torch.Generator().manual_seed(place)
                weights[place] = torch.randn(out.shape, generator=generator, dtype=out.dtype)
            terms.append((out * weights[place]).sum())
        return terms

    terms = []
    try:
        terms = [(t, d) for t, (_, d) in zip(score(leaves), known, strict=False) if t is not None]
        total = sum(t for t, _ in terms)
        if not terms or not total.isfinite():
            return None
        if not total.requires_grad:
            return None if all(d == 0 or t == 0 for t, d in terms) else "has no gradient"
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    except (RuntimeError, NotImplementedError):
        return None  # attribution raises the same: no wrong number comes out
    gradients = [torch.zeros_like(x) if g is None else g.to_dense() for x, g in zip(leaves, gradients, strict=True)]
    if not all(bool(g.isfinite().all()) for g in gradients):
        return None
    products = [(x.detach() * g) for x, g in zip(leaves, gradients, strict=True)]
    euler = sum(float(p.sum()) for p in products)
    size = sum(float(p.abs().sum()) for p in products) + sum(abs(float(t.detach())) for t, _ in terms)
    wanted = sum(float(t.detach()) * (0.0 if d == float("inf") else d) for t, d in terms)
    eps = max(rounding)
    if abs(euler - wanted) > max(1e-5, eps) * size + 1e-12:
        return f"x·∇F = {euler:.6g}, kF = {wanted:.6g}"
    return _differences(score, point, gradients, eps)


def _differences(score, point, gradients, eps):
    step = max(STEP, eps ** (1 / 3)) if eps > TOLERANCE**2 else STEP
    tolerance = max(1e-3, 4 * eps / step)
    generator = torch.Generator().manual_seed(9)
    scale = max((float(t.abs().max()) for t in point if t.numel()), default=1.0) or 1.0
    faults = []
    for _ in range(3):
        direction = [torch.randn(t.shape, generator=generator, dtype=t.dtype) * scale for t in point]
        slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
        size = sum(float((g * d).abs().sum()) for g, d in zip(gradients, direction, strict=True))
        try:
            ends = [
                sum(
                    float(t)
                    for t in score([x + s * step * d for x, d in zip(point, direction, strict=True)])
                    if t is not None
                )
                for s in (1, -1)
            ]
            middle = sum(abs(float(t)) for t in score(point) if t is not None)
        except Exception:  # noqa: BLE001 - not every neighbour has an inverse
            return None
        measured = (ends[0] - ends[1]) / (2 * step)
        if not math.isfinite(measured) or not math.isfinite(slope):
            return None
        if (
            not abs(measured - slope)
            <= tolerance * (abs(measured) + size + (middle if eps > TOLERANCE**2 else 0.0)) + 1e-9 * middle / STEP
        ):
            faults.append(f"derivative {measured:.6g}, autograd {slope:.6g}")
    # A kink or a jump beside one direction is no fault; a wrong gradient is wrong along all.
    return faults[0] if len(faults) == 3 else None


def main(path, most=5, shard="0/1"):
    torch.set_num_threads(1)
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    done = {json.loads(line)["operator"] for line in lines}
    part, parts = (int(n) for n in shard.split("/"))
    for name, op in list(operators().items())[part::parts]:
        if name not in done:
            count = Count()
            examine(name, op, count, most=int(most))
            with Path(path).open("a") as file:
                file.write(json.dumps({"operator": name, **asdict(count)}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
