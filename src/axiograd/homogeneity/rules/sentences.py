"""Sentences that several rules share."""

from collections.abc import Iterable

from axiograd.homogeneity.domain import Value

CONSTANT_FIX = "Take the constant out, or let axiograd.to_xdnn strip it."
DEGREES_FIX = (
    "Bring both to one degree, e.g. by a scale-keeping normalisation; axiograd.to_xdnn does it, "
    "or lifts the whole model."
)
BIAS_FIX = "Build the layer with bias=False, or let axiograd.to_xdnn strip the bias."
LIFT_FIX = 'axiograd.to_xdnn(how="lift") makes any model homogeneous.'


def describe_constants(constants: Iterable[Value]) -> tuple[tuple[str, ...], str]:
    """Names of the parameters behind some constants, and words for them."""
    names: list[str] = []
    values: list[float] = []
    for value in constants:
        if value.constant is None:
            continue
        names += [n for n in value.constant.names if n not in names]
        uniform = value.constant.uniform()
        if uniform is not None:
            values.append(uniform)
    if names:
        return tuple(names), f"the constant {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"  # noqa: PLR2004 - three names suffice
    if values:
        return (), f"the constant {values[0]:g}"
    return (), "a constant"


def plural_degrees(degrees: tuple[float, ...]) -> str:
    return "values of degree " + " and ".join(f"{d:g}" for d in degrees)
