"""`axiograd convert SPEC -o FILE`: make an X-DNN of any model."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from axiograd.cli import options
from axiograd.cli.certificates import certify_on_random, show_certificate
from axiograd.cli.output import Output, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

    from axiograd.homogeneity import Certificate, Conversion
    from axiograd.loading import Loaded
    from axiograd.metrics import Agreement
    from axiograd.models.recipe import BuildRecipe

#: Those that need no examples: for networks that are trained afterwards.
_TRAINED_AFTERWARDS = {"strip", "carry"}
_VIOLATIONS = 3
_IMAGES = 4  # dimensions of a batch of them
#: Examples of a proof, and those on which attributions are compared with the original's, by so many steps.
_PROVED, _COMPARED, _STEPS = 16, 8, 32


def convert(
    context: typer.Context,
    spec: options.Spec,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, FILE.safetensors.", show_default=False)],
    examples: options.Examples = None,
    how: Annotated[
        Literal["auto", "strip", "carry", "calibrate", "lift"],
        typer.Option(help="auto: the first of strip, calibrate and lift that keeps 95 % of the answers."),
    ] = "auto",
    n_examples: Annotated[
        int, typer.Option(help="How many examples are used; a quarter of them judges what is kept.", min=2)
    ] = 200,
    shape: options.Shape = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    preprocess: options.Preprocess = None,
    download: options.Download = False,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Convert a trained model into an X-DNN, say what it keeps, prove it, and save it with the recipe to rebuild it.

    Real examples, unlabelled, decide: some of them make the conversion, the others judge how many answers it keeps,
    which is printed first. strip takes out biases and exchanges what is not homogeneous; calibrate reads biases off the
    input and fits weights to the examples, layer by layer; lift, ρ(x)·f(x/ρ(x)), works for any architecture and changes
    no weight. To train a network from scratch, --how carry (biases carried by the signal) and --how strip (the paper's
    way) need no examples. The file is plain safetensors; every command takes it as SPEC (or, for your own Python, as
    --weights beside the SPEC).

    `axiograd convert squeezenet1_1 --weights default -o x.safetensors --examples photos/`

    `axiograd convert net.py:build --weights net.pt -o x.safetensors --examples table.csv --how lift`
    """
    if out.suffix != ".safetensors":
        raise ConfigurationError(f"-o {out}: the file's name ends in .safetensors.")
    with speaking(as_json=as_json) as output:
        from axiograd.homogeneity import certify
        from axiograd.loading.converted import save
        from axiograd.pipeline import read_samples
        from axiograd.pipeline.samples import examples_of

        loaded = options.read_model(spec, weights, settings, download=download, device=device)
        if loaded.recipe is not None and loaded.recipe.how != "trained":
            raise ConfigurationError(f"{weights or spec} has been converted by {loaded.recipe.how} already.")
        samples = None
        if examples is None:
            options.refuse({"--preprocess": preprocess}, "without --examples nothing is prepared")
            x, before = certify_on_random(loaded, shape)
            source = "random inputs from the standard normal distribution"
        else:
            options.refuse({"--shape": shape}, "the examples have one")
            samples = read_samples(loaded, examples, preprocess=preprocess)
            _, x, source = examples_of(samples, loaded, n_examples)
            before = certify(loaded.model, x[:_PROVED])
        if examples is None and how not in _TRAINED_AFTERWARDS and not before.ok:
            ask = options.suggestion(context.params, "convert", examples=[options.placeholder(x)], shape=None)
            raise ConfigurationError(
                f"a conversion of {spec} can lose what it has learned, and only real inputs show what is kept: {ask}. "
                "To train it from scratch, --how carry or --how strip converts it without them."
            )
        conversion, notes = _convert(loaded, x, how if examples is not None or how != "auto" else "strip")
        pixels = loaded.pixels if samples is None else samples.pixels
        recipe = _recipe(loaded, weights, options.read_settings(settings), conversion, x, source)
        if pixels is not None and x.dim() == _IMAGES:
            recipe = replace(recipe, pixels=pixels.to_dict())
        save(out, conversion.model.cpu(), recipe)
        _check_again(recipe, out, conversion, x[:_PROVED])
        code, found = _in_python(recipe, out), _agreement(conversion, x) if examples is not None else None
        _show(output, before, conversion, source, found)
        for note in notes:
            output.warn("Warning", note)
        if pixels is not None and pixels.guessed:
            output.warn("Preprocessing was guessed", f"if it is another one, these results do not apply: {pixels}.")
        output.say(f"\nWritten to {out}. Load it in Python:\n", style="bold")
        output.say(code)
        inputs = examples or [options.placeholder(x)]
        of_file = {"weights": out} if ":" in recipe.spec else {"spec": out, "weights": None, "settings": None}
        said = options.suggestion(
            context.params, "explain", inputs=inputs, out=None, download=False, preprocess=None, **of_file
        )
        output.say(f"\nor use it in the command: {said}")
        output.answer(_answer(recipe, before, conversion, found, out, code))


def _convert(loaded: Loaded, x: Tensor, how: Any) -> tuple[Conversion, list[str]]:
    """The conversion, and what the library warns of."""
    from axiograd.homogeneity import ConversionWarning, to_xdnn
    from axiograd.homogeneity.conversion import OverfittingWarning

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("ignore")
        for kind in (ConversionWarning, OverfittingWarning):
            warnings.simplefilter("always", kind)
        conversion = to_xdnn(loaded.model, x, how=how)
    return conversion, [str(each.message) for each in noted]


def _recipe(
    loaded: Loaded, weights: str | None, settings: dict[str, Any], conversion: Conversion, x: Tensor, source: str
) -> BuildRecipe:
    """Everything that the file says of itself; what training wrote knows its model already."""
    from axiograd.models.recipe import BuildRecipe
    from axiograd.models.registry import resolve

    made, spec = loaded.recipe, loaded.base
    if made is not None:
        weights, settings = made.weights, {**made.settings, **settings}
    elif ":" not in spec and weights is not None:
        settings = {**resolve(spec, weights, root=None, download=False)[1], **settings}
    return BuildRecipe(
        spec=spec,
        how=conversion.how,  # type: ignore[arg-type]
        shape=tuple(x.shape[1:]),
        settings=settings,
        weights=weights,
        examples=source,
        table={} if loaded.schema is None else loaded.schema.to_dict(),
        classes=loaded.classes,
    )


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


def _check_again(recipe: BuildRecipe, out: Path, conversion: Conversion, x: Tensor) -> None:
    """What comes back from the file must be what was converted, up to the order of sums."""
    import torch
    from torch.utils._pytree import tree_leaves

    from axiograd.errors import ConversionError
    from axiograd.loading import load

    named: tuple[Any, ...] = (recipe.spec, out) if ":" in recipe.spec else (out,)
    again = load(*named, settings=recipe.settings).model
    with torch.no_grad():
        ours, theirs = (tree_leaves(model(x.cpu())) for model in (again, conversion.model.eval()))
    same = all(_same(*pair) for pair in zip(ours, theirs, strict=True))
    if not same:
        out.unlink()
        raise ConversionError(
            f"{recipe.spec} gives other outputs when it is loaded again, so nothing was kept: does its factory make "
            "the same architecture every time, with everything that matters in its state dict?"
        )


def _same(ours: Tensor, theirs: Tensor) -> bool:
    """Equal up to rounding: weights that lie elsewhere in memory may be summed in another order."""
    return ours.shape == theirs.shape and ours.allclose(theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))


def _in_python(recipe: BuildRecipe, out: Path) -> str:
    """What loads the file; a file of weights runs nobody's Python, so that a user's model is named beside it."""
    named = f'"{recipe.spec}", "{out}"' if ":" in recipe.spec else f'"{out}"'
    settings = f", settings={dict(recipe.settings)!r}" if ":" in recipe.spec and recipe.settings else ""
    return f"import axiograd\n\nmodel = axiograd.load({named}{settings}).model"


def _show(
    output: Output, before: Certificate, conversion: Conversion, source: str, agreement: Agreement | None
) -> None:
    """What it costs comes first, then what was changed, and the proof last."""
    lines, costs = str(conversion).splitlines(), 1 + len(conversion.tried)
    output.say(lines[0], style="bold")
    for line in [*lines[1:costs], *([] if agreement is None else [in_words(agreement)])]:
        output.say(line)
    output.console.rule("Before", align="left")
    show_certificate(output.console, before, most=_VIOLATIONS)
    output.console.rule("What was changed", align="left")
    for line in lines[costs:]:
        output.say(line)
    output.say(f"made on {source}")
    output.console.rule("After", align="left")
    show_certificate(output.console, conversion.certificate)


def _answer(
    recipe: BuildRecipe, before: Certificate, conversion: Conversion, found: Agreement | None, out: Path, code: str
) -> dict[str, Any]:
    kept = conversion.kept
    return {
        "model": recipe.spec,
        "how": conversion.how,
        "file": str(out),
        "kept": asdict(kept) | {"share": kept.share, "words": str(kept)},
        "agreement": None if found is None else {name: values.mean().item() for name, values in vars(found).items()},
        "tried": [{"how": each, "outcome": outcome} for each, outcome in conversion.tried],
        "energy": conversion.energy,
        "before": json.loads(before.to_json()),
        "after": json.loads(conversion.certificate.to_json()),
        "edits": [{"module": e.module, "before": e.before, "after": e.after} for e in conversion.edits],
        "removed": conversion.removed,
        "added": conversion.added,
        "examples": recipe.examples,
        "python": code,
    }
