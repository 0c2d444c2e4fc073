"""`axiograd evaluate SPEC --data DATA`: how good are the model and its attributions?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking
from axiograd.errors import ConfigurationError

METRICS = ("accuracy", "completeness", "masking", "localisation")
#: What is better, to be read beside the name.
ARROWS = {"KPM": "↑", "KNM": "↓", "KAM": "↑", "RAM": "↓", "energy inside": "↑", "pointing game": "↑", "best IoU": "↑"}


@options.grouped
def evaluate(
    context: typer.Context,
    spec: options.Spec,
    data: Annotated[
        list[str],
        typer.Option("--data", help="Name of a data set, a folder with one folder per class, images, or a CSV table."),
    ],
    methods: options.Methods = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    metrics: Annotated[str, typer.Option(help=f"Some of {','.join(METRICS)}.")] = ",".join(METRICS),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="JSON file, written after every batch; a stopped run is resumed.")
    ] = None,
    masking: Annotated[
        str, typer.Option(help="What masked features become: blur, mean or zero; auto is blur where images allow it.")
    ] = "auto",
    target: Annotated[
        str, typer.Option(help="label (predicted where there is none), predicted, or a class by number or name.")
    ] = "label",
    classes: options.Classes = None,
    split: Annotated[str | None, typer.Option(help="Split of a data set.  [default: val or test]")] = None,
    limit: options.Limit = None,
    batch_size: options.Batch = 8,
    steps: options.Steps = 128,
    seed: options.Seed = 0,
    *,
    reading: options.ReadingOptions,
    skip_damaged: options.SkipDamaged = False,
    masks: options.Masks = None,
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Measure accuracy, completeness, masking metrics and, where the data has boxes or --masks, localisation.

    KPM and KNM are areas under the target's score, KAM and RAM under the accuracy, while features are masked in the
    order of their attributions (the paper's Table 3). With --limit, samples are drawn by --seed.

    `axiograd evaluate xsqueezenet1_1 --weights stripped.safetensors --data imagenet_sample --limit 50`

    `axiograd evaluate resnet18 --weights default --data tiny_imagenet -m input-x-gradient,integrated-gradients`
    """
    wanted = options.read_list(metrics)
    if unknown := [name for name in wanted if name not in METRICS]:
        raise ConfigurationError(f"--metrics {unknown[0]}: choose some of {', '.join(METRICS)}.")
    if masking not in {"auto", "blur", "mean", "zero"}:
        raise ConfigurationError(f"--masking {masking}: choose auto, blur, mean or zero.")
    with speaking(as_json=json) as output:
        from functools import cache

        from axiograd._io import digest
        from axiograd.cli.attributing import Methods, read_methods
        from axiograd.cli.evaluating import Measured, measure
        from axiograd.cli.inputs import read_inputs, read_model
        from axiograd.cli.masked import with_masks

        names = read_methods(methods)
        given = read_model(spec, weights, settings, download=download)
        samples = with_masks(read_inputs(given, data, reading, split=split), masks)
        model, pixels = given.model, samples.pixels
        boxes = samples.boxes is not None and samples.masks is None
        if boxes and pixels and (pixels.transform.resize or pixels.transform.crop):
            output.note("The boxes do not fit resized images: no localisation (--preprocess pixels keeps the size).")
            wanted = [name for name in wanted if name != "localisation"]
        samples = _drawn(samples, limit, seed)
        identity = {
            "model": spec,
            "weights": digest(model.state_dict()),
            "data": samples.source,
            "samples": digest("\n".join(samples.names)),
            "preprocessing": samples.prepared,
            "methods": names,
            "metrics": sorted(wanted),
            "masking": masking,
            "target": target,
            "steps": steps,
            "seed": seed,
        } | ({} if masks is None else {"masks": str(masks)})
        measured = Measured.resume(out, identity)
        if measured.done:
            output.note(f"Resuming after {measured.done} of {len(samples)} samples in {out}.")
        chosen = Methods(names, model, context.params, steps=steps, seed=seed)
        with output.progress() as bar:
            task = bar.add_task("evaluating", total=len(samples), completed=measured.done)
            measure(
                chosen,
                samples,
                measured,
                wanted=set(wanted),
                masking=masking,
                target=target,
                batch=batch_size,
                skip_damaged=skip_damaged,
                names=cache(lambda n_outputs: given.class_names(classes, samples.classes, n_outputs)),
                out=out,
                progress=lambda done: bar.update(task, completed=done),
            )
        answer = {"trained": given.trained, "warning": given.warning} | _answer(measured, chosen, samples)
        _show(output, answer)
        output.answer(answer)


def _drawn(samples: Any, limit: int | None, seed: int) -> Any:
    """Data sets are sorted by class: a part of one has to be drawn."""
    import torch

    if limit is None or limit >= len(samples):
        return samples
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))[:limit]
    return samples.choose(order.tolist())


def _answer(measured: Any, methods: Any, samples: Any) -> dict[str, Any]:
    from math import nan

    from axiograd.cli.attributing import relative
    from axiograd.cli.evaluating import LOCALISATION, MASKING, summary

    if not measured.done or "difference" not in measured.model:
        raise ConfigurationError(f"{samples.source}: no sample could be read, so there is nothing to evaluate.")
    differences = measured.model["difference"]
    rows = []
    for name in methods.names:
        values = measured.methods[name]
        row: dict[str, Any] = {"method": methods.title(name), "seconds_per_sample": summary(values["seconds"])["mean"]}
        if "delta" in values:
            errors = [nan if error is None else error for error in relative(values["delta"], differences)]
            row["completeness_error"] = {"mean": summary(errors)["mean"], "max": max(errors)}
        row |= {metric: summary(values[metric]) for metric in (*MASKING, *LOCALISATION) if metric in values}
        rows.append(row)
    regions = len(measured.methods[methods.names[0]].get(LOCALISATION[0], ()))
    accuracy = {name: summary(measured.model[name]) for name in ("top-1", "top-5") if name in measured.model}
    return {
        **measured.identity,
        "n_samples": len(differences),
        "n_regions": regions,
        "baseline": samples.zero,
        "skipped": list(samples.skipped),
        "accuracy_percent": accuracy,
        "results": rows,
    }


def _show(output: Output, answer: dict[str, Any]) -> None:
    if answer["warning"]:
        output.warn("Untrained", answer["warning"])
    output.say(f"model          {answer['model']}")
    output.say(f"data           {answer['data']}, {answer['n_samples']} samples")
    output.say(f"preprocessing  {answer['preprocessing']}")
    output.say(f"baseline       {answer['baseline']}")
    for name, value in answer["accuracy_percent"].items():
        output.say(f"{name:<14} {value['mean']:.1f} % ± {value['standard_error']:.1f}")
    rows = answer["results"]
    # Metrics below each other: there are more of them than methods.
    methods = [row["method"] for row in rows]
    table = plain_table("", *methods, right=tuple(methods))
    if any("completeness_error" in row for row in rows):
        errors = [row.get("completeness_error") for row in rows]
        table.add_row("completeness error", *("–" if error is None else f"{error['mean']:.1e}" for error in errors))
    for name, arrow in ARROWS.items():
        if any(name in row for row in rows):
            cells = [f"{row[name]['mean']:.2f} ± {row[name]['standard_error']:.2f}" for row in rows]
            table.add_row(f"{name} {arrow}", *cells)
    if 0 < answer["n_regions"] < answer["n_samples"]:
        output.say(
            f"localisation   of the {answer['n_regions']} samples that have a box or mask in what the model sees"
        )
    table.add_row("seconds per sample", *(f"{row['seconds_per_sample']:.3g}" for row in rows))
    output.console.print()
    output.console.print(table)
    output.say("± standard error over samples; arrows point to better values.", style="dim")
    for name in answer["skipped"]:
        output.note(f"Left out, as it cannot be decoded: {name}")
