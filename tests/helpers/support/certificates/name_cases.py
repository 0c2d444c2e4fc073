"""A case for every name that the other lines of the table do not meet: PyTorch's operators, called by those names."""

from functools import partial

import torch

from support.certificates.cases import EPS, INDEX, MASK, POSITIVE, B, K, case, signed, unit

ATEN = torch.ops.aten
K3 = signed(3, 1, 2, 2, 2)
TBC = signed(2, 3, 3)
GRID, GRID3 = signed(2, 4, 4, 2).tanh(), signed(2, 2, 2, 2, 3).tanh()
SAMPLES2, SAMPLES3 = (torch.full((2, c, n), 0.4, dtype=torch.float64) for c, n in ((3, 2), (1, 3)))
WINDOW = torch.ones(4, dtype=torch.float64)
MEAN, VARIANCE = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
WEIGHTS = [0.3 * signed(5, 6), 0.3 * signed(5, 5)]


def each(names, degree, call, **more):
    """One case per name, for names that are called alike."""
    operators = {name: getattr(ATEN, name) for name in names.split()}
    return [case(name, partial(call, op), degree, **more) for name, op in operators.items()]


def _complex(x):
    return torch.complex(x, x.flip(0))


def _recurrent(op, x, gates, states):
    zero = x.new_zeros(1, 1, 5)
    start = zero if states == 1 else [zero, zero]
    weights = [w.repeat(gates, 1) for w in WEIGHTS]
    return op.input(x.unsqueeze(1), start, weights, False, 1, 0.0, False, False, False)[0]


def _attention(op, i, *more):
    return op(unit(i), unit(i), i, *more)[0]


#: Operators that a program shows only where nothing is changed in place, because they are made of others.
PLAIN = [
    *each(
        "absolute negative positive alias_copy lift lift_fresh_copy conj conj_physical _conj_physical resolve_conj "
        "resolve_neg detach_copy ravel mT numpy_T t_copy squeeze_copy triu diag_embed diagonal diag fliplr flipud "
        "rot90 msort flatten contiguous nansum nanmean nanmedian atleast_1d atleast_2d atleast_3d linalg_diagonal "
        "real norm linalg_norm nuclear_norm pdist _pdist_forward fft_fft fft_fftn fft_fftshift fft_ifft fft_ifft2 "
        "fft_ifftn fft_ifftshift fft_rfft2 fft_rfftn",
        1,
        lambda op, x, i: op(x),
    ),
    *each(
        "fft_irfft fft_irfft2 fft_irfftn imag view_as_real view_as_real_copy _conj", 1, lambda op, x, i: op(_complex(x))
    ),
    *each("hstack vstack dstack column_stack concat concatenate block_diag", 1, lambda op, x, i: op([x, 2 * x])),
    *each("broadcast_tensors", 1, lambda op, x, i: op([x, x[0]])[1]),
    *each("cartesian_prod", 1, lambda op, x, i: op([x[0], x[1]])),
    *each("reshape_as view_as type_as", 1, lambda op, x, i: op(x, x * 2)),
    *each("empty_like", 1, lambda op, x, i: ATEN.copy(op(x), x)),
    *each("new_empty", 1, lambda op, x, i: ATEN.copy(op(x, [4, 6]), x)),
    *each("new_empty_strided", 1, lambda op, x, i: ATEN.copy(op(x, [4, 6], [6, 1]), x)),
    *each("full", None, lambda op, x, i: x + op([4, 6], 2.0)),
    *each("scalar_tensor", None, lambda op, x, i: x + op(2.0)),
    *each("zeros", 1, lambda op, x, i: x + op([4, 6])),
    *each("broadcast_to", 1, lambda op, x, i: op(x, [2, 4, 6])),
]

SAME = [
    *each("view_as_complex view_as_complex_copy", 1, lambda op, x, i: op(x.reshape(4, 3, 2))),
    *each("expand expand_copy", 1, lambda op, x, i: op(x, [2, 4, 6])),
    *each("reshape view_copy", 1, lambda op, x, i: op(x, [3, 8])),
    *each("movedim moveaxis", 1, lambda op, x, i: op.int(x, 0, 1)),
    *each("swapaxes swapdims transpose transpose_copy", 1, lambda op, x, i: op(x, 0, 1)),
    *each("permute_copy", 1, lambda op, x, i: op(x, [1, 0])),
    *each("select_copy", 1, lambda op, x, i: op(x, 1, 2)),
    *each("slice_copy", 1, lambda op, x, i: op(x, 1, 0, 4, 2)),
    *each("narrow narrow_copy", 1, lambda op, x, i: op(x, 1, 2, 3)),
    *each("unfold unfold_copy", 1, lambda op, x, i: op(x, 1, 3, 2)),
    *each("unsqueeze_copy", 1, lambda op, x, i: op(x, 1)),
    *each("unflatten", 1, lambda op, x, i: op(x, 1, [2, 3])),
    *each("tile", 1, lambda op, x, i: op(x, [2, 1])),
    *each("chunk unsafe_chunk tensor_split split_copy unsafe_split", 1, lambda op, x, i: op(x, 2, 1)[1]),
    *each("split_with_sizes split_with_sizes_copy unsafe_split_with_sizes", 1, lambda op, x, i: op(x, [2, 4], 1)[1]),
    *each("unbind_copy", 1, lambda op, x, i: op(x)[1]),
    *each("repeat_interleave", 1, lambda op, x, i: op(x, 2)),
    *each("as_strided as_strided_copy", 1, lambda op, x, i: op(x, [4, 2], [6, 3])),
    *each(
        "as_strided_scatter",
        None,
        lambda op, x, i: op(torch.zeros_like(x), x[:, :2], [4, 2], [6, 3]),
        conservative=True,
    ),
    *each("index_select", 1, lambda op, x, i: op(x, 1, INDEX)),
    *each("_unsafe_index", 1, lambda op, x, i: op(x, [None, INDEX])),
    *each("_unsafe_index_put", 1, lambda op, x, i: op(x, [None, INDEX], 2 * x)),
    *each("index_copy", 1, lambda op, x, i: op(x, 1, INDEX[:2], x[:, 2:4])),
    *each("index_fill", None, lambda op, x, i: op(x, 1, INDEX[:2], 1.0)),
    *each("index_reduce", 1, lambda op, x, i: op(x, 1, INDEX[:2], x[:, 2:4], "amax")),
    *each("masked_select", 1, lambda op, x, i: op(x, MASK)),
    *each("masked_scatter", 1, lambda op, x, i: op(x, MASK, x * 2)),
    *each("take put", 1, lambda op, x, i: op(x, INDEX, *([x[0]] if op is ATEN.put else []))),
    *each("take_along_dim", 1, lambda op, x, i: op(x, x.argsort(1), 1)),
    *each("diagonal_scatter", 1, lambda op, x, i: op(x, x[:, 0])),
    *each("channel_shuffle native_channel_shuffle", 1, lambda op, x, i: op(i, 3)),
    *each("pixel_shuffle", 1, lambda op, x, i: op(i.reshape(2, 12, 4, 4), 2)),
    *each("constant_pad_nd", 1, lambda op, x, i: op(x, [1, 1])),
    *each("reflection_pad1d replication_pad1d", 1, lambda op, x, i: op(x, [1, 1])),
    *each("reflection_pad2d replication_pad2d", 1, lambda op, x, i: op(i, [1] * 4)),
    *each("reflection_pad3d replication_pad3d", 1, lambda op, x, i: op(i, [1] * 6)),
    *each("upsample_nearest1d _upsample_nearest_exact1d", 1, lambda op, x, i: op(i[0], [5])),
    *each("_upsample_nearest_exact2d", 1, lambda op, x, i: op(i, [5, 5])),
    *each("upsample_nearest3d _upsample_nearest_exact3d", 1, lambda op, x, i: op(i[None], [2, 5, 5])),
    *each("upsample_linear1d", 1, lambda op, x, i: op(i[0], [5], False)),
    *each("upsample_bicubic2d _upsample_bilinear2d_aa", 1, lambda op, x, i: op(i, [5, 5], False)),
    *each("upsample_trilinear3d", 1, lambda op, x, i: op(i[None], [2, 5, 5], False)),
    *each("grid_sampler_2d", 1, lambda op, x, i: op(i, GRID, 0, 0, False)),
    *each("grid_sampler_3d", 1, lambda op, x, i: op(i[:, None], GRID3, 0, 0, False)),
    *each("affine_grid_generator", 1, lambda op, x, i: op(x[:2].reshape(2, 2, 3), [2, 1, 3, 3], False)),
    *each("stft", 1, lambda op, x, i: op(x, 4, window=WINDOW, return_complex=True)),
    *each("istft", 1, lambda op, x, i: op(torch.complex(i[0, :, :3], i[1, :, :3]), 4, window=WINDOW, length=4)),
    *each("_fft_r2c", 1, lambda op, x, i: op(x, [1], 0, True)),
    *each("_fft_c2c", 1, lambda op, x, i: op(_complex(x), [1], 0, True)),
    *each("_fft_c2r", 1, lambda op, x, i: op(_complex(x), [1], 0, 10)),
    *each("to", 1, lambda op, x, i: op.dtype(x, torch.float64, copy=True)),
]

CONSTANTS = [
    *each("zero", 1, lambda op, x, i: op(x) + x),
    *each("new_ones", None, lambda op, x, i: x + op(x, [4, 6])),
    *each("new_full", None, lambda op, x, i: x + op(x, [4, 6], 2.0)),
    *each("rand randn", 1, lambda op, x, i: x * op([4, 6])),
    *each("rand_like cauchy exponential log_normal uniform random normal_functional", 1, lambda op, x, i: x * op(x)),
    *each("randint", 1, lambda op, x, i: x * op(5, [4, 6])),
    *each("randint_like", 1, lambda op, x, i: x * op(x, 5)),
    *each("randperm", 1, lambda op, x, i: x * op(6)),
    *each("geometric", 1, lambda op, x, i: x * op(x, 0.5)),
    *each("multinomial", 1, lambda op, x, i: x * op(POSITIVE + x[0] * 0, 6)),
    *each("poisson", None, lambda op, x, i: op(x.abs() * 50)),
    *each("dropout feature_dropout", 1, lambda op, x, i: op(i, 0.5, True)),
    *each("rrelu_with_noise", 1, lambda op, x, i: op(x, torch.ones_like(x), 0.1, 0.3, True)),
    *each("rrelu_with_noise_functional", 1, lambda op, x, i: op(x, torch.ones_like(x), 0.1, 0.3, True)[0]),
]

#: Operators without a rule, which torch takes apart: then everything else is, too.
DECOMPOSED = each("alpha_dropout feature_alpha_dropout", None, lambda op, x, i: op(i, 0.5, True))

CURVED = [
    *each(
        "acos arccos asin arcsin arctan asinh acosh atanh cos cosh sinh tan sinc erfc erfinv exp2 log2 log10 lgamma "
        "digamma i0 logit special_entr special_erf special_erfcx special_expit special_i0e special_i1 special_log_ndtr "
        "special_ndtr ceil fix frac trunc",
        None,
        lambda op, x, i: op(x),
    ),
    *each("polygamma", None, lambda op, x, i: op(1, x.abs())),
    *each("logaddexp2", None, lambda op, x, i: op(x, x.abs())),
    *each("matrix_exp linalg_matrix_exp", None, lambda op, x, i: op(x[:, :4])),
    *each("_softmax _log_softmax", None, lambda op, x, i: op(x, 1, False)),
    *each("_safe_softmax", None, lambda op, x, i: op(x, 1)),
    *each("log_sigmoid_forward", None, lambda op, x, i: op(x)[0]),
    *each("rnn_tanh", None, lambda op, x, i: _recurrent(op, x, 1, 1)),
    *each("gru", None, lambda op, x, i: _recurrent(op, x, 3, 1)),
    *each("lstm", None, lambda op, x, i: _recurrent(op, x, 4, 2)),
    *each("rnn_relu", 1, lambda op, x, i: _recurrent(op, x, 1, 1)),
]

DECISIONS = [
    *each("sgn signbit isnan isinf angle logical_not", 1, lambda op, x, i: op(x) * x),
    *each("greater greater_equal less less_equal le lt ne not_equal", 1, lambda op, x, i: op(x, x.flip(0)) * x),
    *each("logical_or logical_xor", 1, lambda op, x, i: op(x, x.relu()) * x),
    *each("bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__", 1, lambda op, x, i: op(x > 0, x > x.mean()) * x),
    *each("bitwise_not", 1, lambda op, x, i: op(x > 0) * x),
    *each("isin", 1, lambda op, x, i: op(x, x[0]) * x),
    *each("argmin", 1, lambda op, x, i: op(x, 1) * x[:, 0]),
    *each("argwhere nonzero", 0, lambda op, x, i: op(x.relu()).sum(0)),
    *each("nonzero_numpy", 0, lambda op, x, i: op(x.relu())[0].sum()),
    *each("item _local_scalar_dense", 2, lambda op, x, i: x.detach() * op(x[0, 0])),
    *each("threshold_backward", 1, lambda op, x, i: op(x, x.flip(0), 0.0)),
    *each("clamp_max clip", 1, lambda op, x, i: op(x, *([0.0] if op is ATEN.clamp_max else [None, 0.0]))),
    *each("min fmin", 1, lambda op, x, i: op(x, -x)),
    *each("aminmax", 1, lambda op, x, i: op(x)[1]),
    *each("cummin mode", 1, lambda op, x, i: op(x, 1)[0]),
    *each("nanquantile", 1, lambda op, x, i: op.scalar(x, 0.3, 1)),
    *each("std_mean", 1, lambda op, x, i: op(x)[0] + op(x)[1]),
    *each("frobenius_norm", 1, lambda op, x, i: op(x, [0, 1])),
    *each("linalg_matrix_norm", 1, lambda op, x, i: op(x, 2)),
    *each("dist _euclidean_dist", 1, lambda op, x, i: op(x, 2 * x)),
    *each("_cdist_forward", 1, lambda op, x, i: op(x, x.flip(0), 2.0, None)),
    *each("pairwise_distance", None, lambda op, x, i: op(x, B, 2.0, 1e-6)),
]

PRODUCTS = [
    *each("multiply kron", 2, lambda op, x, i: op(x, x.flip(0))),
    *each("divide true_divide arctan2", 0, lambda op, x, i: op(x, x.flip(0))),
    *each("subtract", 1, lambda op, x, i: op(x, x.flip(0))),
    *each("mm matmul linalg_matmul", 2, lambda op, x, i: op(x, x.t())),
    *each("mv", 2, lambda op, x, i: op(x, x[0])),
    *each("dot vdot inner ger", 2, lambda op, x, i: op(x[0], x[1])),
    *each("linalg_vecdot", 2, lambda op, x, i: op(x, x.flip(0))),
    *each("cross", 2, lambda op, x, i: op(x[:, :3], x[:, 3:], 1)),
    *each("tensordot", 2, lambda op, x, i: op(x, x, [1], [1])),
    *each("chain_matmul linalg_multi_dot", 3, lambda op, x, i: op([x, x.t(), x])),
    *each("addmv", None, lambda op, x, i: op(x[:, 0], x, x[0])),
    *each("addr", 2, lambda op, x, i: op(x * x, x[:, 0], x[0])),
    *each("addbmm", 2, lambda op, x, i: op(i[0, 0] ** 2, i[0], i[1])),
    *each("_trilinear", 3, lambda op, x, i: op(x[:2, :2], x[:2, :2], x[:2, :2], [], [], [], [1])),
    *each("convolution", 1, lambda op, x, i: op(i, K, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
    *each(
        "_convolution",
        1,
        lambda op, x, i: op.default(i, K, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, False, False, True, True),
    ),
    *each("conv3d", 1, lambda op, x, i: op(i[:, None], K3)),
    *each("conv_transpose3d", 1, lambda op, x, i: op(i[:, :, None], K3)),
    *each("conv_transpose1d", 1, lambda op, x, i: op(i[0], TBC.repeat(4, 1, 1))),
    *each("conv_tbc", 1, lambda op, x, i: op(i[0].permute(1, 2, 0), TBC, MEAN)),
    *each("_prelu_kernel", 1, lambda op, x, i: op(x, POSITIVE)),
]

MATRICES = [
    *each("inverse", -1, lambda op, x, i: op(x[:, :4])),
    *each("linalg_inv_ex", -1, lambda op, x, i: op(x[:, :4])[0]),
    *each("_linalg_det", 4, lambda op, x, i: op(x[:, :4])[0]),
    *each("linalg_cholesky_ex", 1, lambda op, x, i: op(x @ x.t())[0]),
    *each("linalg_eigh _linalg_eigh", 2, lambda op, x, i: op(x @ x.t())[0]),
    *each("linalg_svd _linalg_svd", 1, lambda op, x, i: op(x)[1]),
    *each("linalg_solve_ex", 0, lambda op, x, i: op(x[:, :4], x)[0]),
]

LAYERS = [
    *each("native_layer_norm", 1, lambda op, x, i: op(x, [6], None, None, EPS)[0] * x),
    *each("_fused_rms_norm", 1, lambda op, x, i: op(x, [6], None, EPS)[0] * x),
    *each("native_group_norm", 1, lambda op, x, i: op(i, None, None, 2, 3, 64, 3, EPS)[0] * i),
    *each(
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional",
        1,
        lambda op, x, i: op(i, None, None, MEAN.clone(), VARIANCE.clone(), True, 0.1, EPS)[0] * i,
    ),
    *each("_native_batch_norm_legit_no_training", 1, lambda op, x, i: op(i, None, None, MEAN, VARIANCE, 0.1, EPS)[0]),
    *each("_adaptive_avg_pool2d", 1, lambda op, x, i: op(i, [3, 3])),
    *each("_adaptive_avg_pool3d adaptive_avg_pool3d", 1, lambda op, x, i: op(i, [2, 3, 3])),
    *each("adaptive_max_pool3d", 1, lambda op, x, i: op(i, [2, 3, 3])[0]),
    *each("adaptive_avg_pool1d avg_pool1d", 1, lambda op, x, i: op(x, [3])),
    *each("adaptive_max_pool1d max_pool1d_with_indices", 1, lambda op, x, i: op(x, [3])[0]),
    *each("max_pool3d", 1, lambda op, x, i: op(i, [2, 2, 2])),
    *each("max_pool3d_with_indices", 1, lambda op, x, i: op(i, [2, 2, 2])[0]),
    *each(
        "max_unpool3d",
        1,
        lambda op, x, i: op(*ATEN.max_pool3d_with_indices(i, [1, 2, 2]), [3, 8, 8], [1, 2, 2], [0] * 3),
    ),
    *each("fractional_max_pool2d", 1, lambda op, x, i: op(i, [2, 2], [4, 4], SAMPLES2)[0]),
    *each("fractional_max_pool3d", 1, lambda op, x, i: op(i[:, None], [1, 2, 2], [2, 4, 4], SAMPLES3)[0]),
    *each(
        "_scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu",
        1,
        lambda op, x, i: _attention(op, i),
    ),
]

BY_NAME = {
    "names: plain": PLAIN, "names": SAME, "names: constants": CONSTANTS, "names: curved": CURVED,
    "names: decomposed": DECOMPOSED,
    "names: decisions": DECISIONS, "names: products": PRODUCTS, "names: matrices": MATRICES, "names: layers": LAYERS,
}  # fmt: skip
