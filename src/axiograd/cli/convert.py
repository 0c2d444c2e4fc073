"""`axiograd convert SPEC -o FILE`: make an X-DNN of any model."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from axiograd._version import __version__
from axiograd.cli import options
from axiograd.cli.certificates import certify_on_random, show_certificate
from axiograd.cli.output import Output, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from axiograd.cli.samples import Samples
    from axiograd.homogeneity import Certificate, Conversion
    from axiograd.loading.converted import BuildRecipe
    from axiograd.metrics import Agreement

HOW = ("auto", "strip", "carry", "calibrate", "lift")
#: Those that need no examples: for networks that are trained afterwards.
_TRAINED_AFTERWARDS = {"strip", "carry"}
_VIOLATIONS = 3
_IMAGES = 4  # dimensions of a batch of them
#: Examples of a proof, and those on which attributions are compared with the original's, by so many steps.
_PROVED, _COMPARED, _STEPS = 16, 8, 32


@options.grouped
def convert(
    context: typer.Context,
    spec: options.Spec,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, FILE.safetensors.", show_default=False)],
    examples: Annotated[
        list[str] | None,
        typer.Option(
            "--examples",
            metavar="INPUT",
            help="Real inputs, 32 or more: images, a folder, a table or a data set; repeatable.",
        ),
    ] = None,
    how: Annotated[
        str,
        typer.Option(
            help="auto: the first of strip, calibrate and lift that keeps 95 % of the answers; or strip, carry, "
            "calibrate, lift."
        ),
    ] = "auto",
    weights: options.Weights = None,
    settings: options.Settings = None,
    shape: options.Shape = None,
    n_examples: Annotated[
        int, typer.Option(help="How many examples are used; a quarter of them judges what is kept.", min=2)
    ] = 200,
    *,
    reading: options.ReadingOptions,
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Convert a trained model into an X-DNN, say what it keeps, prove it, and save it with the recipe to rebuild it.

    Real examples, unlabelled, decide: some of them make the conversion, the others judge how many answers it keeps,
    which is printed first. strip takes out biases and exchanges what is not homogeneous; calibrate reads biases off the
    input and fits weights to the examples, layer by layer; lift, ρ(x)·f(x/ρ(x)), works for any architecture and changes
    no weight. To train a network from scratch, --how carry (biases carried by the signal) and --how strip (the paper's
    way) need no examples. The file is plain safetensors; `check`, `explain` and `evaluate` take it as SPEC (or, for
    your own Python, as --weights beside the SPEC).

    `axiograd convert squeezenet1_1 --weights default -o x.safetensors --examples photos/`

    `axiograd convert net.py:build --weights net.pt -o x.safetensors --examples table.csv --how lift`
    """
    if how not in HOW:
        raise ConfigurationError(f"--how {how}: choose {', '.join(HOW[:-1])} or {HOW[-1]}.")
    if out.suffix != ".safetensors":
        raise ConfigurationError(f"-o {out}: the file's name ends in .safetensors.")
    with speaking(as_json=json) as output:
        from axiograd.cli.inputs import read_inputs, read_model, suggestion
        from axiograd.homogeneity import certify
        from axiograd.loading.converted import BuildRecipe, save

        given = options.read_settings(settings)
        bare = read_model(spec, weights, settings, download=download)
        model, made, table = bare.model, bare.recipe, {}
        if made is not None and made.how != "trained":
            raise ConfigurationError(f"{weights or spec} has been converted by {made.how} already.")
        said = bare.known or bare.pixels is not None or any(reading.given.values())
        pixels = bare.prepared(reading) if said else None
        if examples is None:
            x, before = certify_on_random(model, shape)
            source = "random inputs from the standard normal distribution"
        else:
            samples = read_inputs(bare, examples, reading)
            _, x, source = spread(samples, model, n_examples)
            table = {} if samples.table is None else samples.table.stored
            pixels = samples.pixels
            before = certify(model, x[:_PROVED])
        if examples is None and how not in _TRAINED_AFTERWARDS and not before.ok:
            ask = suggestion(context.params, "convert", examples=[placeholder(x)])
            raise ConfigurationError(
                f"a conversion of {spec} can lose what it has learned, and only real inputs show what is kept: {ask}. "
                "To train it from scratch, --how carry or --how strip converts it without them."
            )
        conversion, notes = _convert(model, x, how if examples is not None or how != "auto" else "strip")
        if made is not None:  # what training wrote knows its model and its table
            spec, weights, given, table = made.spec, made.weights, {**made.settings, **given}, table or made.table
        recipe = BuildRecipe(
            spec=spec,
            how=cast("Any", conversion.how),
            shape=tuple(x.shape[1:]),
            settings=_settings(spec, weights if made is None else None, given),
            weights=weights,
            examples=source,
            table=table,
            pixels={} if pixels is None or x.dim() != _IMAGES else pixels.to_dict(),
            classes=bare.classes,
        )
        save(out, conversion.model, recipe)
        _check_again(spec, out, given, conversion, x[:_PROVED])
        code = _in_python(spec, out, recipe)
        found = _agreement(conversion, x) if examples is not None else None
        _show(output, before, conversion, source, found)
        for note in notes:
            output.warn("Warning", note)
        if pixels is not None and pixels.guessed:
            output.warn(
                "Preprocessing was guessed",
                f"{pixels.transform}. If the network was trained with another one, these results do not apply: "
                "pass --preprocess, or --mean and --std.",
            )
        card = _write_card(out, conversion, spec=spec, source=source, agreement=found, code=code)
        output.say(f"\nWritten to {out}, with a card, {card.name}. Load it in Python:\n", style="bold")
        output.say(code)
        output.say(f"\nor use it in the command: {_explain(context.params, spec, out)} INPUT…")
        output.answer(
            {
                "model": spec,
                "how": conversion.how,
                "file": str(out),
                "kept": asdict(conversion.kept) | {"share": conversion.kept.share, "words": str(conversion.kept)},
                "agreement": None
                if found is None
                else {name: values.mean().item() for name, values in vars(found).items()},
                "tried": [{"how": each, "outcome": outcome} for each, outcome in conversion.tried],
                "energy": conversion.energy,
                "before": before.to_dict() | {"degrees": _degrees(before)},
                "after": conversion.certificate.to_dict() | {"degrees": _degrees(conversion.certificate)},
                "edits": [{"module": e.module, "before": e.before, "after": e.after} for e in conversion.edits],
                "removed": conversion.removed,
                "added": conversion.added,
                "examples": source,
                "python": code,
            }
        )


def placeholder(inputs: Tensor) -> str:
    """What stands for real inputs in a command that is suggested."""
    return "FOLDER" if inputs.dim() == _IMAGES else "TABLE.csv"


def _convert(model: nn.Module, x: Tensor, how: str) -> tuple[Conversion, list[str]]:
    """The conversion, and what the library warns of beside answers that were lost, which are shown anyway."""
    import warnings

    from axiograd.homogeneity import ConversionWarning, to_xdnn
    from axiograd.homogeneity.conversion import OverfittingWarning

    with warnings.catch_warnings(record=True, action="always", category=OverfittingWarning) as noted:
        warnings.simplefilter("ignore", ConversionWarning)
        conversion = to_xdnn(model, x, how=cast("Any", how))
    return conversion, [str(each.message) for each in noted]


def _agreement(conversion: Conversion, x: Tensor) -> Agreement | None:
    """With the original's Integrated Gradients on some of the examples; None for outputs that have no top class."""
    from axiograd.errors import TargetError
    from axiograd.metrics import agreement

    step = max(1, len(x) // _COMPARED)
    try:
        return agreement(conversion, x[::step][:_COMPARED], n_steps=_STEPS)
    except TargetError:
        return None


def in_words(found: Agreement) -> str:
    """How far the attributions of the converted model are those of the original.

    >>> import torch
    >>> from axiograd.metrics import Agreement
    >>> in_words(Agreement(torch.tensor([0.96, 0.90]), torch.tensor([0.80, 0.90]))).partition(":")[0]
    'its X-Gradient is close to Integrated Gradients of the original'
    """
    degrees = ((0.9, "is close to"), (0.6, "is similar to"), (0.3, "has something in common with"))
    words = next((words for least, words in degrees if found.correlation.mean() >= least), "is unlike")
    return f"its X-Gradient {words} Integrated Gradients of the original: {found}"


def spread(samples: Samples, model: nn.Module, n: int) -> tuple[list[int], Tensor, str]:
    """Places and inputs of some samples, spread over what was given, and in words what they are."""
    from axiograd._state import like_of

    n = min(n, len(samples))
    rows = [i * len(samples) // n for i in range(n)]
    places, x = next(iter(samples.choose(rows).batches(n, like_of(model), skip_damaged=True)))
    return [rows[place] for place in places], x, f"{len(x)} of {samples.source} ({samples.prepared})"


def _settings(spec: str, weights: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """What the model was built with, including what its known weights ask for."""
    from axiograd.models.registry import resolve

    if ":" in spec or weights is None:
        return given
    return {**resolve(spec, weights, root=None, download=False)[1], **given}


def _check_again(spec: str, out: Path, settings: dict[str, Any], conversion: Conversion, x: Tensor) -> None:
    """What comes back from the file must be what was converted, up to the order of sums."""
    import torch

    from axiograd.errors import ConversionError
    from axiograd.loading.specs import load_model

    again = load_model(spec, str(out), settings=settings) if ":" in spec else load_model(str(out))
    with torch.no_grad():
        same = torch.utils._pytree.tree_map(_same, again(x), conversion.model.eval()(x))  # noqa: SLF001
    if not all(torch.utils._pytree.tree_leaves(same)):  # noqa: SLF001
        out.unlink()
        raise ConversionError(
            f"{spec} gives other outputs when it is loaded again, so nothing was kept: does its factory make the same "
            "architecture every time, with everything that matters in its state dict?"
        )


def _same(ours: Tensor, theirs: Tensor) -> bool:
    """Equal up to rounding: weights that lie elsewhere in memory may be summed in another order."""
    return ours.shape == theirs.shape and ours.allclose(theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))


def _in_python(spec: str, out: Path, recipe: BuildRecipe) -> str:
    """What loads the file; a file of weights runs nobody's Python, so that a user's model is named beside it."""
    named = f'"{spec}", "{out}"' if ":" in spec else f'"{out}"'
    settings = f", settings={dict(recipe.settings)!r}" if ":" in spec and recipe.settings else ""
    return f"import axiograd\n\nmodel = axiograd.load({named}{settings}).model"


def _explain(call: dict[str, Any], spec: str, out: Path) -> str:
    """The command that explains by the file, which knows its settings and how its images are prepared."""
    from axiograd.cli.inputs import suggestion

    of_file = {"weights": out} if ":" in spec else {"spec": out, "weights": None, "settings": None}
    stored = dict.fromkeys(field.name for field in fields(options.PixelOptions))
    return suggestion(call, "explain", out=None, **stored, **of_file)


def _write_card(
    file: Path, conversion: Conversion, *, spec: str, source: str, agreement: Agreement | None, code: str
) -> Path:
    """FILE.md beside FILE.safetensors."""
    from axiograd._io import file_sha256, write_atomically

    certificate = conversion.certificate
    lines = [
        f"# {spec}, an X-DNN by {conversion.how}",
        "",
        f"- answers kept: {conversion.kept}",
        *([] if agreement is None else [f"- {in_words(agreement)}"]),
        f"- file: {file.name}, SHA-256 {file_sha256(file)}",
        f"- made by axiograd {__version__} from {spec}, on {source}",
        f"- certificate: degree {certificate.degree:g}, {'exact' if certificate.exact else 'up to epsilons'}",
    ]
    lines += ["", "```python", code, "```", "", "```text", str(conversion), "```", ""]
    if conversion.layers:
        lines += ["| layer | calibration | held out | error of c | penalty |", "|---|---|---|---|---|"]
        for fit in conversion.layers:
            penalty = "" if math.isnan(fit.penalty) else f"{fit.penalty:g}"
            shares = f"{fit.calibration:.4f} | {fit.held_out:.4f} | {fit.bias_error:.3f}"
            lines.append(f"| {fit.name} | {shares} | {penalty} |")
        lines += ["", "How much of each layer of the original is reproduced; 1 is all of it.", ""]
    return write_atomically(file.with_suffix(".md"), "\n".join(lines).encode())


def _show(
    output: Output, before: Certificate, conversion: Conversion, source: str, agreement: Agreement | None
) -> None:
    """What it costs comes first, then what was changed, and the proof last."""
    lines, costs = str(conversion).splitlines(), 1 + len(conversion.tried)
    head, tail = lines[:costs], lines[costs:]
    output.say(head[0], style="bold")
    for line in [*head[1:], *([] if agreement is None else [in_words(agreement)])]:
        output.say(line)
    if conversion.kept.share is not None and not conversion.kept.enough:
        output.warn("Predictions changed", _REMEDIES[conversion.how])
    output.console.rule("Before", align="left")
    show_certificate(output.console, before, most=_VIOLATIONS)
    output.console.rule("What was changed", align="left")
    for line in tail:
        output.say(line)
    output.say(f"made on {source}")
    output.console.rule("After", align="left")
    show_certificate(output.console, conversion.certificate)


#: What to do about a conversion that loses answers.
_REMEDIES = {
    "strip": "convert with --how auto or calibrate and a hundred examples or more, or train it before use.",
    "carry": "train or fine-tune it before use (axiograd train).",
    "calibrate": "give more examples of the data that it was trained on, or fine-tune it before use (axiograd train).",
    "lift": "it differs on inputs larger or smaller than the examples: give more, or fine-tune it (axiograd train).",
}


def _degrees(certificate: Certificate) -> list[Any]:
    return ["any" if degree == float("inf") else degree for degree in certificate.degrees]
