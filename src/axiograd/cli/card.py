"""A card beside a converted model's file: what it is, how it was made, what it keeps, and its hash."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from axiograd._version import __version__
from axiograd.runs.files import write_atomically
from axiograd.runs.tensors import file_sha256

if TYPE_CHECKING:
    from axiograd.homogeneity import Conversion


def write_card(file: Path, conversion: Conversion, *, spec: str, source: str, kept: float | None, code: str) -> Path:
    """FILE.md beside FILE.safetensors."""
    certificate = conversion.certificate
    lines = [
        f"# {spec}, an X-DNN by {conversion.how}",
        "",
        f"- file: {file.name}, SHA-256 {file_sha256(file)}",
        f"- made by axiograd {__version__} from {spec}, on {source}",
        f"- certificate: degree {certificate.degree:g}, {'exact' if certificate.exact else 'up to epsilons'}",
    ]
    if kept is not None:
        lines.append(f"- top class as before for {kept:.0%} of these examples")
    lines += ["", "```python", code, "```", "", "```text", str(conversion), "```", ""]
    if conversion.layers:
        lines += ["| layer | calibration | held out | error of c | penalty |", "|---|---|---|---|---|"]
        for fit in conversion.layers:
            penalty = "" if math.isnan(fit.penalty) else f"{fit.penalty:g}"
            shares = f"{fit.calibration:.4f} | {fit.held_out:.4f} | {fit.bias_error:.3f}"
            lines.append(f"| {fit.name} | {shares} | {penalty} |")
        lines += ["", "How much of each layer of the original is reproduced; 1 is all of it.", ""]
    return write_atomically(file.with_suffix(".md"), "\n".join(lines).encode())
