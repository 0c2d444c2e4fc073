"""A static page that runs an exported file in the browser: photo or camera in, classes, heat map and gap out."""

from __future__ import annotations

import http.client
import json
import os
import tarfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from axiograd._calls import Model
from axiograd._io import check_writable, write_atomically
from axiograd._locate import cache_home
from axiograd.datasets import Preprocess
from axiograd.errors import DataMissingError, InputError, StorageError
from axiograd.export.card import Card
from axiograd.export.exporting import TOLERANCE, export_onnx
from axiograd.report.colours import shared_assets

#: The npm package with onnxruntime's WebAssembly, its SHA-256, and what of it a page needs.
ADDRESS = "https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-1.30.0.tgz"
SHA256 = "d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71"
_RUNTIME = {"ort.js": "dist/ort.wasm.bundle.min.mjs", "ort.wasm": "dist/ort-wasm-simd-threaded.wasm"}


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
    download: bool = False,
) -> Card:
    """Write a folder that any static server serves: the model, onnxruntime's WebAssembly, and a page around them.

    The model takes photos of any size, prepared inside, and ``contrast``, by which their distance from the baseline is
    multiplied: F(αx) = αᵏF(x), so classes and heat map stay as they are. ``onnxruntime_web`` is the .tgz file of the
    npm package of that name; without it, the one in the cache is taken, where ``download=True`` puts it. The page
    itself loads nothing from elsewhere.

    ``axiograd.export.export_page(model, images, "live", preprocessing=Preprocess(), download=True)`` and then
    ``python -m http.server -d live``.
    """
    goal = Path(folder)
    if goal.exists() and not goal.is_dir():
        raise StorageError(f"Cannot write a page to {str(goal)!r}: it is a file.")
    check_writable(goal)
    if preprocessing.crop is None:
        raise InputError(f"{preprocessing} does not change the size of images: a page needs one with a crop.")
    runtime = runtime_files(runtime_package(download=download) if onnxruntime_web is None else Path(onnxruntime_web))
    options: dict[str, Any] = {"preprocessing": preprocessing, "inside": True, "contrast": True}
    card = export_onnx(model, example_inputs, goal / "model.onnx", classes=classes, tolerance=tolerance, **options)
    about = {
        "name": name or card.certificate.model or "model",
        "classes": list(classes),
        "degree": card.certificate.degree,
        "resize": preprocessing.resize,
        "crop": preprocessing.crop,
        "zero": _colour_of_zero(preprocessing),
        "card": str(card),
    }
    write_atomically(goal / "page.json", json.dumps(about, ensure_ascii=False).encode())
    for file, content in runtime.items():
        write_atomically(goal / "ort" / file, content)
    for asset in (resources.files("axiograd.export") / "assets").iterdir():
        write_atomically(goal / asset.name, asset.read_bytes())
    for file, text in shared_assets().items():
        write_atomically(goal / file, text.encode())
    return card


def runtime_package(*, download: bool = False) -> Path:
    """The npm package in the cache, fetched and checked if it is not there yet."""
    package = cache_home() / "npm" / Path(ADDRESS).name
    advice = f"Or fetch {ADDRESS} by other means, and name the file: onnxruntime_web= (--onnxruntime-web)."
    if package.exists():
        return package
    if not download:
        raise DataMissingError(
            f"a page needs onnxruntime's WebAssembly, {package.name} (33 MB), which is not in {package.parent}: "
            f"download=True (--download) fetches it. {advice}"
        )
    package.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(ADDRESS, str(package), SHA256, progress=False)
    except (OSError, http.client.HTTPException) as error:
        raise DataMissingError(f"could not download {package.name}: {error}. {advice}") from error
    except RuntimeError as error:  # torch.hub's, for another checksum
        raise StorageError(f"{ADDRESS} does not match the published file: {error}; nothing was kept.") from error
    return package


def runtime_files(package: Path) -> dict[str, bytes]:
    """The two files of onnxruntime-web that run one thread of WebAssembly."""
    try:
        with tarfile.open(package) as archive:
            return {file: archive.extractfile(f"package/{inner}").read() for file, inner in _RUNTIME.items()}  # type: ignore[union-attr]
    except (OSError, KeyError, tarfile.TarError) as error:
        raise DataMissingError(
            f"{package} is not the npm package onnxruntime-web as a .tgz file, or not one like {Path(ADDRESS).name}: "
            f"{str(error).strip()}."
        ) from error


def _colour_of_zero(how: Preprocess) -> list[float]:
    """What a zero of the model's input is in a photo, in red, green and blue up to 255."""
    mean = [255 * value / how.white for value in how.mean]
    return mean[::-1] if how.bgr else mean
