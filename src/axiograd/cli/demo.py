"""`axiograd demo`: the story in about three minutes."""

from __future__ import annotations

import copy
import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule

from axiograd.cli import options
from axiograd.cli.output import Output, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    import torch

    from axiograd.demo.story import Accuracy, Data


#: Per cent between the two accuracies from which on the tag is what the network looks at.
_CLEAR = 20


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("axiograd-demo"),
    seed: Annotated[int, typer.Option(help="Seed of data and networks.")] = 0,
    images: Annotated[int, typer.Option(help="Number of training images; fewer is faster and less clear.")] = 4000,
    json: options.Json = False,
) -> None:
    """A network that decides for the wrong reason: found by exact attributions, and fixed by training with them.

    `axiograd demo`, or faster and less clearly `axiograd demo --images 2000`

    Needs no download. Prints each step's numbers, and writes report.html, the numbers and exact attributions to --out.
    """
    if images < 8:  # noqa: PLR2004  # two of each shape
        raise ConfigurationError(f"--images {images}: at least 8 are needed, two of each shape.")
    with speaking(as_json=json) as output:
        _tell(output, out, seed, images)


def _tell(output: Output, out: Path, seed: int, images: int) -> None:
    import torch

    from axiograd._io import check_writable, replacing, write_atomically
    from axiograd.demo import story
    from axiograd.demo.report import demo_report

    console = output.console
    check_writable(out)
    torch.manual_seed(seed)
    data = story.Data.make(images, seed)
    console.print(
        "Discs, squares, triangles and crosses, faint, each with a [bold]coloured tag in a corner[/]. In training the "
        "tag's colour gives the class away. What does a network learn?\n"
    )

    console.print(Rule("1  A regular network", align="left"))
    regular = story.network()
    _train(output, regular, data, 3, 0.0, "training")
    before = story.accuracy(regular, data)
    fooled = before.tagged - before.random_tag > _CLEAR
    _say_accuracy(console, before, "it has learnt the tag" if fooled else "too few --images to learn even the tag")

    console.print(Rule("2  Can it be explained exactly?", align="left"))
    certificate = story.refused(regular, data)
    console.print(Panel(str(certificate), title="axiograd.certify", title_align="left"), markup=False, highlight=False)

    console.print(Rule("3  Converted into an X-DNN", align="left"))
    conversion = story.converted(regular, data)
    console.print(str(conversion), markup=False, highlight=False)
    xdnn = conversion.model
    _train(output, xdnn, data, 2, 0.0, "training without biases")
    converted = story.accuracy(xdnn, data)
    share = story.share_on_tag(xdnn, data.tagged)
    _say_accuracy(console, converted, f"and {share:.0f} % of the attribution lies on the tag")

    console.print(Rule("4  X-Gradient against Integrated Gradients", align="left"))
    speed = story.compare(xdnn, data)
    complete = story.completeness(xdnn, data)
    console.print(
        f"largest difference to Integrated Gradients with 128 steps, relative: {speed.relative_difference:.1e}\n"
        f"one backward pass instead of 128: {speed.ratio:.0f} times faster here and now\n{complete}\n"
    )

    console.print(Rule("5  Trained for the right reason", align="left"))
    fixed = copy.deepcopy(xdnn)
    _train(output, fixed, data, 6, story.WEIGHT, "training with a prior on the tag")
    after = story.accuracy(fixed, data)
    share_after = story.share_on_tag(fixed, data.tagged)
    _say_accuracy(console, after, f"{share_after:.1f} % of the attribution lies on the tag")

    result = story.Result(
        command=f"axiograd demo --seed {seed} --images {images}",
        accuracies={"regular": before, "x_dnn": converted, "x_dnn_with_prior": after},
        on_tag={"x_dnn": share, "x_dnn_with_prior": share_after},
        speed=speed,
        completeness=complete,
    )
    numbers = write_atomically(out / "demo.json", (json_format.dumps(result.to_dict(), indent=2) + "\n").encode())
    with replacing(out / "attributions.safetensors") as building:
        story.save_attributions(building, data, {"before": xdnn, "after": fixed})
    report = demo_report(result, data, certificate, conversion, before=xdnn, after=fixed).write(out / "report.html")
    console.print(f"[bold]Open {report}[/] for the pictures. Numbers and arrays are beside it.")
    output.answer(result.to_dict() | {"files": {"report": str(report), "numbers": str(numbers)}})


def _train(output: Output, model: torch.nn.Module, data: Data, epochs: int, weight: float, what: str) -> None:
    from axiograd.demo import story

    with output.progress() as bar:
        task = bar.add_task(what, total=None)
        story.train(
            model,
            data.train,
            epochs,
            prior_weight=weight,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


def _say_accuracy(console: Console, found: Accuracy, remark: str) -> None:
    console.print(
        f"accuracy with the tag of its class [bold]{found.tagged:.1f} %[/], with a random one "
        f"[bold]{found.random_tag:.1f} %[/]: {remark}\n"
    )
