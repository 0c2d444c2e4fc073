"""`axiograd audit`: which axioms hold for which method."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from axiograd._names import choose_from
from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from axiograd.axioms import AxiomReport, Table1
    from axiograd.axioms.paper_table import MethodColumn

#: Methods that fit beside each other.
_WIDEST = 4


def audit(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[METHOD]… [SPEC]",
            help="Methods (x-gradient, integrated-gradients, deeplift …; all if none is named), and a model to search.",
            show_default=False,
        ),
    ] = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    shape: options.Shape = None,
    steps: Annotated[int, typer.Option(help="Steps of Integrated Gradients.", min=2)] = 512,
    samples: Annotated[int, typer.Option(help="Draws of Expected Gradients.", min=1)] = 1024,
    networks: Annotated[int, typer.Option(help="Generated networks of each kind.", min=1)] = 4,
    seed: options.Seed = 0,
    *,
    download: options.Download = False,
    details: Annotated[bool, typer.Option("--details", help="Print every counterexample.")] = False,
    json: options.Json = False,
) -> None:
    """Search for counterexamples to each axiom, and print the paper's Table 1 as measured.

    Without arguments all methods are audited, and the exit code is 1 if a cell differs from the paper's. For methods
    that are named, it is 1 if any axiom fails. With a SPEC, that model and random inputs are searched.

    `axiograd audit`

    `axiograd audit x-gradient integrated-gradients`

    `axiograd audit x-gradient xmlp`
    """
    with speaking(as_json=json) as output:
        from axiograd.axioms.paper_table import Table1, columns

        known = columns(n_steps=steps, n_samples=samples)
        methods, spec = _read(arguments or [], list(known))
        model, inputs = None, None
        if spec is not None:
            from axiograd.loading.specs import example_input, load_model

            given = options.read_settings(settings)
            model = load_model(spec, weights, settings=given, download=download).double()
            inputs = example_input(model, shape, batch=8)
        chosen = [known[name] for name in methods or known if methods or model is None or not known[name].captum]
        reports = _audit(output, chosen, model, inputs, networks, seed)
        table = Table1(tuple(reports))
        _show(output, table, details=details or spec is not None, compared=spec is None)
        different = table.differences() if spec is None else []
        failed = [(r.method, x.axiom) for r in reports for x in r.results if not x.passed]
        output.answer(_answer(table, spec, different))
    no = failed if methods or spec is not None else different
    raise typer.Exit(1 if no else 0)


def _read(arguments: list[str], known: list[str]) -> tuple[list[str], str | None]:
    from axiograd.models import list_models

    methods = [name for name in arguments if name in known]
    others = [name for name in arguments if name not in known]
    if len(others) > 1:
        raise ConfigurationError(
            f"{', '.join(others)}: at most one of these can be the model. Methods: {', '.join(known)}."
        )
    if others and ":" not in others[0] and not others[0].endswith(".safetensors") and others[0] not in list_models():
        raise ConfigurationError(
            f"{others[0]!r} is neither a method nor a model: {choose_from(others[0], [*known, *list_models()])}."
        )
    return methods, others[0] if others else None


def _audit(
    output: Output, chosen: list[MethodColumn], model: Any, inputs: Any, networks: int, seed: int
) -> list[AxiomReport]:
    from axiograd.attribution import XGradient

    reports = []
    with output.progress() as bar:
        task = bar.add_task("auditing", total=len(chosen))
        for column in chosen:
            bar.update(task, description=f"auditing {column.name}")
            if model is None:
                report = column.audit(seed=seed, n_networks=networks)
            else:
                # A given model is not homogeneous by construction: it has to be certified.
                method = XGradient if column.name == "X-Gradient" else column.method
                baselines = None if column.baselines is None else 0.5 * inputs.flip(0)
                target = None if model(inputs).dim() == 1 or model(inputs).shape[1] == 1 else 0
                own = replace(column, method=method, baselines=baselines)
                report = own.audit(seed=seed, model=model, inputs=inputs, target=target)
            reports.append(report)
            bar.advance(task)
    return reports


def _show(output: Output, table: Table1, *, details: bool, compared: bool) -> None:
    from axiograd.axioms import AXIOMS

    marks = {"✓": "[green]✓[/]", "✗": "[red]✗[/]"}

    def cell(report: AxiomReport, axiom: str) -> str:
        paper = f" [dim]({table.paper(report.method, axiom)})[/]" if compared else ""
        return marks[report[axiom].mark] + paper

    names = [axiom.name for axiom in AXIOMS]
    if len(table.reports) > _WIDEST:  # as many columns as axioms are narrower than all methods
        shown = plain_table("method", *(name.replace(" ", "\n") for name in names))
        for report in table.reports:
            shown.add_row(report.method, *(cell(report, name) for name in names))
    else:
        shown = plain_table("axiom", *(report.method for report in table.reports))
        for name in names:
            shown.add_row(name, *(cell(report, name) for report in table.reports))
    shown.columns[0].no_wrap = True
    output.console.print(shown)
    for line in table.remarks() if compared else [f"Searched: {table.reports[0].models}, random inputs."]:
        if line:
            output.say(line, style="dim")
    if details:
        for report in table.reports:
            output.console.print()
            output.say(str(report))


def _answer(table: Table1, spec: str | None, different: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "model": spec,
        "methods": [
            {
                "method": report.method,
                "models": report.models,
                "seed": report.seed,
                "passed": report.passed,
                "axioms": [
                    {
                        "axiom": result.axiom,
                        "passed": result.passed,
                        "violation": result.violation,
                        "tolerance": result.tolerance,
                        "cases": result.n_cases,
                        "paper": table.paper(report.method, result.axiom) if spec is None else None,
                        "counterexample": None if result.counterexample is None else str(result.counterexample),
                    }
                    for result in report.results
                ],
            }
            for report in table.reports
        ],
        "not_as_in_the_paper": different,
    }
