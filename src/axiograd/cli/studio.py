"""`axiograd studio`: see the wrong reason, paint it, fix it, on a page of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.output import speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import nn


def studio(
    spec: Annotated[str | None, typer.Argument(metavar="[SPEC]", help=options.SPEC_HELP, show_default=False)] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with one folder of images per class.", show_default=False)
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Shapes, and a network that looks at the wrong thing.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the session; the same one resumes it.")] = Path(
        "axiograd-studio"
    ),
    masks: Annotated[
        Path | None, typer.Option(help="Folder with masks to begin with, one PNG per image.", show_default=False)
    ] = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    preprocess: options.Preprocess = None,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 is any that is free.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    json: options.Json = False,
) -> None:
    """Open a local page that shows what a model looks at, and trains it not to look at what you paint.

    `axiograd studio --demo`, or `axiograd studio resnet18 --weights trained.pth --data photos/`

    Everything stays in --out: a session that was closed, or has crashed, resumes there. Ctrl-C ends it.
    """
    if demo == (spec is not None):
        raise ConfigurationError("give a model and --data FOLDER, or --demo, but not both.")
    if not demo and data is None:
        raise ConfigurationError("--data is missing: a folder with one folder of images per class.")
    if demo:
        unfit = {"--data": data, "--weights": weights, "--set": settings, "--preprocess": preprocess}
        options.refuse(unfit, "--demo brings its own")
    with speaking(as_json=json) as output:
        import webbrowser

        from axiograd.studio.opening import Opened

        if demo:
            from axiograd.studio import demo as shapes

            pictures = shapes.pictures()
            origin = shapes.origin(pictures)
        else:
            pictures, origin = _named(str(spec), weights, settings, preprocess, str(data))
        for line in pictures.skipped[:5]:
            output.say(f"Left out because it cannot be decoded: {line}")
        with Opened(pictures, origin, out, masks=masks, port=port) as running:
            output.answer({"address": running.address, "folder": str(out)})
            output.say(f"The studio is open at {running.address}")
            output.say("Anyone on this machine who has this address can use it. Ctrl-C closes it; nothing is lost.")
            if browser:
                webbrowser.open(running.address)
            try:
                running.wait()
            except KeyboardInterrupt:
                output.say(f"Closed. The session is in {out}, and the same command resumes it.")


def _named(spec: str, weights: str | None, settings: list[str] | None, preprocess: str | None, data: str) -> Any:
    """The images and the model that the command line names; folders are matched to outputs by their names."""
    from dataclasses import replace
    from functools import partial

    import torch

    from axiograd.datasets.pictures import Pictures
    from axiograd.pipeline import ClassNames
    from axiograd.studio.network import Origin

    given = options.read_settings(settings)
    loaded = options.read_model(spec, weights, settings)
    prepared = loaded.prepared(preprocess)
    pictures = Pictures.of_folder(data, prepared.preprocess, grey=prepared.grey)
    if n := len(loaded.classes):
        names = ClassNames.of(loaded.classes, pictures.classes, n)
        labels = names.match(pictures.targets.tolist(), pictures.classes, n)
        if labels is None:
            raise ConfigurationError(
                f"--data {data}: the folders {', '.join(pictures.classes[:3])} … do not have the names of the model's "
                f"classes, {', '.join(loaded.classes[:3])} …: rename them."
            )
        pictures = replace(pictures, classes=tuple(names[i] for i in range(n)), targets=torch.tensor(labels))
    make = partial(_load, spec, weights, given)
    call = f"load({spec!r}, {weights!r}, settings={given!r}).model"
    bare = partial(_load, spec, None, given)
    origin = Origin(make, bare, "from axiograd import load", call, spec)
    return pictures, origin


def _load(spec: str, weights: str | None, settings: dict[str, Any]) -> nn.Module:
    from axiograd.loading import load

    return load(spec, weights, settings=settings).model
