"""`axiograd explain SPEC IMAGE…|TABLE.csv`: which features count, and for how much."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking, words
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from axiograd.cli.attributing import AttributedSample, Methods
    from axiograd.cli.classes import ClassNames
    from axiograd.cli.inputs import Given
    from axiograd.cli.picturing import Story, Wishes
    from axiograd.cli.samples import Samples

KINDS = ("overlay", "signed", "positive")
_SHOWN = 40


@options.grouped
def explain(
    context: typer.Context,
    spec: options.Spec,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT…",
            help="Images, folders of images, a table, texts, or the name of a data set.",
            autocompletion=options.complete_inputs,
        ),
    ],
    methods: options.Methods = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for what is written.")] = Path("axiograd-explain"),
    target: Annotated[str, typer.Option(help="predicted, label, or a class by number or name.")] = "predicted",
    classes: options.Classes = None,
    top: Annotated[int, typer.Option(help="How many of the top classes are shown.", min=1)] = 3,
    split: Annotated[str | None, typer.Option(help="Split of a data set.")] = None,
    limit: options.Limit = None,
    batch_size: options.Batch = 8,
    steps: options.Steps = 128,
    column: Annotated[str | None, typer.Option(help="Texts: the column of a CSV table that holds them.")] = None,
    versus: Annotated[str | None, typer.Option(help="Texts: the answer that --target is compared with.")] = None,
    seed: options.Seed = 0,
    kind: Annotated[str, typer.Option(help="Figures: overlay, signed or positive.")] = "overlay",
    pool: Annotated[
        int | None,
        typer.Option(
            help="Show sums over windows of N × N pixels; 1: the raw map.  [default: 8 for photos]",
            min=1,
            show_default=False,
        ),
    ] = None,
    *,
    reading: options.ReadingOptions,
    skip_damaged: options.SkipDamaged = False,
    masks: options.Masks = None,
    figures: Annotated[bool, typer.Option(help="Write a PNG per sample.")] = True,
    arrays: Annotated[bool, typer.Option(help="Write attributions.safetensors.")] = True,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Attribute a model's scores to its inputs, and write figures, arrays and an HTML report.

    X-Gradient (the default) is exact and takes one backward pass, on models that `axiograd check` certifies. For
    others convert the model first, or take another method. Several methods are compared side by side, with what
    each of them cost. The baseline is zero, in the space that the model sees; every output says what that is. Texts
    are explained by Integrated Gradients unless another method is named.

    `axiograd explain xsqueezenet1_1 cat.jpg dog.jpg --weights stripped.safetensors`

    `axiograd explain net.py:build photos/ --size 64 --mean 0.5 --std 0.5 -m input-x-gradient,integrated-gradients`

    `axiograd explain model.safetensors photos/ --masks masks/`: also how much lies inside the masks

    `axiograd explain net.py:build patients.csv --label survived --drop id --standardise --statistics train.csv`
    """
    if kind not in KINDS:
        raise ConfigurationError(f"--kind {kind}: choose one of {', '.join(KINDS)}.")
    with speaking(as_json=json) as output:
        from axiograd._io import check_writable
        from axiograd.cli.attributing import Methods, read_methods
        from axiograd.cli.explain_text import explain_text, texts_wanted
        from axiograd.cli.inputs import read_inputs, read_model
        from axiograd.cli.masked import with_masks
        from axiograd.cli.picturing import Wishes

        if figures or arrays or report:
            check_writable(out)
        names = read_methods(methods)
        if texts_wanted(spec, inputs):
            if len(names) > 1:
                raise ConfigurationError(f"texts are explained by one method at a time, got {', '.join(names)}.")
            if masks is not None:
                raise ConfigurationError(f"--masks {masks}: masks belong to images, and these are texts.")
            explain_text(
                output,
                spec,
                inputs,
                method=names[0] if methods else None,
                target=target,
                versus=versus,
                column=column,
                steps=steps,
                batch_size=batch_size,
                limit=limit,
                out=out,
                figures=figures,
                report=report,
                download=download,
            )
            return
        given = read_model(spec, weights, settings, download=download)
        samples = with_masks(read_inputs(given, inputs, reading, split=split), masks)
        if limit is not None:
            samples = samples.choose(range(min(limit, len(samples))))
        chosen = Methods(names, given.model, context.params, steps=steps, seed=seed)
        shape = cast("Literal['overlay', 'signed', 'positive']", kind)
        wishes = Wishes(out, shape, pool, figures, arrays, report)
        _explain(output, given, chosen, samples, target, batch_size, classes, wishes, top, skip_damaged=skip_damaged)


def _explain(
    output: Output,
    given: Given,
    methods: Methods,
    samples: Samples,
    target: str,
    batch: int,
    classes: Path | None,
    wishes: Wishes,
    top: int,
    *,
    skip_damaged: bool,
) -> None:
    """Sample after sample: attributed, drawn, stored, and forgotten but for its numbers."""
    from functools import cache

    from axiograd._state import like_of
    from axiograd.attribution.methods import METHODS
    from axiograd.cli.attributing import attribute
    from axiograd.cli.picturing import Story, album

    @cache
    def names(n_outputs: int) -> ClassNames:
        return given.class_names(classes, samples.classes, n_outputs)

    if "expected-gradients" in methods.names:
        first = next(iter(samples.batches(64, like_of(methods.model), skip_damaged=True)), None)
        methods.references = None if first is None else first[1]
        samples.skipped.clear()
    story: Story | None = None
    rows: list[dict[str, Any]] = []
    with output.progress() as bar, album(wishes) as files:
        task = bar.add_task("explaining", total=len(samples))
        for each in attribute(methods, samples, target=target, batch=batch, skip_damaged=skip_damaged, names=names):
            if story is None:
                proof = None
                if any(METHODS[name].certified for name in methods.names):
                    proof = methods.certificate(each.inputs.unsqueeze(0).to(like_of(methods.model)))
                story = Story(methods, samples, names(len(each.scores)), proof, given)
            files.add(story, each)
            rows.append(_row(story, each, top))
            bar.update(task, completed=each.place + 1)
        if story is None:
            raise ConfigurationError(f"{samples.source}: no image could be decoded, so there is nothing to explain.")
        answer = _answer(story, rows)
        written = files.finish(answer["costs"])
    answer["files"] = written
    _show(output, story, answer, top)
    _say_files(output, wishes, written)
    output.answer(answer)


def _row(story: Story, each: AttributedSample, top: int) -> dict[str, Any]:
    from axiograd.cli.attributing import describe
    from axiograd.cli.masked import share_inside

    masked = story.samples.masks is not None
    return {
        "name": each.name,
        "label": each.label,
        "top": describe(each, story.names, top),
        "target": each.target,
        "target_name": story.target(each),
        "difference_to_baseline": each.difference,
        "methods": {
            name: {"sum": float(found.double().sum()), "completeness_error": each.deltas.get(name)}
            | ({"inside": share_inside(found, each.mask)} if masked else {})
            for name, found in each.attributions.items()
        },
    } | ({"mask_area": None if each.mask is None else float(each.mask.double().mean())} if masked else {})


def _answer(story: Story, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything for JSON; errors become relative to what all samples give."""
    from math import nan

    from axiograd.cli.attributing import relative

    methods, certificate = story.methods, story.certificate
    differences = [row["difference_to_baseline"] for row in rows]
    for name in methods.names:
        deltas = [row["methods"][name]["completeness_error"] for row in rows]
        for row, error in zip(rows, relative([nan if d is None else d for d in deltas], differences), strict=True):
            row["methods"][name]["completeness_error"] = error
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
    } | ({} if story.samples.masks is None else {"masks": _masks(story, rows)})


def _masks(story: Story, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the images that have a mask: how much of them it covers, and the share of positive attribution inside."""
    from axiograd.cli.masked import mean_inside

    first = story.methods.names[0]
    seen = [row for row in rows if row["methods"][first]["inside"] is not None]
    return {
        "source": str(getattr(story.samples.masks, "source", "")),
        "images": len(seen),
        "area": mean_inside([row["mask_area"] for row in seen]),
        "inside": {name: mean_inside([row["methods"][name]["inside"] for row in seen]) for name in story.methods.names},
    }


def _show(output: Output, story: Story, answer: dict[str, Any], top: int) -> None:
    if answer["warning"]:
        output.warn("Untrained", answer["warning"])
    output.say(f"model          {answer['model']}{' (not an X-DNN)' if answer['certified'] is False else ''}")
    output.say(f"data           {answer['data']}")
    output.say(f"preprocessing  {answer['preprocessing']}")
    output.say(f"baseline       {answer['baseline']}\n")
    errors = [f"error of\n{story.methods.title(name)}" for name in story.methods.names]
    inside = [f"in mask\n{story.methods.title(name)}" for name in story.methods.names if "masks" in answer]
    single = "name" not in answer["samples"][0]["top"][0]
    # The class that is attributed is said where it is not simply the first one.
    other = any(row["target"] not in {None, row["top"][0].get("class")} for row in answer["samples"])
    columns = [
        "sample",
        "score" if single else f"top {top}",
        *(["attributed"] if other else []),
        "F(x) − F(0)",
        *errors,
        *inside,
    ]
    table = plain_table(*columns, right=("F(x) − F(0)", *errors, *inside))
    table.columns[1].no_wrap, table.columns[1].overflow = True, "ellipsis"
    for row in answer["samples"][:_SHOWN]:
        best = [f"{t['probability']:6.1%} {t['name']}" if "name" in t else f"{t['score']:.4g}" for t in row["top"]]
        cells = [row["methods"][name]["completeness_error"] for name in story.methods.names]
        shares = [row["methods"][name]["inside"] for name in story.methods.names if inside]
        table.add_row(
            words(row["name"]),
            words("\n".join(best)),
            *([words(row["target_name"])] if other else []),
            f"{row['difference_to_baseline']:.4g}",
            *("–" if cell is None else f"{cell:.1e}" for cell in cells),
            *("–" if share is None else f"{share:.0%}" for share in shares),
        )
    output.console.print(table)
    if len(answer["samples"]) > _SHOWN:
        output.say(f"… and {len(answer['samples']) - _SHOWN} more, all of them in the report.", style="dim")
    output.say(
        "error: |sum of attributions − (F(x) − F(0))| over the root mean square of F(x) − F(0); – where a method does "
        "not claim to add up.\n",
        style="dim",
    )
    if inside:
        _say_inside(output, story, answer["masks"], len(answer["samples"]))
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


def _say_inside(output: Output, story: Story, masks: dict[str, Any], samples: int) -> None:
    if not masks["images"]:
        output.note("No mask lies in what the model sees of these images: nothing to say about what is inside.")
        return
    shares = ", ".join(f"{story.methods.title(name)} {share:.0%}" for name, share in masks["inside"].items())
    output.say(f"inside the masks: {shares} of positive attribution, on {masks['area']:.0%} of the pixels")
    output.say(f"({masks['images']} of {samples} images have a mask; its rim is drawn in the figures)\n", style="dim")


def _say_files(output: Output, wishes: Wishes, files: dict[str, Any]) -> None:
    if files:
        output.say("")
    if files.get("figures"):
        n = len(files["figures"])
        output.say(f"Figures: {n} PNG {'file' if n == 1 else 'files'} in {wishes.folder}")
    if "arrays" in files:
        output.say(f"Arrays:  {files['arrays']}")
    if "report" in files:
        more = f" and {len(files['pages']) - 1} more pages" if len(files["pages"]) > 1 else ""
        output.say(f"Report:  {files['report']}{more}", style="bold")
