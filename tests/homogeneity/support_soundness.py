"""Certify many random networks in one program, and let brute force try to refute each certificate."""

from dataclasses import dataclass, field

import torch

from axiograd.homogeneity import certify
from homogeneity.support_programs import points, run

#: Powers of four scale sums, products, roots and comparisons without rounding: what remains is real.
ALPHAS = (0.25, 4.0, 16.0)
TOLERANCE = 1e-7


@dataclass
class Tally:
    certified: int = 0
    refused: int = 0
    #: Refused although brute force finds a degree that fits.
    cautious: int = 0
    refuted: list = field(default_factory=list)

    @property
    def examples(self):
        return self.certified + self.refused


def examine(networks, tally, *, seed=0):
    """Certify all networks at once, then test each at several scales."""

    def model(x, y):
        return tuple(run(network, x, y) for network in networks)

    inputs = points(seed)
    certificate = certify(model, inputs)
    if len(certificate.degrees) != len(networks):
        raise AssertionError(str(certificate))
    base = _outputs(model, inputs, 1.0)
    scaled = {alpha: _outputs(model, inputs, alpha) for alpha in ALPHAS}
    for i, (network, degree) in enumerate(zip(networks, certificate.degrees, strict=True)):
        outputs = {alpha: scaled[alpha][i] for alpha in ALPHAS}
        if degree is None:
            tally.refused += 1
            tally.cautious += _some_degree_fits(base[i], outputs)
        elif _fits(base[i], outputs, 0.0 if degree == float("inf") else degree):
            tally.certified += 1
        else:
            tally.certified += 1
            tally.refuted.append((network, degree))
    return tally


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
