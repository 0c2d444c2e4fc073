"""`axiograd explain SPEC IMAGE…|TABLE.csv`: which features count, and for how much."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking, words
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from axiograd.cli.classes import ClassNames
    from axiograd.cli.inputs import Given
    from axiograd.cli.methods import Methods
    from axiograd.cli.picturing import Story
    from axiograd.cli.samples import Samples

KINDS = ("overlay", "signed", "positive")
_SHOWN = 40


def explain(
    context: typer.Context,
    spec: options.Spec,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT…", help="Images, folders of images, one CSV table, or the name of a data set."),
    ],
    methods: options.Methods = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for what is written.")] = Path("axiograd-explain"),
    target: Annotated[str, typer.Option(help="predicted, label, or a class by number or name.")] = "predicted",
    classes: options.Classes = None,
    top: Annotated[int, typer.Option(help="How many of the top classes are shown.", min=1)] = 3,
    preprocess: options.Preprocessing = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    label: options.Label = None,
    drop: options.Drop = None,
    missing: options.Missing = "error",
    statistics: options.Statistics = None,
    split: Annotated[str | None, typer.Option(help="Split of a data set.")] = None,
    limit: options.Limit = None,
    batch_size: options.Batch = 8,
    steps: options.Steps = 128,
    seed: options.Seed = 0,
    kind: Annotated[str, typer.Option(help="Figures: overlay, signed or positive.")] = "overlay",
    *,
    standardise: options.Standardise = False,
    skip_damaged: options.SkipDamaged = False,
    figures: Annotated[bool, typer.Option(help="Write a PNG per sample.")] = True,
    arrays: Annotated[bool, typer.Option(help="Write attributions.safetensors.")] = True,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Attribute a model's scores to its inputs, and write figures, arrays and an HTML report.

    X-Gradient (the default) is exact and takes one backward pass, on models that `axiograd check` certifies. For
    others convert the model first, or take another method. Several methods are compared side by side, with what
    each of them cost. The baseline is zero, in the space that the model sees; every output says what that is.

    `axiograd explain xsqueezenet1_1 cat.jpg dog.jpg --weights stripped.safetensors`

    `axiograd explain net.py:build photos/ --size 64 --mean 0.5 --std 0.5 -m input-x-gradient,integrated-gradients`

    `axiograd explain net.py:build patients.csv --label survived --drop id --standardise --statistics train.csv`
    """
    if kind not in KINDS:
        raise ConfigurationError(f"--kind {kind}: choose one of {', '.join(KINDS)}.")
    with speaking(as_json=json) as output:
        from axiograd.cli.inputs import read_inputs, read_model
        from axiograd.cli.methods import Methods, read_methods
        from axiograd.runs.files import check_writable

        if figures or arrays or report:
            check_writable(out)
        names = read_methods(methods)
        given = read_model(spec, weights, settings, download=download)
        samples = read_inputs(
            given,
            inputs,
            preprocess=preprocess,
            size=size,
            mean=mean,
            std=std,
            label=label,
            drop=drop,
            missing=missing,
            standardise=standardise,
            statistics=statistics,
            split=split,
        )
        if limit is not None:
            samples = samples.choose(range(min(limit, len(samples))))
        chosen = Methods(names, given.model, context.params, steps=steps, seed=seed)
        story = _attributed(output, given, chosen, samples, target, batch_size, classes, skip_damaged=skip_damaged)
        answer = _answer(story, top)
        _show(output, story, answer, top)
        shape = cast("Literal['overlay', 'signed', 'positive']", kind)
        answer["files"] = _write(output, story, out, shape, answer["costs"], figures, arrays, report)
        output.answer(answer)


def _attributed(
    output: Output,
    given: Given,
    methods: Methods,
    samples: Samples,
    target: str,
    batch: int,
    classes: Path | None,
    *,
    skip_damaged: bool,
) -> Story:
    from functools import cache

    from axiograd.cli.attributing import attribute, like_of
    from axiograd.cli.picturing import Story

    @cache
    def names(n_outputs: int) -> ClassNames:
        return given.class_names(classes, samples, n_outputs)

    if "expected-gradients" in methods.names:
        first = next(iter(samples.batches(64, like_of(methods.model), skip_damaged=True)), None)
        methods.references = None if first is None else first[1]
        samples.skipped.clear()
    with output.progress() as bar:
        task = bar.add_task("attributing", total=len(samples))
        found = list(
            attribute(
                methods,
                samples,
                target=target,
                batch=batch,
                skip_damaged=skip_damaged,
                names=names,
                progress=lambda place: bar.update(task, completed=place + 1),
            )
        )
    if not found:
        raise ConfigurationError(f"{samples.source}: no image could be decoded, so there is nothing to explain.")
    certificate = methods.certificate(found[0].inputs.unsqueeze(0).to(like_of(methods.model)))
    return Story(methods, samples, found, names(len(found[0].scores)), certificate, given)


def _answer(story: Story, top: int) -> dict[str, Any]:
    from axiograd.cli.attributing import completeness, describe

    methods = story.methods
    errors = {name: completeness(story.found, name) for name in methods.names}
    rows = [
        {
            "name": each.name,
            "label": each.label,
            "top": describe(each, story.names, top),
            "target": each.target,
            "target_name": story.target(each),
            "difference_to_baseline": each.difference,
            "methods": {
                name: {
                    "sum": float(each.attributions[name].double().sum()),
                    "completeness_error": errors[name][i],
                }
                for name in methods.names
            },
        }
        for i, each in enumerate(story.found)
    ]
    certificate = story.certificate
    return {
        "model": methods.spec,
        "trained": story.given.trained,
        "warning": story.given.warning,
        "certified": None if certificate is None else certificate.ok,
        "data": story.samples.source,
        "preprocessing": story.samples.prepared,
        "preprocessing_is_a_guess": story.samples.pixels is not None and story.samples.pixels.guessed,
        "baseline": story.samples.zero,
        "skipped": list(story.samples.skipped),
        "costs": [{"method": methods.title(name)} | methods.costs[name].to_dict() for name in methods.names],
        "samples": rows,
    }


def _show(output: Output, story: Story, answer: dict[str, Any], top: int) -> None:
    if answer["warning"]:
        output.warn("Untrained", answer["warning"])
    output.say(f"model          {answer['model']}{'' if answer['certified'] else ' (not an X-DNN)'}")
    output.say(f"data           {answer['data']}")
    output.say(f"preprocessing  {answer['preprocessing']}")
    output.say(f"baseline       {answer['baseline']}\n")
    errors = [f"error of\n{story.methods.title(name)}" for name in story.methods.names]
    single = len(story.found[0].scores) == 1
    # The class that is attributed is said where it is not simply the first one.
    other = any(row["target"] not in {None, row["top"][0].get("class")} for row in answer["samples"])
    columns = [
        "sample",
        "score" if single else f"top {top}",
        *(["attributed"] if other else []),
        "F(x) − F(0)",
        *errors,
    ]
    table = plain_table(*columns, right=("F(x) − F(0)", *errors))
    table.columns[1].no_wrap, table.columns[1].overflow = True, "ellipsis"
    for row in answer["samples"][:_SHOWN]:
        best = [f"{t['probability']:6.1%} {t['name']}" if "name" in t else f"{t['score']:.4g}" for t in row["top"]]
        cells = [row["methods"][name]["completeness_error"] for name in story.methods.names]
        table.add_row(
            words(row["name"]),
            words("\n".join(best)),
            *([words(row["target_name"])] if other else []),
            f"{row['difference_to_baseline']:.4g}",
            *("–" if cell is None else f"{cell:.1e}" for cell in cells),
        )
    output.console.print(table)
    if len(answer["samples"]) > _SHOWN:
        output.say(f"… and {len(answer['samples']) - _SHOWN} more, all of them in the report.", style="dim")
    output.say(
        "error: |sum of attributions − (F(x) − F(0))| over the root mean square of F(x) − F(0); – where a method does "
        "not claim to add up.\n",
        style="dim",
    )
    costs = plain_table(
        "method", "forward", "backward", "s / sample", "times", right=("forward", "backward", "s / sample", "times")
    )
    fastest = min(cost["seconds_per_sample"] for cost in answer["costs"]) or 1.0
    for cost in answer["costs"]:
        costs.add_row(
            cost["method"],
            f"{cost['forward_passes_per_sample']:g}",
            f"{cost['backward_passes_per_sample']:g}",
            f"{cost['seconds_per_sample']:.3g}",
            f"{cost['seconds_per_sample'] / fastest:.1f}×",
        )
    output.console.print(costs)
    for name in answer["skipped"]:
        output.note(f"Left out, as it cannot be decoded: {name}")


def _write(
    output: Output,
    story: Story,
    out: Path,
    kind: Literal["overlay", "signed", "positive"],
    costs: list[dict[str, Any]],
    figures: bool,
    arrays: bool,
    report: bool,
) -> dict[str, Any]:
    from axiograd.cli import picturing

    files: dict[str, Any] = {}
    if arrays:
        files["arrays"] = str(picturing.save_arrays(story, out / "attributions.safetensors"))
    if figures:
        with output.progress() as bar:
            task = bar.add_task("drawing", total=len(story.found))
            drawn = picturing.draw(story, out, kind, lambda: bar.advance(task))
        files["figures"] = [str(path) for path in drawn]
    if report:
        files["report"] = str(picturing.write_report(story, out / "report.html", costs))
    if files:
        output.say("")
    if files.get("figures"):
        output.say(f"Figures: {len(files['figures'])} PNG files in {out}")
    if arrays:
        output.say(f"Arrays:  {files['arrays']}")
    if report:
        output.say(f"Report:  {files['report']}", style="bold")
    return files
