"""The table of operators: per row, what happens to the degree, what happens to an affine value, and the operators.

What does not fit into a row is a function in `functions`. Operators that are in neither are taken apart by torch; if
that does not help, "No rule for aten.x" is the answer.
"""

from dataclasses import dataclass
from enum import Enum, auto

from axiograd.homogeneity.degrees import ZERO, of_degree, power, product
from axiograd.homogeneity.rules.call import LIFT_FIX, Call
from axiograd.homogeneity.rules.registry import Result, aten, rule


class Degree(Enum):
    """The degree of the result."""

    #: That of the first tensor; others are indices or parameters, and need degree 0.
    KEEP = auto()
    #: That of the first tensor; others lend their shape, type or sign.
    KEEP_ALONE = auto()
    #: The one degree of all tensors and numbers.
    JOIN = auto()
    #: Degrees add.
    PRODUCT = auto()
    #: The first tensor's times a number, per result.
    POWER = auto()
    #: 0, and all that is compared needs one degree.
    COMPARE = auto()
    #: 0, whatever goes in.
    INVARIANT = auto()
    #: Identically zero.
    ZERO = auto()
    #: The function has no degree: it needs one of 0. Else it is reported, and read as if it kept the degree.
    ACTIVATION = auto()
    #: The same, and read as if the result had degree 0.
    SQUASH = auto()


class Slope(Enum):
    """What becomes of values that are affine in the input while every gate is held as it is.

    A gate picks: which half of a ReLU, which entry of a pool, which branch of a `where`.
    """

    #: Affine in all arguments together.
    LINEAR = auto()
    #: Linear in each factor, so that only one of them may depend on the input; a bias is added.
    PRODUCT = auto()
    #: Affine in the first argument, if no other depends on the input.
    LINEAR_IN_FIRST = auto()
    #: Affine in all arguments once it is settled which piece, entry or order counts.
    GATE = auto()
    #: The same, if only the first argument depends on the input.
    GATE_IN_FIRST = auto()
    #: The outcome does not move until a gate switches.
    STEP = auto()
    #: None of these.
    CURVED = auto()


#: What the held step and baselines need to know about each operator with a rule of ours.
SLOPES: dict[str, Slope] = {}


@dataclass(frozen=True)
class Row:
    """One row; as a function of a call it is the rule of its operators."""

    degree: Degree
    slope: Slope
    operators: str
    #: Per result, for POWER.
    powers: tuple[float, ...] = ()
    #: Of the violation.
    kind: str = ""
    fix: str = f"Feed it a normalised value of degree 0. {LIFT_FIX}"

    def __call__(self, call: Call) -> Result:
        match self.degree:
            case Degree.KEEP | Degree.KEEP_ALONE:
                value, *others = call.values()
                for other in others if self.degree is Degree.KEEP else ():
                    call.require_invariant(
                        other,
                        f"{call.title} takes an index or parameter of degree {other.degree or 0:g}.",
                        "Compute it from constants or from values of degree 0.",
                    )
                return call.per_result(value)
            case Degree.JOIN:
                terms = call.terms()
                joined = call.join(*terms, kind=self.kind or "constant")
                # `where(condition)` has no terms, and lists places.
                return call.per_result(joined if terms else of_degree(0))
            case Degree.PRODUCT:
                return product(call.terms())
            case Degree.POWER:
                found = [power(call.first(), exponent) for exponent in self.powers]
                return tuple(found) if len(found) > 1 else found[0]
            case Degree.COMPARE:
                call.join(*call.terms(), kind="comparison")
                return of_degree(0)
            case Degree.ACTIVATION | Degree.SQUASH:
                moving = next((v for v in call.values() if not v.is_invariant()), of_degree(0))
                call.require_invariant(
                    moving,
                    f"{call.title} of a value of degree {moving.degree or 0:g} has no degree.",
                    self.fix,
                    kind=self.kind or "activation",
                )
                return call.per_result(moving if self.degree is Degree.ACTIVATION else of_degree(0))
            case Degree.ZERO:
                return ZERO
            case Degree.INVARIANT:
                return of_degree(0)


_RELU_FIX = "Use ReLU, LeakyReLU or PReLU, or convert the model: axiograd.to_xdnn(model, examples)."
_GATE_FIX = "Feed the gate a normalised value of degree 0, or return the logit and apply sigmoid in the loss."
_SOFTMAX_FIX = (
    "Normalise the logits to degree 0 first (QK-normalised attention), or return the logits and apply softmax in the "
    "loss."
)
_ROUND_FIX = f"Round values of degree 0 only. {LIFT_FIX}"

TABLE = (
    # The same numbers in another place, or mixed linearly.
    Row(
        Degree.KEEP,
        Slope.LINEAR,
        """
        reshape _unsafe_view flatten unflatten squeeze unsqueeze expand broadcast_to permute transpose t numpy_T mT
        movedim moveaxis swapaxes swapdims select slice narrow narrow_copy diagonal diag diag_embed linalg_diagonal triu
        tril flip fliplr flipud rot90 roll repeat tile repeat_interleave unfold unfold_copy clone contiguous alias
        alias_copy slice_copy select_copy expand_copy permute_copy transpose_copy squeeze_copy unsqueeze_copy
        t_copy as_strided as_strided_copy lift_fresh_copy lift real imag conj _conj _conj_physical conj_physical
        resolve_conj resolve_neg view_as_real view_as_complex view_as_real_copy view_as_complex_copy positive _to_copy
        pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle im2col col2im index index_select gather
        take take_along_dim masked_select _unsafe_index trace upsample_nearest1d upsample_nearest2d upsample_nearest3d
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d
        upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
        reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
        atleast_1d atleast_2d atleast_3d ravel affine_grid_generator max_unpool2d max_unpool3d fft_fft fft_ifft
        fft_rfft fft_irfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn
        fft_fftshift fft_ifftshift _fft_r2c _fft_c2r _fft_c2c split split_with_sizes split_copy split_with_sizes_copy
        chunk tensor_split unbind unbind_copy unsafe_split unsafe_chunk unsafe_split_with_sizes neg negative sum mean
        nansum nanmean cumsum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d dropout feature_dropout native_dropout
        """,
    ),
    Row(Degree.KEEP_ALONE, Slope.LINEAR, "view_as reshape_as expand_as type_as to"),
    Row(
        Degree.KEEP,
        Slope.LINEAR_IN_FIRST,
        "embedding grid_sampler grid_sampler_2d grid_sampler_3d stft istft",
    ),
    # Gates.
    Row(
        Degree.KEEP,
        Slope.GATE,
        """
        relu leaky_relu rrelu rrelu_with_noise abs absolute amax amin sort topk kthvalue mode cummax cummin msort median
        nanmedian aminmax max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices
        max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d
        fractional_max_pool3d
        """,
    ),
    Row(Degree.POWER, Slope.GATE, "rrelu_with_noise_functional", powers=(1, 0)),
    Row(Degree.KEEP, Slope.GATE_IN_FIRST, "prelu _prelu_kernel quantile nanquantile"),
    Row(Degree.JOIN, Slope.GATE, "minimum fmax fmin max min"),
    Row(Degree.JOIN, Slope.GATE, "hardtanh threshold", kind="activation"),
    Row(Degree.JOIN, Slope.GATE_IN_FIRST, "remainder fmod"),
    # Norms and moments; a cut of the gradient is reported where it is made.
    Row(Degree.KEEP, Slope.CURVED, "std nuclear_norm frobenius_norm item _local_scalar_dense detach detach_copy"),
    Row(Degree.KEEP, Slope.CURVED, "linalg_svdvals linalg_eigvalsh"),
    Row(Degree.KEEP_ALONE, Slope.CURVED, "copysign"),
    # Side by side, or one into the other.
    Row(
        Degree.JOIN,
        Slope.LINEAR,
        """
        cat stack hstack vstack dstack column_stack block_diag concat concatenate diff meshgrid broadcast_tensors
        cartesian_prod complex select_scatter slice_scatter diagonal_scatter as_strided_scatter masked_scatter
        index_copy put index_put _unsafe_index_put scatter_add index_add masked_fill index_fill where constant_pad_nd
        """,
    ),
    Row(Degree.JOIN, Slope.CURVED, "hypot"),
    # Products and powers.
    Row(
        Degree.PRODUCT,
        Slope.PRODUCT,
        """
        mul multiply mm bmm matmul mv dot vdot inner outer ger linalg_vecdot linalg_matmul kron cross linalg_cross
        tensordot chain_matmul linalg_multi_dot einsum _trilinear
        """,
    ),
    Row(Degree.POWER, Slope.CURVED, "square var", powers=(2,)),
    Row(Degree.POWER, Slope.CURVED, "sqrt linalg_cholesky", powers=(0.5,)),
    Row(Degree.POWER, Slope.CURVED, "rsqrt", powers=(-0.5,)),
    Row(Degree.POWER, Slope.CURVED, "reciprocal linalg_inv inverse", powers=(-1,)),
    Row(Degree.POWER, Slope.CURVED, "var_mean", powers=(2, 1)),
    Row(Degree.POWER, Slope.CURVED, "std_mean", powers=(1, 1)),
    Row(Degree.POWER, Slope.CURVED, "linalg_inv_ex", powers=(-1, 0)),
    Row(Degree.POWER, Slope.CURVED, "linalg_cholesky_ex", powers=(0.5, 0)),
    Row(Degree.POWER, Slope.CURVED, "linalg_svd _linalg_svd", powers=(0, 1, 0)),
    Row(Degree.POWER, Slope.CURVED, "linalg_eigh _linalg_eigh", powers=(1, 0)),
    Row(Degree.POWER, Slope.CURVED, "linalg_qr", powers=(0, 1)),
    # What the scale does not change.
    Row(
        Degree.COMPARE,
        Slope.STEP,
        "eq ne lt le gt ge not_equal less less_equal greater greater_equal searchsorted bucketize isin",
    ),
    Row(Degree.COMPARE, Slope.CURVED, "atan2 arctan2"),
    Row(
        Degree.INVARIANT,
        Slope.STEP,
        """
        sign sgn signbit isnan isinf isposinf isneginf isfinite argmax argmin argsort any all count_nonzero nonzero
        argwhere nonzero_numpy logical_and logical_or logical_xor logical_not __and__ __or__ __xor__ bitwise_and
        bitwise_or bitwise_not bitwise_xor empty_like new_empty new_empty_strided ones_like new_ones sym_size sym_numel
        """,
    ),
    Row(Degree.INVARIANT, Slope.CURVED, "angle"),
    # Random numbers do not scale.
    Row(
        Degree.INVARIANT,
        Slope.STEP,
        """
        rand_like randn_like randint_like randperm rand randn randint uniform normal_functional random exponential
        geometric cauchy log_normal
        """,
    ),
    Row(Degree.ZERO, Slope.STEP, "zeros_like new_zeros zeros zero"),
    # Functions without a degree: activations that stand in for a ReLU, then gates, probabilities and the like.
    Row(
        Degree.ACTIVATION,
        Slope.CURVED,
        "gelu silu elu selu celu mish hardswish softplus tanh log_sigmoid log_sigmoid_forward glu",
        fix=_RELU_FIX,
    ),
    Row(Degree.ACTIVATION, Slope.GATE, "hardshrink softshrink", fix=_RELU_FIX),
    Row(
        Degree.ACTIVATION,
        Slope.CURVED,
        "lstm gru rnn_tanh",
        fix=f'nn.RNN(nonlinearity="relu", bias=False) is homogeneous. {LIFT_FIX}',
    ),
    Row(Degree.ACTIVATION, Slope.STEP, "round floor ceil trunc fix", kind="rounding", fix=_ROUND_FIX),
    Row(Degree.ACTIVATION, Slope.GATE, "frac", kind="rounding", fix=_ROUND_FIX),
    Row(Degree.SQUASH, Slope.CURVED, "sigmoid", fix=_GATE_FIX),
    Row(Degree.SQUASH, Slope.GATE, "hardsigmoid", fix=_GATE_FIX),
    Row(
        Degree.SQUASH,
        Slope.CURVED,
        "softmax _softmax _safe_softmax log_softmax _log_softmax",
        kind="attention",
        fix=_SOFTMAX_FIX,
    ),
    Row(
        Degree.SQUASH,
        Slope.CURVED,
        """
        exp exp2 expm1 log log2 log10 log1p logit erf erfc erfinv sin cos tan asin acos atan asinh acosh atanh sinh cosh
        sinc lgamma digamma special_expit special_erf arcsin arccos arctan special_erfcx special_ndtr special_log_ndtr
        i0 special_i0e special_i1 special_entr polygamma logaddexp logaddexp2 logsumexp logcumsumexp matrix_exp
        linalg_matrix_exp
        """,
    ),
    Row(Degree.SQUASH, Slope.STEP, "bernoulli multinomial poisson"),
)

for row in TABLE:
    rule(*aten(row.operators))(row)
    SLOPES.update(dict.fromkeys(aten(row.operators), row.slope))
