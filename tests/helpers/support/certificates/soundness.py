"""Certify many random networks in one program, and let brute force try to refute each certificate."""

from dataclasses import dataclass, field

import torch

from axiograd.homogeneity import certify
from support.certificates.guarded import GUARDED
from support.certificates.programs import ENLARGED, points, run, trail

#: Powers of four scale sums, products, roots and comparisons without rounding: what remains is real.
ALPHAS = (0.25, 4.0, 16.0)
TOLERANCE = 1e-7
#: What sums that cancel to zero may leave.
ROUNDING = 1e-13
KINDS = ("any", "negative", "sparse")


@dataclass
class Tally:
    certified: int = 0
    refused: int = 0
    #: Refused although brute force finds a degree that fits.
    cautious: int = 0
    refuted: list = field(default_factory=list)
    seen: set = field(default_factory=set)

    @property
    def examples(self):
        return self.certified + self.refused


def examine(networks, tally, *, seed=0):
    """Certify all networks and their beginnings at once, then test each new one at several points and scales."""

    def model(x, y):
        return tuple(value for network in networks for value in trail(network, x, y))

    certificate = certify(model, points(seed))
    beginnings = [network[: n + 1] for network in networks for n in range(len(network))]
    if len(certificate.degrees) != len(beginnings):
        raise AssertionError(str(certificate))
    new = {network: i for i, network in enumerate(beginnings) if network not in tally.seen}
    tally.seen.update(new)
    probes = [_Probe(model, seed, kind) for kind in KINDS]
    for network, i in new.items():
        degree = certificate.degrees[i]
        if degree is None:
            tally.refused += 1
            tally.cautious += all(probe.some_degree_fits(network, i) for probe in probes)
            continue
        tally.certified += 1
        k = 0.0 if degree == float("inf") else degree
        for probe in probes:
            fault = probe.fault(network, i, k)
            if fault is not None:
                tally.refuted.append((network, degree, fault))
                break
    return tally


class _Probe:
    """All outputs at points of one kind.

    Where an epsilon of the usual size is in a network, at large and at small points: at one of them it is far below its
    divisor, of positive or of negative degree, unless that is zero.
    """

    def __init__(self, model, seed, kind):
        self.model, self.kind = model, kind
        self.inputs = {size: [size * x for x in points(seed, kind)] for size in (1.0, ENLARGED, 1 / ENLARGED)}
        self.outputs = {}

    def fault(self, network, index, degree):
        """The test that a degree fails at every size, or None."""
        faults = [self._fault(network, index, degree, size) for size in _sizes(network)]
        return faults[0] if all(faults) else None

    def some_degree_fits(self, network, index):
        return any(_some_degree_fits(*self._at(size, index)) for size in _sizes(network))

    def _fault(self, network, index, degree, size):
        if not _fits(*self._at(size, index), degree):
            return f"scaling test ({self.kind} inputs)"
        if self.kind == "any" and not _euler(network, self.inputs[size], degree):
            return "Euler test"
        return None

    def _at(self, size, index):
        if size not in self.outputs:
            self.outputs[size] = {a: _outputs(self.model, self.inputs[size], a) for a in (1.0, *ALPHAS)}
        found = self.outputs[size]
        return found[1.0][index], {alpha: found[alpha][index] for alpha in ALPHAS}


def _sizes(network):
    return (ENLARGED, 1 / ENLARGED) if any(name in GUARDED for name, *_ in network) else (1.0,)


def _euler(network, inputs, degree):
    """x·∇F = kF along a random direction of the outputs, wherever autograd gives numbers."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    torch.manual_seed(0)
    out = run(network, *leaves)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    value = (out * weight).sum()
    if not value.requires_grad:
        return degree * value.abs() <= TOLERANCE or not value.isfinite()
    try:
        grads = torch.autograd.grad(value, leaves, allow_unused=True)
    except RuntimeError as error:
        # Attribution would raise the same: no wrong number comes out.
        if "derivative for" in str(error):
            return True
        raise
    terms = [(x.detach() * g) for x, g in zip(leaves, grads, strict=True) if g is not None]
    nothing = torch.zeros((), dtype=out.dtype)
    total, size = sum((t.sum() for t in terms), nothing), sum((t.abs().sum() for t in terms), nothing)
    expected = degree * value.detach()
    if not total.isfinite() or not expected.isfinite():
        return True
    size = size + (out.detach() * weight).abs().sum()
    return bool((total - expected).abs() <= 1e-6 * size + ROUNDING)


def _outputs(model, inputs, alpha):
    torch.manual_seed(0)
    with torch.no_grad():
        return model(*(x * alpha for x in inputs))


def _fits(base, outputs, degree):
    return all(_close(out, base * alpha**degree) for alpha, out in outputs.items())


def _close(a, b):
    same = (a == b) | (a.isnan() & b.isnan())
    size = torch.where(b.isfinite(), b.abs(), 0.0).max()
    gap = torch.where(same, 0.0, (a - b).abs())
    return bool((gap <= TOLERANCE * size).all())


def _some_degree_fits(base, outputs):
    total = base.abs().nansum()
    if not total.isfinite() or total == 0:
        return False
    ratio = outputs[4.0].abs().nansum() / total
    if not ratio.isfinite() or ratio <= 0:
        return False
    return _fits(base, outputs, float(ratio.log() / torch.log(torch.tensor(4.0, dtype=torch.float64))))
