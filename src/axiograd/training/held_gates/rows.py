"""Which calls keep the samples of a batch apart: row i of the result is made from row i of what depends on the input.

Told from the function and the shapes alone, so that no numbers (an index, a matrix of neighbours) can decide it.
What is not known to keep them apart counts as mixing them.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from axiograd.training.held_gates.operators import names

#: Entry by entry, with broadcasting.
_ENTRIES = frozenset(
    names(
        """
    relu leaky_relu prelu clamp clip clamp_min clamp_max hardtanh relu6 threshold _threshold hardshrink abs absolute
    __abs__ dropout dropout1d dropout2d dropout3d neg negative positive clone contiguous to float double half bfloat16
    type type_as add sub subtract rsub __radd__ __rsub__ mul multiply __rmul__ div divide true_divide __truediv__ where
    masked_fill maximum minimum fmax fmin batch_norm
    """
    )
)
#: Layers and pools of batched inputs, by the dimensions that an input has beside batch and channels.
_LAYERS = {
    f"{name}{d}d": d
    for d in (1, 2, 3)
    for name in ("conv", "conv_transpose", "max_pool", "adaptive_max_pool", "avg_pool", "adaptive_avg_pool")
}
#: The same numbers in the same order, in another shape.
_RESHAPED = frozenset(names("view reshape view_as reshape_as flatten unflatten squeeze unsqueeze"))
#: With the place of the dimension they work along.
_ALONG = {"sum": 1, "mean": 1, "amax": 1, "amin": 1, "cat": 1, "concat": 1, "concatenate": 1, "chunk": 2, "split": 2}


def keeps_rows(
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    moving: Sequence[Tensor],
    results: Sequence[Tensor],
    batch: int,
) -> bool:
    """Whether the call is known to keep the samples apart."""
    if batch == 1:
        return True
    if any(t.dim() == 0 or len(t) != batch for t in (*moving, *results)):
        return False
    rank = moving[0].dim()
    if name in _ENTRIES:
        # A tensor of fewer dimensions would be repeated along the batch.
        return all(t.dim() == results[0].dim() for t in moving)
    if name in _LAYERS:
        return len(moving) == 1 and bool(args) and args[0] is moving[0] and rank == _LAYERS[name] + 2
    if name == "linear":
        return len(moving) == 1 and bool(args) and args[0] is moving[0] and rank > 1
    if name in _RESHAPED:
        return len(moving) == 1
    if name in {"interpolate", "upsample", "pixel_shuffle", "pixel_unshuffle"}:
        return rank > 3 or (rank == 3 and name in {"interpolate", "upsample"})  # noqa: PLR2004
    if name in _ALONG:
        place = _ALONG[name]
        along = kwargs.get("dim", kwargs.get("axis", args[place] if len(args) > place else None))
        dims = along if isinstance(along, tuple | list) else (along,)
        return bool(dims) and all(isinstance(d, int) and d % rank != 0 for d in dims)
    return False
