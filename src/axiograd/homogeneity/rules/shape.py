"""Operators that move numbers about: the degree of what is moved stays."""

from axiograd.homogeneity.domain import FREE, ZERO, number, of_degree
from axiograd.homogeneity.rules.call import Call, flatten
from axiograd.homogeneity.rules.registry import Result, aten, rule

#: Numbers in another place, or mixed linearly.
MOVED = """
    view reshape _unsafe_view view_as reshape_as flatten unflatten squeeze unsqueeze expand expand_as
    broadcast_to permute transpose t numpy_T mT movedim moveaxis swapaxes swapdims select slice narrow
    narrow_copy diagonal diag diag_embed linalg_diagonal triu tril flip fliplr flipud rot90 roll repeat tile
    repeat_interleave unfold unfold_copy clone contiguous alias alias_copy view_copy slice_copy select_copy
    expand_copy permute_copy transpose_copy squeeze_copy unsqueeze_copy t_copy as_strided as_strided_copy
    lift_fresh_copy lift real imag conj _conj _conj_physical conj_physical resolve_conj resolve_neg view_as_real
    view_as_complex view_as_real_copy view_as_complex_copy positive to _to_copy type_as pixel_shuffle
    pixel_unshuffle channel_shuffle native_channel_shuffle im2col col2im index index_select gather take
    take_along_dim masked_select _unsafe_index trace upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d
    upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    atleast_1d atleast_2d atleast_3d ravel affine_grid_generator max_unpool2d max_unpool3d fft_fft fft_ifft
    fft_rfft fft_irfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn
    fft_fftshift fft_ifftshift _fft_r2c _fft_c2r _fft_c2c
"""
#: One tensor in several.
SPLIT = """
    split split_with_sizes split_copy split_with_sizes_copy chunk tensor_split unbind unbind_copy unsafe_split
    unsafe_chunk unsafe_split_with_sizes
"""
TOGETHER = "diff cat stack hstack vstack dstack column_stack block_diag concat concatenate"
INTO = """
    select_scatter slice_scatter diagonal_scatter as_strided_scatter masked_scatter index_copy put index_put
    _unsafe_index_put
"""
GROUPS = "meshgrid broadcast_tensors cartesian_prod"
FILLS = "copy fill full_like new_full full"
ONLY_SHAPE = "empty_like new_empty new_empty_strided ones_like new_ones sym_size sym_numel"
_ALSO = "embedding quantile nanquantile item _local_scalar_dense detach detach_copy stft istft"

#: The second tensor lends only its shape or dtype.
_LENDS = {"aten::view_as", "aten::reshape_as", "aten::expand_as", "aten::type_as", "aten::to"}


@rule(*aten(MOVED), *aten(SPLIT), *aten(_ALSO))
def keep(call: Call) -> Result:
    """One tensor in, its numbers out in another place (or mixed linearly): the degree stays."""
    value, *others = call.values()
    if call.name in {"aten::view", "aten::view_copy"} and call.get("dtype") is not None:
        return call.require_invariant(
            value,
            "The bits of a floating-point number are read as another type.",
            "Convert with .to(dtype) instead of .view(dtype).",
            kind="rounding",
            then=value,
        )
    if call.name not in _LENDS:
        for other in others:
            call.require_invariant(
                other,
                f"{call.title} is steered by a value of degree {other.degree or 0:g}.",
                "Steer it by constants or by values of degree 0.",
            )
    return value


@rule(*aten(TOGETHER))
def together(call: Call) -> Result:
    return call.join(*call.values(), role="a concatenation")


@rule(*aten(GROUPS))
def several(call: Call) -> Result:
    return call.join(*call.values(), role="a group of tensors")


@rule(*aten(INTO))
def into(call: Call) -> Result:
    source = next(call.value(name) for name in ("src", "source", "values") if name in call.arguments)
    return call.join(call.value("self"), source, role="an assignment to part of a tensor")


@rule(*aten("scatter scatter_add index_add scatter_reduce index_reduce"))
def scatter(call: Call) -> Result:
    if call.get("reduce") in {"multiply", "prod"}:
        call.report(
            "A scatter by multiplication raises each entry to a power that depends on the indices.",
            "Reduce by sum, mean, amax or amin.",
            kind="degrees",
        )
        return call.value("self")
    source = next(call.value(name) for name in ("src", "source", "value") if call.get(name) is not None)
    return call.join(call.value("self"), source, role="a scatter")


@rule("aten::masked_fill", "aten::index_fill")
def masked_fill(call: Call) -> Result:
    return call.join(call.value("self"), call.value("value"), role="a fill")


@rule(*aten(FILLS))
def fill(call: Call) -> Result:
    """Of a constant that fills a tensor, what matters is whether it is zero."""
    value = next(call.value(name) for name in ("src", "value", "fill_value") if name in call.arguments)
    if value.constant is None:
        return value
    return ZERO if value.is_zero() else FREE if value.is_free() else of_degree(0)


@rule("aten::where")
def where(call: Call) -> Result:
    if "self" not in call.arguments:
        # where(condition) lists the places where it is not zero.
        return of_degree(0)
    return call.join(call.value("self"), call.value("other"), role="a choice between two values")


@rule("aten::constant_pad_nd", "aten::pad")
def pad(call: Call) -> Result:
    if call.get("mode", "constant") != "constant":
        return call.value("self")
    return call.join(call.value("self"), number(call.get("value", 0.0)), role="padding")


@rule("aten::grid_sampler", "aten::grid_sampler_2d", "aten::grid_sampler_3d")
def grid_sampler(call: Call) -> Result:
    call.require_invariant(
        call.value("grid"),
        f"The sampling grid has degree {call.degree('grid'):g}, so that scaling the input moves the places it reads.",
        "Compute the grid from normalised values.",
    )
    return call.value("input")


@rule("aten::zeros_like", "aten::new_zeros", "aten::zeros", "aten::zero")
def zeros(call: Call) -> Result:  # noqa: ARG001 - the rule needs no argument
    return ZERO


@rule(*aten(ONLY_SHAPE))
def only_shape(call: Call) -> Result:  # noqa: ARG001 - only the shape of the argument counts
    return of_degree(0)


@rule("aten::scalar_tensor")
def tensor(call: Call) -> Result:
    return next(iter(flatten(call.arguments.values())), of_degree(0))
