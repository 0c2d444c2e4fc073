"""Layers that are fitted lie in a folder, so that an interrupted calibration resumes where it stopped."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor

from axiograd._io import alone, digest, load_tensors, require_same_settings, safetensors, save_tensors, write_atomically
from axiograd.errors import StorageError
from axiograd.homogeneity.conversion.calibrated.graph import CalibrationPlan, Site
from axiograd.homogeneity.conversion.calibrated.images import Calibration
from axiograd.homogeneity.conversion.calibrated.layers import AffineOfDegreeOne

#: Settings that change no number.
_ASIDE = {"images", "memory", "progress", "folder"}
_PARTS = ("weight", "bias", "reader")


@contextmanager
def kept_layers(
    layout: CalibrationPlan, calibration: Calibration, chunks: list[Tensor]
) -> Iterator["KeptLayers | None"]:
    """The layers of this calibration's folder, which nobody else writes into meanwhile; None where it has none."""
    if calibration.folder is None:
        yield None
        return
    safetensors("a calibration that can be interrupted")
    folder = Path(calibration.folder)
    with alone(folder):
        file, identity = folder / "calibration.json", _identity(layout, calibration, chunks)
        if file.is_file():
            try:
                found = json.loads(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise StorageError(f"{file} is damaged ({error}): remove the folder, or choose another.") from error
            require_same_settings(folder, found, identity, "Choose another folder, or remove this one.")
        else:
            write_atomically(file, json.dumps(identity, indent=1).encode())
        yield KeptLayers(folder)


def _identity(layout: CalibrationPlan, calibration: Calibration, chunks: list[Tensor]) -> dict[str, object]:
    """What the fitted numbers depend on."""
    settings = {f.name: getattr(calibration, f.name) for f in fields(calibration) if f.name not in _ASIDE}
    values = [layout.constants[node] for node in layout.graph.nodes if node in layout.constants]
    return {
        "layers": [site.name for site in layout.sites],
        "weights": digest(*values),
        "images": digest(*chunks),
        "settings": {name: None if value is None else repr(value) for name, value in settings.items()},
    }


class KeptLayers:
    """One file per layer: its numbers, how good it is, and the state of the generator after it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _file(self, site: Site, number: int) -> Path:
        return self.folder / f"layer-{number:04d}-{site.name[:80].replace('/', '-')}.safetensors"

    def restore(self, site: Site, number: int, generator: torch.Generator) -> list[float] | None:
        """Put a layer's numbers in their place, and return how good it is; None where it is not there."""
        file = self._file(site, number)
        if not file.is_file():
            return None
        found = load_tensors(file)
        for name in _PARTS:
            part = getattr(site.layer, name)
            if (part is None) != (name not in found) or (part is not None and part.shape != found[name].shape):
                raise StorageError(
                    f"{file} holds another layer than {site.name}: remove the folder, or choose another."
                )
            if part is not None:
                part.copy_(found[name])
        generator.set_state(found["generator"])
        quality: list[float] = found["quality"].tolist()
        return quality

    def keep(self, site: Site, number: int, generator: torch.Generator, quality: list[float]) -> None:
        layer: AffineOfDegreeOne = site.layer
        parts = {name: part for name in _PARTS if (part := getattr(layer, name)) is not None}
        quality_ = torch.tensor(quality, dtype=torch.float64)
        save_tensors(self._file(site, number), {**parts, "quality": quality_, "generator": generator.get_state()})
