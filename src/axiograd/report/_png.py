"""PNG from an array with the standard library alone, for pages and notebooks where no image package is installed."""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from axiograd.report.arrays import Array


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """The PNG file of [height, width, 3] bytes.

    >>> encode(np.zeros((2, 2, 3), dtype=np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width, _ = pixels.shape
    rows = pixels.reshape(height, width * 3)
    # The "up" filter: neighbouring rows are alike, so that their differences compress well.
    differences = np.diff(rows, axis=0, prepend=np.zeros((1, width * 3), dtype=np.uint8)).astype(np.uint8)
    lines = np.concatenate([np.full((height, 1), 2, dtype=np.uint8), differences], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def data_uri(image: Array) -> str:
    """`data:image/png;base64,…` of RGB in [0, 1]."""
    return as_uri(encode((image * 255).round().astype(np.uint8)))


def as_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
