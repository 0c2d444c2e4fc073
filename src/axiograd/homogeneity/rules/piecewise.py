"""What each operator does to a value that is affine in the input while every gate is held as it is.

A gate picks: which half of a ReLU, which entry of a pool, which branch of a `where`. Operators in no list are
curved, or unknown, which is the same here.
"""

from axiograd.homogeneity.rules import comparison, reduction, shape
from axiograd.homogeneity.rules.elementwise import SIGNS
from axiograd.homogeneity.rules.linear import LAYERS
from axiograd.homogeneity.rules.random import DRAWS
from axiograd.homogeneity.rules.registry import aten


def _all(*tables: str) -> frozenset[str]:
    return frozenset(name for table in tables for name in aten(table))


#: Affine in all floating-point arguments together.
LINEAR = _all(
    *(shape.MOVED, shape.SPLIT, shape.TOGETHER, shape.GROUPS, shape.INTO, shape.FILLS),
    *(reduction.SUMS, reduction.AVERAGE_POOLS),
    """
    add sub rsub subtract __rsub__ neg negative float double half constant_pad_nd pad scatter_add index_add masked_fill
    index_fill where dropout feature_dropout native_dropout new_tensor scalar_tensor
    """,
)
#: Linear in each group of arguments, so that only one of them may depend on the input; the rest is added.
PRODUCTS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(aten("mul multiply"), (("self",), ("other",))),
    **dict.fromkeys(aten("mm bmm matmul linalg_matmul"), (("self", "input"), ("mat2", "other"))),
    **dict.fromkeys(aten("dot vdot"), (("self",), ("tensor", "other"))),
    **dict.fromkeys(aten("outer ger mv"), (("self",), ("vec2", "vec"))),
    **dict.fromkeys(aten("inner tensordot kron linalg_vecdot"), (("self", "x"), ("other", "y"))),
    **dict.fromkeys(aten(LAYERS), (("input", "self"), ("weight",))),
    "aten::bilinear": (("input1",), ("input2",), ("weight",)),
    "aten::addmm": (("mat1",), ("mat2",), ("alpha",), ("beta",)),
    "aten::addmv": (("mat",), ("vec",), ("alpha",), ("beta",)),
    "aten::addr": (("vec1",), ("vec2",), ("alpha",), ("beta",)),
    **dict.fromkeys(aten("addbmm baddbmm"), (("batch1",), ("batch2",), ("alpha",), ("beta",))),
    "aten::addcmul": (("tensor1",), ("tensor2",), ("value",)),
    "aten::lerp": (("self", "end"), ("weight",)),
}
#: Products of a list of factors.
LISTED = frozenset(aten("einsum linalg_multi_dot chain_matmul"))
#: Affine in these arguments, and in no other.
IN = {
    **dict.fromkeys(aten("div divide true_divide"), ("self",)),
    **dict.fromkeys(
        aten(
            "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
            "_native_batch_norm_legit_no_training"
        ),
        ("input",),
    ),
    **dict.fromkeys(aten("prelu _prelu_kernel quantile nanquantile fmod remainder"), ("self",)),
    **dict.fromkeys(aten("grid_sampler grid_sampler_2d grid_sampler_3d"), ("input",)),
    "aten::addcdiv": ("self", "tensor1"),
    "aten::embedding": ("weight",),
}
#: Affine in all arguments once it is settled which piece, entry or order counts.
GATES = _all(
    *(reduction.ORDERED, reduction.MAX_POOLS, reduction.MAX_POOLS_WITH_INDICES),
    """
    relu leaky_relu rrelu rrelu_with_noise rrelu_with_noise_functional abs absolute hardtanh relu6 hardsigmoid clamp
    clamp_min clamp_max clip threshold hardshrink softshrink maximum minimum fmax fmin max min amax amin nan_to_num frac
    """,
)
#: The outcome does not move until a gate switches.
STEPS = _all(
    *(comparison.COMPARISONS, comparison.LOGIC, reduction.PLACES, reduction.SEARCHES, shape.ONLY_SHAPE, SIGNS, DRAWS),
    "isclose round floor ceil trunc fix zeros_like new_zeros zero floor_divide heaviside bernoulli poisson",
)
#: Gates and steps for real numbers only: |z| and z/|z| of a complex one bend.
OF_REALS = _all("abs absolute sgn")
