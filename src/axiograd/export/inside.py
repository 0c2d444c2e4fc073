"""Resizing, cropping and normalising as a part of the graph: uint8 images in, whatever their size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from axiograd.datasets import Preprocess
from axiograd.errors import ExportError, InputError
from axiograd.export.joint import IMAGES, Joint
from axiograd.export.onnx_file import require_onnx, runner

if TYPE_CHECKING:
    import onnx

#: What Pillow and the graph may differ by, in levels of 255: both work on bytes, and round about one in a hundred
#: differently where they resize.
LEVELS = 1.01
_SIZES = ((37, 53), (64, 48), (300, 211))


def with_preprocessing(
    proto: onnx.ModelProto, how: Preprocess, joint: Joint, *, contrast: bool = False
) -> onnx.ModelProto:
    """The graph behind one that takes ``image``, uint8 [batch, height, width, 3] in RGB, and prepares it.

    With ``contrast`` it also takes that, one number by which what is prepared is multiplied.
    """
    tools = require_onnx()
    version = next(each.version for each in proto.opset_import if not each.domain)
    graph = tools.parser.parse_graph(_text(how, contrast=contrast))
    opset = [tools.helper.make_opsetid("", version)]
    first = tools.helper.make_model(graph, opset_imports=opset, ir_version=proto.ir_version)
    _check_pixels(first, how)
    _name_prepared(proto, how)
    first = tools.compose.add_prefix(first, "prepare/", rename_inputs=False, rename_outputs=False)
    merged: Any = tools.compose.merge_models(first, proto, io_map=[("prepared", joint.inputs[0][0])])
    merged.producer_name = proto.producer_name
    return cast("onnx.ModelProto", merged)


def _name_prepared(proto: onnx.ModelProto, how: Preprocess) -> None:
    """What was the image's height is that of the prepared one, and the file's image has its own."""
    names = {"height": "rows", "width": "columns"}
    for value in (*proto.graph.input, *proto.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in names and how.crop is not None:
                size.dim_value = how.crop
            elif size.dim_param in names:
                size.dim_param = names[size.dim_param]


def check_fit(how: Preprocess, features: Sequence[Tensor], *, sizes: bool) -> None:
    """Does what is prepared have the size that the graph takes?"""
    (shape, *more) = (tuple(x.shape) for x in features)
    if more or len(shape) != IMAGES or shape[1] != 3:  # noqa: PLR2004  # red, green and blue
        raise InputError(f"preprocessing inside is for one image input of three channels, not for {[shape, *more]}.")
    if how.crop is None and not sizes:
        raise InputError(
            f"{how} does not change the size of images, and the graph takes {shape[2]} × {shape[3]} pixels: give "
            "a Preprocess with resize and crop, or export with sizes=True."
        )
    if how.crop is not None and not sizes and shape[2:] != (how.crop, how.crop):
        raise InputError(
            f"{how} crops to {how.crop} pixels, and the graph takes {shape[2]} × {shape[3]}: give example inputs of "
            "the size that it crops to."
        )


def _text(how: Preprocess, *, contrast: bool = False) -> str:
    """The steps in ONNX's own notation; on bytes, with exclude_outside, Resize gives what Pillow gives, but for
    its rounding."""
    lines = ["chw = Transpose <perm = [0, 3, 1, 2]> (image)"]
    pixels = "chw"
    if how.resize is not None:
        lines += [
            "sizes = Shape <start = 2> (chw)",
            "shortest = ReduceMin <keepdims = 1> (sizes)",
            f"short = Constant <value = int64[1] {{{how.resize}}}> ()",
            "scaled = Mul (sizes, short)",
            "wanted = Div (scaled, shortest)",
            "untouched = Shape <start = 0, end = 2> (chw)",
            "size = Concat <axis = 0> (untouched, wanted)",
            'resized = Resize <mode = "linear", antialias = 1, exclude_outside = 1> (chw, , , size)',
        ]
        pixels = "resized"
    if how.crop is not None:
        lines += [
            f"now = Shape <start = 2> ({pixels})",
            f"crop = Constant <value = int64[2] {{{how.crop}, {how.crop}}}> ()",
            "half = Constant <value = float[1] {0.5}> ()",
            "zero = Constant <value = int64[1] {0}> ()",
            "axes = Constant <value = int64[2] {2, 3}> ()",
            "over = Sub (now, crop)",
            "under = Sub (crop, now)",
            "missing = Max (under, zero)",
            "lacking = Cast <to = 1> (missing)",
            "halved = Mul (lacking, half)",
            "even = Round (halved)",  # to even, as Python does
            "before = Cast <to = 7> (even)",
            "after = Sub (missing, before)",
            "frame = Concat <axis = 0> (before, after)",
            "black = Constant <value = uint8 {0}> ()",
            f"padded = Pad ({pixels}, frame, black, axes)",
            "spare = Max (over, zero)",
            "outside = Cast <to = 1> (spare)",
            "middle = Mul (outside, half)",
            "rounded = Round (middle)",
            "start = Cast <to = 7> (rounded)",
            "end = Add (start, crop)",
            "cropped = Slice (padded, start, end, axes)",
        ]
        pixels = "cropped"
    if how.bgr:
        lines += [
            "last = Constant <value = int64[1] {-1}> ()",
            "beyond = Constant <value = int64[1] {-4}> ()",
            "channel = Constant <value = int64[1] {1}> ()",
            f"ordered = Slice ({pixels}, last, beyond, channel, last)",
        ]
        pixels = "ordered"
    factor = np.float32(how.white) / 255 / np.array(how.std, np.float32)
    shift = np.array(how.mean, np.float32) / np.array(how.std, np.float32)
    lines += [
        f"values = Cast <to = 1> ({pixels})",
        f"factor = Constant <value = float[1, 3, 1, 1] {{{', '.join(f'{v:.9g}' for v in factor)}}}> ()",
        f"shift = Constant <value = float[1, 3, 1, 1] {{{', '.join(f'{v:.9g}' for v in shift)}}}> ()",
        "bright = Mul (values, factor)",
        f"{'full' if contrast else 'prepared'} = Sub (bright, shift)",
    ]
    given = "uint8[batch, height, width, 3] image"
    if contrast:
        lines.append("prepared = Mul (full, contrast)")
        given += ", float[1] contrast"
    body = "\n".join(lines)
    return f"prepare ({given}) => (float[batch, 3, rows, columns] prepared) {{\n{body}\n}}"


def _check_pixels(proto: onnx.ModelProto, how: Preprocess) -> None:
    """What the graph makes of images must be what Pillow makes of them, up to rounding."""
    from axiograd.datasets.images import pillow

    run, generator = runner(proto), np.random.default_rng(0)
    level = how.white / 255 / min(how.std)
    for height, width in _SIZES:
        coarse = generator.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8)
        image: Any = pillow().fromarray(coarse).resize((width, height))
        found = run({"image": torch.from_numpy(np.asarray(image).copy())[None], "contrast": torch.ones(1)})["prepared"][
            0
        ]
        expected = how(image)
        if found.shape != expected.shape or float((found - expected).abs().max()) > LEVELS * level:
            raise ExportError(
                f"the graph prepares an image of {width} × {height} pixels as {tuple(found.shape)}, and not as "
                f"{how} does on {tuple(expected.shape)}."
            )
