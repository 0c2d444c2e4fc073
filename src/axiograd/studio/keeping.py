"""What outlives the studio: the network, the masks, a file that repeats the training, and a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from axiograd._io import save_tensors, write_atomically
from axiograd.attribution import XGradient
from axiograd.datasets.pictures import Pictures
from axiograd.errors import AxiogradError
from axiograd.report import Report
from axiograd.studio.marks import Marks
from axiograd.studio.mask_files import write_masks
from axiograd.studio.network import Origin
from axiograd.studio.split import Split

SHOWN = 12


def keep(
    folder: Path,
    *,
    pictures: Pictures,
    split: Split,
    marks: Marks,
    origin: Origin,
    rounds: Sequence[Mapping[str, Any]],
    number: int,
    weights: Callable[[int], Path],
    method: Callable[[int], XGradient],
) -> dict[str, Any]:
    """Write everything of a round into a folder; which files there are, and what could not be written and why."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = rounds[number]
    model = method(number).model
    assert isinstance(model, nn.Module)  # noqa: S101  # the studio's own
    write_atomically(folder / "model.safetensors", weights(number).read_bytes())
    masks = write_masks(folder / "masks", pictures, marks)
    files, missing = ["model.safetensors", "masks/", "masks/coco.json"], []
    if chosen["parent"] is not None:
        plan = chosen["plan"]
        at = Marks(marks.shape, marks.file, marks.actions[: chosen["actions"]])
        at._replay()  # noqa: SLF001  # as it was when the round was trained
        used = (
            masks
            if chosen["actions"] == len(marks.actions)
            else write_masks(folder / "masks-of-training", pictures, at)
        )
        place = "masks" if used is masks else "masks-of-training"
        write_atomically(folder / "start.safetensors", weights(chosen["parent"]).read_bytes())
        _write_images(folder, pictures, split, used, place)
        write_atomically(folder / "network.py", script(origin, plan).encode())
        write_atomically(folder / "mend.toml", toml(plan).encode())
        files += ["start.safetensors", "images.json", "network.py", "mend.toml"]
    try:
        from axiograd.export import export_onnx

        example = pictures.batch([split.train[0], split.train[-1]])
        export_onnx(model, example, folder / "model.onnx", classes=pictures.classes, preprocessing=pictures.transform)
        files.append("model.onnx")
    except (AxiogradError, RuntimeError) as error:
        missing.append(f"No ONNX file: {str(error).splitlines()[0]}")
    report(pictures, split, marks, rounds, number, method).write(folder / "report.html")
    files.append("report.html")
    return {"folder": str(folder), "files": files, "missing": missing}


def _write_images(
    folder: Path, pictures: Pictures, split: Split, masks: Mapping[int, Mapping[str, str]], place: str
) -> None:
    tensors = None
    if pictures.pixels is not None:
        tensors = "images.safetensors"
        save_tensors(folder / tensors, {"pixels": pictures.pixels})
    named = {str(row): {kind: f"{place}/{name}" for kind, name in one.items()} for row, one in masks.items()}
    content = pictures.description() | {"tensors": tensors, "train": list(split.train), "masks": named}
    write_atomically(folder / "images.json", (json.dumps(content) + "\n").encode())


def script(origin: Origin, plan: Mapping[str, Any]) -> str:
    """The Python that the configuration names: how the network is made, and the prior where it is a sum."""
    own = "" if origin.call else "    raise SystemExit('write in network.py how your model is made')\n"
    lines = [
        '"""What mend.toml names: the network that the round began with, and its prior."""\n',
        "from pathlib import Path\n",
        *(["from axiograd.priors import Energy, RightReasons"] if plan["prior"] == "both" else []),
        *([origin.imports] if origin.imports else []),
        "from axiograd.studio.network import rebuild\n\n",
        "def model():",
        f"{own}    return rebuild({origin.call or 'YOUR_MODEL'}, Path(__file__).with_name('start.safetensors'))",
    ]
    if plan["prior"] == "both":
        ratio = plan["energy_weight"] / plan["weight"]
        lines += ["\n\ndef prior():", f"    return RightReasons() + {ratio!r} * Energy()"]
    return "\n".join(lines) + "\n"


def toml(plan: Mapping[str, Any]) -> str:
    """The configuration; run in its folder it gives the network of the round, to the same numbers."""
    arguments = {"right-reasons": ["mask"], "energy": ["inside"], "both": ["mask", "inside"]}[plan["prior"]]
    prior = {"right-reasons": "RightReasons", "energy": "Energy", "both": "network.py:prior"}[plan["prior"]]
    return f"""# Repeats the round of the studio: axiograd train mend.toml, in this folder.
out = "run"
seed = {plan["seed"]}

[model]
name = "network.py:model"

[data]
name = "marked"
train = {{ file = "images.json", arguments = {json.dumps(arguments)}, size = {plan["size"]}, seed = {plan["seed"]} }}

[loss]
task = "cross_entropy"
prior = "{prior}"
weight = {plan["weight"]!r}
outputs = "random"

[recipe]
optimizer = "adam"
lr = {plan["lr"]!r}
weight_decay = 0.0
schedule = "constant"
epochs = {plan["epochs"]}
batch_size = {plan["batch"]}
clip = 1.0

[run]
accelerator = "cpu"
devices = 1
"""


def report(
    pictures: Pictures,
    split: Split,
    marks: Marks,
    rounds: Sequence[Mapping[str, Any]],
    number: int,
    method: Callable[[int], XGradient],
) -> Report:
    """The rounds in numbers, and held-out images with the attributions of the first network and of this one."""
    first, last = rounds[0].get("verdict") or {}, rounds[number].get("verdict") or {}
    headline = {
        name: (_percent(first.get(key)), _percent(last.get(key)))
        for name, key in (
            ("accuracy", "accuracy"),
            ("with the marked regions exchanged", "randomised"),
            ("attribution in the marked regions", "wrong_share"),
        )
        if last.get(key) is not None
    }
    page = Report(
        "Fixed in the studio",
        lead=f"{len(marks.painted())} images were painted, and {len(marks.images())} are marked.",
        headline=headline,
        data=pictures.name,
        facts={"round": number, "held-out images": len(split.held_out)},
        command="axiograd train mend.toml" if rounds[number]["parent"] is not None else "",
    )
    held = [row for row in split.held_out if marks.masks(row)[0] is not None] or list(split.held_out or split.train)
    shown = held[:SHOWN]
    inputs = pictures.batch(shown)
    views: dict[str, Any] = {}
    predictions: dict[str, list[str]] = {}
    for name, one in {"before": 0, "after": number}.items():
        with torch.no_grad():
            found = method(one).model(inputs).argmax(1)
        views[name] = method(one).attribute(inputs, found)
        predictions[name] = [_name(pictures, int(label)) for label in found]
    for at, row in enumerate(shown):
        page.add_sample(
            pictures.names[row],
            {name: values[at] for name, values in views.items()},
            image=pictures.picture(row),
            label=_name(pictures, int(pictures.targets[row])),
            prediction={name: values[at] for name, values in predictions.items()},
            featured=at < 2,  # noqa: PLR2004
        )
    rows = []
    for made in rounds:
        plan, verdict = made.get("plan") or {}, made.get("verdict") or {}
        shares = [_percent(verdict.get(key)) for key in ("accuracy", "randomised", "wrong_share")]
        rows.append((made["id"], made["parent"], plan.get("epochs"), *shares, plan.get("prior")))
    columns = ("round", "from", "passes", "accuracy", "exchanged", "attribution in marked regions", "prior")
    page.add_table("Rounds", rows, columns=columns)
    return page


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _name(pictures: Pictures, label: int) -> str:
    return pictures.classes[label] if label < len(pictures.classes) else f"output {label}"
