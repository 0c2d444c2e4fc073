"""`axiograd explain SPEC IMAGE…|TABLE.csv|review.txt`: which features count, and for how much."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking, words
from axiograd.errors import NotHomogeneousError

if TYPE_CHECKING:
    from axiograd.pipeline import Attributor, Samples

_SHOWN = 40
#: What is better, to be read beside the name.
_ARROWS = {"KPM": "↑", "KNM": "↓", "KAM": "↑", "RAM": "↓", "energy inside": "↑", "pointing game": "↑", "best IoU": "↑"}


def explain(
    context: typer.Context,
    spec: options.Spec,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT…", help="Images, folders of images, a table, texts, or the name of a data set."),
    ],
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            metavar="NAME,…",
            help="x-gradient, integrated-gradients, held-gradient, occlusion …; several are shown side by side.  "
            "[default: the one that suits the model]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for what is written.")] = Path("axiograd-explain"),
    target: Annotated[
        str | None,
        typer.Option(
            help="predicted, label, or a class by number or name.  [default: predicted; for --metrics the label]",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="all|NAME,…",
            help="Measure instead of drawing: accuracy, completeness, masking, localisation.",
            show_default=False,
        ),
    ] = None,
    masks: options.Masks = None,
    preprocess: options.Preprocess = None,
    pool: Annotated[
        int | None,
        typer.Option(
            help="Show sums over windows of N × N pixels; 1: the raw map.  [default: 8 for photos]",
            min=1,
            show_default=False,
        ),
    ] = None,
    column: Annotated[str | None, typer.Option(help="Column of a CSV or Parquet file that holds the inputs.")] = None,
    versus: Annotated[str | None, typer.Option(help="Texts: the answer that --target is compared with.")] = None,
    limit: options.Limit = None,
    batch_size: options.Batch = 8,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Steps of integrated-gradients, draws of expected-gradients.  [default: 128, for texts 50]",
            min=1,
            show_default=False,
        ),
    ] = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    download: options.Download = False,
    device: options.Device = "cpu",
    json: options.Json = False,
) -> None:
    """Attribute a model's scores to its inputs, and write figures, arrays and an HTML page; or measure them.

    A model that `axiograd check` certifies is explained by X-Gradient, exactly and in one pass, others by what suits
    them, and the reason is said. The baseline is zero, in the space that the model sees; every output says what that
    is. How images and tables become inputs, and what the classes are called, is in the model's file, or beside the
    factory in net.py: `preprocess`, `schema`, `classes`.

    `axiograd explain x.safetensors photos/`

    `axiograd explain net.py:build photos/ --preprocess size=64,mean=0.5,std=0.5 -m x-gradient,integrated-gradients`

    `axiograd explain x.safetensors photos/ --metrics all --masks masks/`

    `axiograd explain hf:my-model reviews.csv --column review --target positive --versus negative`
    """
    with speaking(as_json=json) as output:
        from axiograd.attribution.methods import METHODS
        from axiograd.cli.texts import explain_texts, texts_wanted
        from axiograd.pipeline import Attributor, read_samples

        names = options.read_list(method)
        if texts_wanted(spec, inputs):
            unfit = {
                "--masks": masks,
                "--preprocess": preprocess,
                "--pool": pool,
                "--metrics": metrics,
                "--set": settings,
            }
            options.refuse(unfit | {"--weights": weights, "-m with several methods": names[1:]}, "these are texts")
            explain_texts(
                output,
                spec,
                inputs,
                method=names[0] if names else None,
                target=target,
                versus=versus,
                column=column,
                steps=steps,
                batch_size=batch_size,
                limit=limit,
                out=out,
                download=download,
                device=device,
            )
            return
        options.refuse({"--versus": versus}, "these are no texts")
        options.refuse({"--pool": pool} if metrics else {}, "nothing is drawn with --metrics")
        loaded = options.read_model(spec, weights, settings, download=download, device=device)
        samples = read_samples(loaded, inputs, preprocess=preprocess, masks=masks, column=column)
        samples = samples.take(limit, spread=metrics is not None)
        options.refuse({"--pool": pool} if samples.pixels is None else {}, "these are no images")
        attributor = Attributor(loaded, names, target or ("known" if metrics else "predicted"), steps or 128)
        if loaded.warning:
            output.warn("Untrained", loaded.warning)
        try:
            if metrics:
                _measure(output, attributor, samples, metrics, out, batch_size)
            else:
                _draw(output, attributor, samples, out, pool, batch_size)
        except NotHomogeneousError as error:
            raise NotHomogeneousError(_not_certified(context.params, attributor)) from error
        if steps and not any(METHODS[name].count for name in attributor.methods):
            output.note(
                f"--steps {steps} is not used: {', '.join(map(attributor.title, attributor.methods))} takes none."
            )
        if attributor.reason and "x-gradient" not in attributor.methods:
            output.note(attributor.reason)
            if attributor.methods == ("integrated-gradients",):
                output.note(f"In one pass, once it is converted: {_convert(context.params)}")
        for name, reason in attributor.left_out.items():
            output.note(f"Left out: {name}: {reason}")


def _convert(call: dict[str, Any]) -> str:
    return options.suggestion(call, "convert", examples=call["inputs"], out="x.safetensors")


def _not_certified(call: dict[str, Any], attributor: Attributor) -> str:
    """The first violation, and what can be run instead."""
    violations = [] if attributor.certificate is None else attributor.certificate.violations
    where = f" ({violations[0].module or 'the model'}: {violations[0].reason})" if violations else ""
    return (
        f"X-Gradient is exact on X-DNNs only, and {call['spec']} is not one{where}. Convert it: {_convert(call)}; or "
        "leave -m x-gradient out, and the method that suits the model is taken."
    )


def _draw(
    output: Output, attributor: Attributor, samples: Samples, out: Path, pool: int | None, batch_size: int
) -> None:
    from axiograd.pipeline import Results
    from axiograd.pipeline.results import FIGURES

    results = Results(out, attributor, samples, pool, shlex.join(["axiograd", *sys.argv[1:]]))
    _fill(output, "explaining", attributor, samples, results, batch_size)
    files = results.finish()
    rows, answer = results.rows, _about(attributor, samples)
    answer |= {"costs": [_cost(attributor, name) for name in attributor.methods], "samples": rows, "files": files}
    _show(output, attributor, answer)
    n = len(files["figures"])
    few = f", of the first {FIGURES} samples" if len(rows) > FIGURES else ""
    output.say(f"\nFigures: {n} PNG {'file' if n == 1 else 'files'} in {out}{few}")
    more = f" and {len(files['pages']) - 1} more pages" if len(files["pages"]) > 1 else ""
    output.say(f"Arrays:  {files['arrays'][0]}{more and ' …'}")
    output.say(f"Report:  {files['report']}{more}", style="bold")
    output.answer(answer)


def _measure(
    output: Output, attributor: Attributor, samples: Samples, metrics: str, out: Path, batch_size: int
) -> None:
    from axiograd._io import check_writable, write_atomically
    from axiograd.cli.output import as_json
    from axiograd.pipeline import Measures
    from axiograd.pipeline.measures import METRICS

    check_writable(out)
    wanted = METRICS if metrics == "all" else tuple(options.read_list([metrics]))
    measures = Measures(attributor, wanted)
    _fill(output, "measuring", attributor, samples, measures, batch_size)
    answer = _about(attributor, samples) | measures.answer()
    path = write_atomically(out / "metrics.json", (as_json(answer) + "\n").encode())
    _show_measures(output, answer, wanted)
    output.say(f"\nNumbers: {path}", style="bold")
    output.answer(answer)


def _fill(output: Output, what: str, attributor: Attributor, samples: Samples, sink: Any, batch_size: int) -> None:
    with output.progress() as bar:
        task = bar.add_task(what, total=len(samples))
        for batch in attributor.batches(samples, batch_size):
            sink.add(batch)
            bar.update(task, completed=max(batch.places) + 1)


def _about(attributor: Attributor, samples: Samples) -> dict[str, Any]:
    certificate = attributor.certificate
    return {
        "model": attributor.loaded.spec,
        "trained": attributor.loaded.trained,
        "warning": attributor.loaded.warning,
        "certified": None if certificate is None else certificate.ok,
        "methods": list(attributor.methods),
        "reason": attributor.reason,
        "data": samples.source.name,
        "preprocessing": samples.prepared,
        "preprocessing_is_a_guess": samples.pixels is not None and samples.pixels.guessed,
        "baseline": samples.zero,
        "left_out": attributor.left_out,
    }


def _cost(attributor: Attributor, name: str) -> dict[str, Any]:
    return {"method": attributor.title(name), "seconds_per_sample": attributor.seconds_per_sample(name)}


def _head(output: Output, answer: dict[str, Any]) -> None:
    output.say(f"model          {answer['model']}")
    output.say(f"data           {answer['data']}")
    output.say(f"preprocessing  {answer['preprocessing']}")
    output.say(f"baseline       {answer['baseline']}\n")


def _show(output: Output, attributor: Attributor, answer: dict[str, Any]) -> None:
    _head(output, answer)
    rows, methods = answer["samples"], attributor.methods
    masked = [row for row in rows if "mask_area" in row]
    # The class that is attributed is said where it is not simply the first one.
    other = any(row["target"] not in {None, row["top"][0].get("class")} for row in rows)
    numbers = [f"error of\n{attributor.title(name)}" for name in methods]
    numbers += [f"in mask\n{attributor.title(name)}" for name in methods if masked]
    columns = ["sample", "score" if "name" not in rows[0]["top"][0] else "top 3", *(["attributed"] if other else [])]
    table = plain_table(*columns, "F(x) − F(0)", *numbers, right=("F(x) − F(0)", *numbers))
    table.columns[1].no_wrap, table.columns[1].overflow = True, "ellipsis"
    for row in rows[:_SHOWN]:
        best = [f"{t['probability']:6.1%} {t['name']}" if "name" in t else f"{t['score']:.4g}" for t in row["top"]]
        cells = [row["methods"][name]["completeness_error"] for name in methods]
        shares = [row["methods"][name].get("inside") for name in methods if masked]
        table.add_row(
            words(row["name"]),
            words("\n".join(best)),
            *([words(row["target_name"])] if other else []),
            f"{row['difference_to_baseline']:.4g}",
            *("–" if cell is None else f"{cell:.1e}" for cell in cells),
            *("–" if share is None else f"{share:.0%}" for share in shares),
        )
    output.console.print(table)
    if len(rows) > _SHOWN:
        output.say(f"… and {len(rows) - _SHOWN} more, all of them in the report.", style="dim")
    output.say("error: |sum of attributions − (F(x) − F(0))| over the root mean square of F(x) − F(0)\n", style="dim")
    for name in methods if masked else ():
        seen = [row for row in masked if row["methods"][name]["inside"] is not None]
        inside = sum(row["methods"][name]["inside"] for row in seen) / max(len(seen), 1)
        area = sum(row["mask_area"] for row in seen) / max(len(seen), 1)
        output.say(
            f"inside the masks: {inside:.0%} of {attributor.title(name)}'s positive attribution, on {area:.0%} of the "
            f"pixels of {len(seen)} images"
        )
    for cost in answer["costs"]:
        output.say(f"{cost['method']}: {cost['seconds_per_sample']:.3g} s per sample, without the proof")


def _show_measures(output: Output, answer: dict[str, Any], wanted: tuple[str, ...]) -> None:
    _head(output, answer)
    if "accuracy" in wanted and not answer["accuracy_percent"]:
        output.note("Accuracy is not measured: the data has no labels, or none that are the model's classes by name.")
    for name, value in answer["accuracy_percent"].items():
        output.say(f"{name:<14} {value['mean']:.1f} % ± {value['standard_error']:.1f} of {answer['n_samples']} samples")
    rows = answer["results"]
    if "localisation" in wanted:
        output.say(f"localisation   of the {answer['n_regions']} samples that have a mask in what the model sees")
    # Metrics below each other: there are more of them than methods.
    methods = [row["method"] for row in rows]
    table = plain_table("", *methods, right=tuple(methods))
    if any("completeness_error" in row for row in rows):
        errors = [row.get("completeness_error") for row in rows]
        table.add_row("completeness error", *("–" if error is None else f"{error['mean']:.1e}" for error in errors))
    for name, arrow in _ARROWS.items():
        if any(name in row for row in rows):
            cells = [f"{row[name]['mean']:.2f} ± {row[name]['standard_error']:.2f}" for row in rows]
            table.add_row(f"{name} {arrow}", *cells)
    table.add_row("seconds per sample", *(f"{row['seconds_per_sample']:.3g}" for row in rows))
    output.console.print(table)
    output.say("± standard error over samples; arrows point to better values.", style="dim")
