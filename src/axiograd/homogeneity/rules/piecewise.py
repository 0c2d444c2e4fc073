"""What each operator does to a value that is affine in the input while every gate is held as it is.

A gate picks: which half of a ReLU, which entry of a pool, which branch of a `where`. Operators in no list are
curved, or unknown, which is the same here.
"""

from axiograd.homogeneity.rules.registry import aten

#: Affine in all floating-point arguments together.
LINEAR = frozenset(
    aten(
        """
    add sub rsub subtract __rsub__ neg negative positive sum mean nansum cumsum trace diff
    view reshape _unsafe_view view_as reshape_as flatten unflatten squeeze unsqueeze expand expand_as broadcast_to
    permute transpose t numpy_T mT movedim moveaxis swapaxes swapdims select slice narrow narrow_copy diagonal diag
    diag_embed linalg_diagonal triu tril flip fliplr flipud rot90 roll repeat tile repeat_interleave unfold unfold_copy
    clone contiguous alias alias_copy view_copy slice_copy select_copy expand_copy permute_copy transpose_copy
    squeeze_copy unsqueeze_copy t_copy as_strided as_strided_copy lift_fresh_copy lift to _to_copy type_as
    float double half pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle im2col col2im index
    index_select gather take take_along_dim masked_select _unsafe_index atleast_1d atleast_2d atleast_3d ravel
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d constant_pad_nd pad max_unpool2d max_unpool3d
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool3d
    split split_with_sizes split_copy split_with_sizes_copy chunk tensor_split unbind unbind_copy unsafe_split
    unsafe_chunk unsafe_split_with_sizes cat stack hstack vstack dstack column_stack block_diag concat concatenate
    meshgrid broadcast_tensors select_scatter slice_scatter diagonal_scatter as_strided_scatter masked_scatter
    index_copy index_put _unsafe_index_put scatter_add index_add masked_fill index_fill copy fill where
    put nanmean affine_grid_generator cartesian_prod
    real imag conj _conj conj_physical _conj_physical resolve_conj resolve_neg view_as_real view_as_real_copy
    view_as_complex view_as_complex_copy _fft_c2c _fft_c2r _fft_r2c fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2
    fft_ifftn fft_rfft fft_rfft2 fft_rfftn fft_irfft fft_irfft2 fft_irfftn fft_fftshift fft_ifftshift
    dropout feature_dropout native_dropout new_tensor scalar_tensor full full_like new_full
    """
    )
)
#: Linear in each group of arguments, so that only one of them may depend on the input; the rest is added.
PRODUCTS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(aten("mul multiply"), (("self",), ("other",))),
    **dict.fromkeys(aten("mm bmm matmul linalg_matmul"), (("self", "input"), ("mat2", "other"))),
    **dict.fromkeys(aten("dot vdot"), (("self",), ("tensor", "other"))),
    **dict.fromkeys(aten("outer ger mv"), (("self",), ("vec2", "vec"))),
    **dict.fromkeys(aten("inner tensordot kron linalg_vecdot"), (("self", "x"), ("other", "y"))),
    **dict.fromkeys(
        aten(
            "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution "
            "conv_tbc"
        ),
        (("input", "self"), ("weight",)),
    ),
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
GATES = frozenset(
    aten(
        """
    relu leaky_relu rrelu rrelu_with_noise rrelu_with_noise_functional abs absolute hardtanh relu6 hardsigmoid clamp
    clamp_min clamp_max clip threshold hardshrink softshrink maximum minimum fmax fmin max min amax amin aminmax sort
    topk kthvalue median nanmedian mode nan_to_num msort cummax cummin frac
    max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices
    max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d
    fractional_max_pool3d
    """
    )
)
#: The outcome does not move until a gate switches.
STEPS = frozenset(
    aten(
        """
    eq ne lt le gt ge not_equal less less_equal greater greater_equal logical_and logical_or logical_xor
    logical_not __and__ __or__ __xor__ bitwise_and bitwise_or bitwise_not bitwise_xor isclose sign sgn signbit
    isnan isinf isfinite round floor ceil trunc fix argmax argmin argsort any all count_nonzero nonzero argwhere
    nonzero_numpy searchsorted bucketize isin zeros_like new_zeros zero ones_like new_ones empty_like new_empty
    new_empty_strided floor_divide heaviside cauchy exponential geometric log_normal normal_functional random uniform
    bernoulli poisson
    rand_like randn_like randint_like sym_size sym_numel
    """
    )
)
