"""Matrix decompositions and inverses of square matrices of fixed size."""

from axiograd.homogeneity.domain import UNKNOWN, of_degree, power
from axiograd.homogeneity.rules.call import Call, as_value
from axiograd.homogeneity.rules.registry import Result, rule


@rule("aten::_linalg_det", "aten::linalg_det")
def det(call: Call) -> Result:
    """det(αA) = αⁿ·det(A)."""
    value = call.first()
    size = call.shape()[-1]
    if not isinstance(size, int):
        call.report("The determinant's degree grows with a size that varies.", "Fix the size.", kind="degrees")
        return value
    result = power(value, size)
    return (result, UNKNOWN, of_degree(0)) if call.name == "aten::_linalg_det" else result


@rule("aten::linalg_inv_ex", "aten::linalg_inv", "aten::inverse")
def inverse(call: Call) -> Result:
    result = power(call.first(), -1)
    return (result, of_degree(0)) if call.name == "aten::linalg_inv_ex" else result


@rule("aten::linalg_solve_ex", "aten::linalg_solve", "aten::linalg_solve_triangular")
def solve(call: Call) -> Result:
    """A⁻¹B."""
    matrix = call.value("A" if "A" in call.arguments else "self")
    if call.get("unitriangular"):
        call.require_invariant(
            matrix,
            f"The diagonal of a matrix of degree {matrix.degree or 0:g} is taken as 1, which does not scale.",
            "Pass unitriangular=False, or a matrix of degree 0.",
            kind="constant",
        )
        matrix = of_degree(0)
    result = call.product(power(matrix, -1), call.value("B"))
    return (result, of_degree(0)) if call.name == "aten::linalg_solve_ex" else result


@rule("aten::linalg_pinv")
def pseudoinverse(call: Call) -> Result:
    """A⁺ is of degree −1 if singular values are dropped by their size relative to the largest."""
    value = call.first()
    tolerance = call.get("atol")
    if tolerance is not None and not as_value(tolerance).is_zero():
        call.require_invariant(
            value,
            "Singular values below an absolute tolerance are dropped, which does not scale.",
            "Pass rtol instead of atol.",
            kind="comparison",
        )
    for name in ("rtol", "rcond"):
        relative = call.get(name)
        if relative is not None:
            call.require_invariant(
                as_value(relative),
                f"The relative tolerance has degree {as_value(relative).degree or 0:g}.",
                "Pass a constant tolerance.",
                kind="comparison",
            )
    return power(value, -1)


@rule("aten::linalg_cholesky_ex", "aten::linalg_cholesky")
def cholesky(call: Call) -> Result:
    result = power(call.first(), 0.5)
    return (result, of_degree(0)) if call.name == "aten::linalg_cholesky_ex" else result


@rule("aten::_linalg_svd", "aten::linalg_svd")
def svd(call: Call) -> Result:
    return of_degree(0), call.first(), of_degree(0)


@rule("aten::_linalg_eigh", "aten::linalg_eigh")
def eigh(call: Call) -> Result:
    return call.first(), of_degree(0)


@rule("aten::linalg_qr")
def qr(call: Call) -> Result:
    return of_degree(0), call.first()


@rule("aten::linalg_svdvals", "aten::linalg_eigvalsh")
def spectrum(call: Call) -> Result:
    return call.first()
