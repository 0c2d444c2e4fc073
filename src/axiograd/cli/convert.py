"""`axiograd convert SPEC -o FILE`: make an X-DNN of any model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from axiograd._version import __version__
from axiograd.cli import options
from axiograd.cli.certificates import show_certificate
from axiograd.cli.output import Output, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from axiograd.cli.samples import Samples
    from axiograd.homogeneity import Certificate, Conversion
    from axiograd.loading.converted import BuildRecipe

_VIOLATIONS = 3
_IMAGES = 4  # dimensions of a batch of them
#: Example inputs that a conversion walks through, and those that a strip is fitted to.
_EXAMPLES, _FITTED = 16, 160
#: Below this share of unchanged top classes, a converted model is not ready for use.
_LITTLE = 0.5


@options.grouped
def convert(
    context: typer.Context,
    spec: options.Spec,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, FILE.safetensors.", show_default=False)],
    how: Annotated[
        str,
        typer.Option(help="strip: take out biases and exchange what is not homogeneous; lift: ρ(x)·f(x/ρ(x))."),
    ] = "strip",
    weights: options.Weights = None,
    settings: options.Settings = None,
    shape: options.Shape = None,
    examples: Annotated[
        list[str] | None,
        typer.Option(
            "--examples", metavar="INPUT", help="Images, a folder, a table or a data set to calibrate on; repeatable."
        ),
    ] = None,
    n_examples: Annotated[
        int | None, typer.Option(help="How many of them are used: 160 for strip, 16 for lift.", min=2)
    ] = None,
    *,
    reading: options.ReadingOptions,
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Convert a model into an X-DNN, prove it, and save its weights with the recipe to rebuild it.

    strip is the paper's way. With more than 16 examples it is fitted to them, layer by layer, where a network has only
    convolutions, linear layers, batch norms and ReLUs; otherwise it wants fine-tuning. lift works for any architecture
    and changes no weight, and its outputs no longer depend on the input's scale other than by that factor. Both are
    calibrated on example inputs of the data's scale: give real ones. The file is plain safetensors; `check`,
    `explain` and `evaluate` take it as SPEC (or, for your own Python, as --weights beside the SPEC).

    `axiograd convert squeezenet1_1 --weights default -o stripped.safetensors --examples photos/`

    `axiograd convert net.py:build --weights net.pt --how lift -o lifted.safetensors --examples table.csv`
    """
    if how not in {"strip", "lift"}:
        raise ConfigurationError(f"--how {how}: choose strip or lift.")
    if out.suffix != ".safetensors":
        raise ConfigurationError(f"-o {out}: the file's name ends in .safetensors.")
    with speaking(as_json=json) as output:
        from axiograd.cli.inputs import read_inputs, read_model, suggestion
        from axiograd.homogeneity import certify
        from axiograd.loading.converted import BuildRecipe, save
        from axiograd.loading.specs import example_input

        given = options.read_settings(settings)
        bare = read_model(spec, weights, settings, download=download)
        model, made, table = bare.model, bare.recipe, {}
        if made is not None and made.how != "trained":
            raise ConfigurationError(f"{weights or spec} has been converted by {made.how} already.")
        if made is not None:  # what training wrote knows its model and its table
            spec, weights, given, table = made.spec, made.weights, {**made.settings, **given}, made.table
        said = bare.known or bare.pixels is not None or any(reading.given.values())
        pixels = bare.prepared(reading) if said else None
        if examples is None:
            x, source = example_input(model, shape), "random inputs from the standard normal distribution"
        else:
            samples = read_inputs(bare, examples, reading)
            _, x, source = spread(samples, model, n_examples or (_FITTED if how == "strip" else _EXAMPLES))
            table = table if samples.table is None else samples.table.stored or table
            pixels = samples.pixels
        images, x = x, x[:_EXAMPLES]
        before = certify(model, x)
        conversion, unfitted = _convert(model, x, images if examples is not None else None, how)
        recipe = BuildRecipe(
            spec=spec,
            how="calibrate" if unfitted is None else cast("Literal['strip', 'lift']", how),
            shape=tuple(x.shape[1:]),
            settings=_settings(spec, weights if made is None else None, given),
            weights=weights,
            examples=source,
            table=table,
            pixels={} if pixels is None or x.dim() != _IMAGES else pixels.to_dict(),
            classes=bare.classes,
        )
        save(out, conversion.model, recipe)
        _check_again(spec, out, given, conversion, x)
        code = _in_python(spec, out, recipe)
        kept = _kept(model, conversion, x) if examples is not None else None
        _show(output, before, conversion, source, kept)
        card = _write_card(out, conversion, spec=spec, source=source, kept=kept, code=code)
        if unfitted:
            output.notes.print("\n[yellow]Stripped, and not fitted to the examples:[/]")
            output.notes.print(unfitted, markup=False)
        output.say(f"\nWritten to {out}, with a card, {card.name}. Load it in Python:\n", style="bold")
        output.say(code)
        as_spec = {"weights": out} if ":" in spec else {"spec": out, "weights": None, "settings": None}
        output.say(f"\nor use it in the command: {suggestion(context.params, 'explain', out=None, **as_spec)} INPUT…")
        output.answer(
            {
                "model": spec,
                "how": how,
                "file": str(out),
                "before": before.to_dict() | {"degrees": _degrees(before)},
                "after": conversion.certificate.to_dict() | {"degrees": _degrees(conversion.certificate)},
                "edits": [{"module": e.module, "before": e.before, "after": e.after} for e in conversion.edits],
                "removed": conversion.removed,
                "added": conversion.added,
                "calibrated_on": source,
                "fitted": unfitted is None,
                "not_fitted_because": unfitted or None,
                "top_class_kept": kept,
                "python": code,
            }
        )


def _convert(model: nn.Module, x: Tensor, images: Tensor | None, how: str) -> tuple[Conversion, str | None]:
    """The conversion, and why it is not a strip fitted to the images; "" where nobody asked for that, None if it is."""
    from axiograd.errors import ConversionError, InputError
    from axiograd.homogeneity import to_xdnn

    why = ""
    if how == "strip" and images is not None and len(images) > _EXAMPLES:
        try:
            return to_xdnn(model, x, calibration=images, how="calibrate"), None
        except (ConversionError, InputError) as error:
            why = str(error)
    return to_xdnn(model, x, how=cast("Literal['strip', 'lift']", how)), why


def spread(samples: Samples, model: nn.Module, n: int) -> tuple[list[int], Tensor, str]:
    """Places and inputs of some samples, spread over what was given, and in words what they are."""
    from axiograd._state import like_of

    step = max(1, len(samples) // n)
    rows = range(0, len(samples), step)[:n]
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


def _kept(model: nn.Module, conversion: Conversion, x: Tensor) -> float | None:
    """The share of the examples whose top class is as it was; None for models that do not score classes."""
    from axiograd.cli.attributing import scores_of
    from axiograd.errors import TargetError

    try:
        before, after = (scores_of(each, x) for each in (model, conversion.model))
    except TargetError:
        return None
    if before.shape[1] == 1:
        return float(((before > 0) == (after > 0)).float().mean())
    return float((before.argmax(1) == after.argmax(1)).float().mean())


def _in_python(spec: str, out: Path, recipe: BuildRecipe) -> str:
    """What loads the file; a file of weights runs nobody's Python, so that a user's model is named beside it."""
    named = f'"{spec}", "{out}"' if ":" in spec else f'"{out}"'
    settings = f", settings={dict(recipe.settings)!r}" if ":" in spec and recipe.settings else ""
    return f"import axiograd\n\nmodel = axiograd.load({named}{settings}).model"


def _write_card(file: Path, conversion: Conversion, *, spec: str, source: str, kept: float | None, code: str) -> Path:
    """FILE.md beside FILE.safetensors."""
    from axiograd._io import file_sha256, write_atomically

    certificate = conversion.certificate
    lines = [
        f"# {spec}, an X-DNN by {conversion.how}",
        "",
        f"- file: {file.name}, SHA-256 {file_sha256(file)}",
        f"- made by axiograd {__version__} from {spec}, on {source}",
        f"- certificate: degree {certificate.degree:g}, {'exact' if certificate.exact else 'up to epsilons'}",
    ]
    if kept is not None:
        lines.append(f"- top class as before for {kept:.0%} of these examples")
    lines += ["", "```python", code, "```", "", "```text", str(conversion), "```", ""]
    if conversion.layers:
        lines += ["| layer | calibration | held out | error of c | penalty |", "|---|---|---|---|---|"]
        for fit in conversion.layers:
            penalty = "" if math.isnan(fit.penalty) else f"{fit.penalty:g}"
            shares = f"{fit.calibration:.4f} | {fit.held_out:.4f} | {fit.bias_error:.3f}"
            lines.append(f"| {fit.name} | {shares} | {penalty} |")
        lines += ["", "How much of each layer of the original is reproduced; 1 is all of it.", ""]
    return write_atomically(file.with_suffix(".md"), "\n".join(lines).encode())


def _show(output: Output, before: Certificate, conversion: Conversion, source: str, kept: float | None) -> None:
    output.console.rule("Before", align="left")
    show_certificate(output.console, before, most=_VIOLATIONS)
    output.console.rule("What was changed", align="left")
    output.say(str(conversion))
    output.say(f"calibrated on {source}")
    if kept is not None:
        output.say(f"top class as before for {kept:.0%} of these examples")
    output.console.rule("After", align="left")
    show_certificate(output.console, conversion.certificate)
    if kept is not None and kept < _LITTLE:
        lift = ", or convert with --how lift" if conversion.how == "strip" else ""
        output.notes.print(f"\n[yellow]Not what it was:[/] fine-tune it before use (axiograd train){lift}.")
    if conversion.added and source.startswith("random"):
        output.notes.print(
            f"\n[yellow]Calibrated on random inputs:[/] {len(conversion.added)} constants depend on the data's scale. "
            "Give real inputs by --examples, or the model will be off."
        )


def _degrees(certificate: Certificate) -> list[Any]:
    return ["any" if degree == float("inf") else degree for degree in certificate.degrees]
