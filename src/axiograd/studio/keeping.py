"""What outlives the studio: the network, the masks, a script that repeats the training, and a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from torch import nn

from axiograd._io import save_tensors, write_atomically
from axiograd.attribution import XGradient
from axiograd.datasets.pictures import Pictures
from axiograd.errors import AxiogradError
from axiograd.export import export_onnx
from axiograd.report import Report
from axiograd.studio.fixing import ARGUMENTS
from axiograd.studio.masks import write_masks
from axiograd.studio.network import Origin
from axiograd.studio.session import Session
from axiograd.studio.survey import explained

#: Held-out images in the report.
SHOWN = 12


def keep(
    folder: Path,
    session: Session,
    origin: Origin,
    number: int,
    train: Sequence[int],
    held_out: Sequence[int],
    methods: tuple[XGradient, XGradient],
) -> tuple[list[str], list[str]]:
    """Write everything of a round into a folder; which files there are, and what could not be written and why.

    `methods` are those of the first network and of the round's.
    """
    pictures, chosen = session.pictures, session.round(number)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "model.safetensors", session.weights(number).read_bytes())
    files, missing = ["model.safetensors"], []
    if chosen["parent"] is not None:
        # As they were when the round was trained.
        masks = write_masks(folder / "masks", pictures, session.marks.after(chosen["actions"]))
        write_atomically(folder / "start.safetensors", session.weights(chosen["parent"]).read_bytes())
        _write_images(folder, pictures, train, masks)
        write_atomically(folder / "fix.py", script(origin, chosen["plan"], number).encode())
        files += ["masks/", "start.safetensors", "images.json", "fix.py"]
    try:
        example = pictures.batch([train[0], train[-1]])
        model = cast("nn.Module", methods[1].model)
        export_onnx(model, example, folder / "model.onnx", classes=pictures.classes, preprocessing=pictures.transform)
        files.append("model.onnx")
    except (AxiogradError, RuntimeError) as error:
        missing.append(f"No ONNX file: {str(error).splitlines()[0]}")
    _report(session, number, held_out or train, methods).write(folder / "report.html")
    return [*files, "report.html"], missing


def _write_images(
    folder: Path, pictures: Pictures, train: Sequence[int], masks: Mapping[int, Mapping[str, str]]
) -> None:
    tensors = None
    if pictures.pixels is not None:
        tensors = "images.safetensors"
        save_tensors(folder / tensors, {"pixels": pictures.pixels})
    named = {row: {kind: f"masks/{name}" for kind, name in one.items()} for row, one in masks.items()}
    content = pictures.description() | {"tensors": tensors, "train": list(train), "masks": named}
    write_atomically(folder / "images.json", (json.dumps(content) + "\n").encode())


def script(origin: Origin, plan: Mapping[str, Any], number: int) -> str:
    """Python that repeats a round's training, to the same numbers."""
    settings = {name: plan[name] for name in ("prior", "weight", "energy_weight", "lr", "batch", "seed")}
    arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    model = origin.call or "YOUR_MODEL"
    lines = [
        f'"""Repeats the training of round {number}: run it, and fixed.safetensors is the network."""',
        "",
        "from pathlib import Path",
        "",
        "from axiograd.datasets import marked",
        "from axiograd.studio.fixing import Plan, fix",
        "from axiograd.studio.network import rebuild",
        "from safetensors.torch import save_file",
        origin.imports or "# Import your model here, and write how it is made below.",
        "",
        "folder = Path(__file__).parent",
        f'model = rebuild({model}, folder / "start.safetensors")',
        f"plan = Plan({arguments})",
        f"settings = dict(arguments={ARGUMENTS[plan['prior']]}, size={plan['size']}, seed=plan.seed)",
        'data = marked(folder / "images.json", **settings)',
        f"for step in fix(model, data, plan, passes={plan['passes']}):",
        "    if step.ends_pass:",
        '        print(f"pass {step.passes}: accuracy {step.accuracy:.3f}, prior {step.prior:.4g}")',
        'save_file(model.state_dict(), folder / "fixed.safetensors")',
    ]
    return "\n".join(lines) + "\n"


def _report(session: Session, number: int, held_out: Sequence[int], methods: tuple[XGradient, XGradient]) -> Report:
    """The rounds in numbers, and held-out images with the attributions of the first network and of this one."""
    pictures, marks = session.pictures, session.marks
    first, last = session.round(0)["verdict"], session.round(number)["verdict"]
    names = {
        "with the marked regions exchanged": "exchanged",
        "accuracy": "accuracy",
        "attribution in the marked regions": "wrong_share",
    }
    page = Report(
        "Fixed in the studio",
        lead=f"{len(marks.painted())} images were painted, and {len(marks.images())} are marked.",
        headline={
            words: tuple("–" if one[key] is None else f"{100 * one[key]:.1f} %" for one in (first, last))
            for words, key in names.items()
            if first and last
        },
        data=pictures.name,
        facts={"round": number, "held-out images": len(held_out)},
        command="python fix.py" if session.round(number)["parent"] is not None else "",
    )
    shown = (marks.wrong(held_out) or list(held_out))[:SHOWN]
    views = dict(zip(("before", "after"), (explained(one, pictures.batch(shown)) for one in methods), strict=True))
    classes = dict(enumerate(pictures.classes))
    for at, row in enumerate(shown):
        page.add_sample(
            pictures.names[row],
            {name: attributions[at] for name, (_, attributions) in views.items()},
            image=pictures.picture(row),
            label=classes[int(pictures.targets[row])],
            prediction={
                name: classes.get(k := int(outputs[at].argmax()), f"output {k}") for name, (outputs, _) in views.items()
            },
            featured=at < 2,  # noqa: PLR2004
        )
    return page
