"""Tables: how near one gradient is to the Shapley values, with a prior that asks for it, and what the prior costs."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import shap
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from axiograd import ExpectedGradients, XGradient, tables
from experiments import lab
from experiments.nhanes import roc_auc
from experiments.shapley_networks import SEEDS, TABLES, Table, load, train

LAMBDAS, STEPS = (0.0, 10.0, 100.0), 750
ROWS, ORDERS = 40, 60
#: What is measured, by its name on the page.
COLUMNS = {
    "test": "ROC-AUC or R²",
    "r2": "R² with φ",
    "cosine": "cosine",
    "median": "median error",
    "worst": "largest error",
    "bound": "bound / error",
    "held": "bound holds",
    "rank": "rank correlation",
}
FORMS = (
    ("regular", "regular", "Integrated Gradients (64)"),
    ("regular, EG", "regular", "Expected Gradients"),
    (0.0, "X-DNN", "X-Gradient"),
)


def run(*, quick: bool) -> lab.Result:
    """All tables; a small one alone if quick."""
    names = ("Diabetes",) if quick else TABLES
    size = {"rows": 5, "orders": 4, "steps": 50} if quick else {"rows": ROWS, "orders": ORDERS, "steps": STEPS}
    measured = pd.concat([measure(name, **size) for name in names])
    groups = measured.groupby(["table", "λ"], sort=False)
    both = ("", means := groups.mean(numeric_only=True)), (" ±", groups.sem(numeric_only=True))
    chosen = {name: choose(means.loc[name, "validation"]) for name in names}
    table = pd.DataFrame(
        [
            {"table": name, "network": network, "explanation": explanation}
            | {f"{COLUMNS[each]}{end}": of.loc[(name, key), each] for each in ("test", "r2") for end, of in both}
            | {column: means.loc[(name, key), each] for each, column in list(COLUMNS.items())[2:]}
            for name in names
            for key, network, explanation in (*FORMS, (chosen[name], f"X-DNN, λ = {chosen[name]:g}", "X-Gradient"))
        ]
    )
    with_prior, without = (
        means.loc[pairs].droplevel("λ") for pairs in (list(chosen.items()), [(name, 0.0) for name in names])
    )
    lost = means.xs("regular", level="λ")["test"] - with_prior["test"]
    holds = (with_prior["r2"] >= 0.96) & (lost <= 0.01)
    gained = f"{-lost.max():+.3f} to {-lost.min():+.3f}"
    missed = "" if holds.all() else f" It does not work on {' and '.join(holds.index[~holds])}."
    verdict = (
        f"Trained with the prior, one gradient has R² {lab.span(with_prior['r2'], '.3f')} with the Shapley values, "
        f"{lab.span(without['r2'], '.3f')} without it. On {holds.sum()} of {len(names)} tables it is at least 0.96 for "
        f"no more than 0.01 of the regular network's ROC-AUC or R² ({gained}).{missed}"
    )
    costs = "; ".join(
        f"{name}: R² {lab.span(of['r2'], '.3f')} by {lab.span(of['calls'], '.0f')} calls of the network for a row, "
        f"{lab.span(of['time'], '.0f')} times the processor time of X-Gradient"
        for name, of in measured[measured["calls"].notna()].groupby("λ", sort=False)
    )
    note = (
        f"Means over {len(SEEDS)} seeds, each with its own network and split (60 % to train, 20 % to validate, 20 % to "
        f"test), on {size['rows']} test rows; ± is a standard error. λ is the largest of "
        f"{' and '.join(f'{each:g}' for each in LAMBDAS[1:])} that costs no more than 0.005 on validation rows, else "
        f"{LAMBDAS[1]:g}; the figure has all. φ are the Shapley values of columns, absent ones at the mean row, by "
        f"{size['orders']} orders and their reverse; those by half of the orders have R² "
        f"{lab.span(measured['reference'].dropna(), '.4f')} with them. Expected Gradients are compared with Shapley "
        "values whose absent columns are from the same training rows. An error is a row's ‖a − φ‖/‖φ‖.\n\n"
        "Which rows are off? The bound is `tables.explain(...).shapley_error`, from 16 subsets of the columns: its "
        "median ratio to the error, the share of rows where it holds, and its rank correlation with the error over the "
        "rows of a table.\n\n"
        f"shap's explainers by default (Kernel keeps ten columns), on five rows and the first network with λ = "
        f"{LAMBDAS[1]:g}, beside X-Gradient on {size['rows']} rows at once: {costs}."
    )
    sizes = measured.groupby("table", sort=False)[["rows", "columns"]].first()
    listed = "; ".join(f"{name}, {of['rows']} × {of['columns']}" for name, of in sizes.iterrows())
    return lab.Result(
        "Tables: Shapley values in one gradient",
        table,
        verdict,
        note,
        f"{listed} (rows × columns; NHANES I reconstructed; two of scikit-learn, the others of the package ISLP 0.6.0)",
        f"{', '.join(map(str, SEEDS))} for network, split and orders",
        draw(means, names),
    )


def choose(validation: pd.Series) -> float:
    """The largest λ that costs little on validation rows.

    >>> choose(pd.Series({0.0: 0.80, 10.0: 0.81, 100.0: 0.70}))
    10.0
    """
    return max((each for each in LAMBDAS[1:] if validation[each] >= validation[0.0] - 0.005), default=LAMBDAS[1])


def draw(means: pd.DataFrame, names: Sequence[str]) -> Any:
    """What the prior gains and costs: a line for each table, a point for each λ."""
    figure, (axes,) = lab.figure(7.2, 3.6)
    for name in names:
        of = means.loc[name]
        gained = of.loc[list(LAMBDAS), "test"] - of.loc["regular", "test"]
        gap = 1 - of.loc[list(LAMBDAS), "r2"]
        (drawn,) = axes.plot(gained, gap, linewidth=1.2, label=name)
        axes.scatter(gained, gap, s=[8, 25, 60], color=drawn.get_color())
    axes.axhline(0.04, color="black", linewidth=0.8, linestyle=":")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xlabel("ROC-AUC or R², minus the regular network's", fontsize=8)
    axes.set_ylabel("1 − R² with the Shapley values", fontsize=8)
    title = f"points: λ = {', '.join(f'{each:g}' for each in LAMBDAS)}"
    axes.legend(title=title, title_fontsize=7, fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


@lab.remember
def measure(name: str, *, rows: int, orders: int, steps: int) -> pd.DataFrame:
    """Each network and explanation of a table, by seed."""
    table, measured = load(name), []
    widths = torch.tensor([column.width for column in table.schema.columns])
    regular = train(name, homogeneous=False, weights=(0.0,), steps=steps)
    others = train(name, homogeneous=True, weights=LAMBDAS, steps=steps)
    for i, model in enumerate([*regular, *others]):
        seed, weight = SEEDS[i % len(SEEDS)], ("regular", *LAMBDAS)[i // len(SEEDS)]
        training, _, test = table.split(seed)
        x, generator = table.inputs[test[:rows]].double(), torch.Generator().manual_seed(seed)
        drawn = [torch.randperm(len(widths), generator=generator) for _ in range(orders)]
        halves = [shapley_values(model, x, widths, half).numpy() for half in (drawn[::2], drawn[1::2])]
        exact = (halves[0] + halves[1]) / 2
        how = {"method": "integrated-gradients", "n_steps": 64} if weight == "regular" else {"method": "x-gradient"}
        found = tables.explain(model, table.frame.iloc[test[:rows].tolist()], table.schema, 0, **how)
        about = {
            "λ": weight,
            "seed": seed,
            "validation": quality(table, model, seed, 1),
            "test": quality(table, model, seed, 2),
            "reference": r2((halves[0] - halves[1]) / 2 + exact, exact),
        }
        bound = found.shapley_error.to_numpy() * len(widths) ** 0.5
        measured.append({**about, **compared(found.attributions.to_numpy(), exact, bound)})
        if weight == "regular":
            background = table.inputs[training].double()
            absent = background[torch.randint(len(background), (orders,), generator=generator)]
            method = ExpectedGradients(model, absent, n_samples=4 * orders, generator=generator)
            values = table.schema.sum_categories(method.attribute(x, 0).detach()).numpy()
            exact = shapley_values(model, x, widths, drawn, absent).numpy()
            measured.append({**about, "λ": "regular, EG", **compared(values, exact)})
        if i == len(SEEDS) * 2:  # the first seed of the second λ
            measured += [{"λ": each, **cost} for each, cost in shaps(model, x, widths, exact)]
    return pd.DataFrame(measured).assign(table=name, rows=len(table.inputs), columns=len(widths))


def compared(found: Any, exact: Any, bound: Any = None) -> dict[str, float]:
    """Agreement with Shapley values; an error is a row's ‖a − φ‖, relative to ‖φ‖ where it is shown."""
    error, size = np.linalg.norm(found - exact, axis=1), np.linalg.norm(exact, axis=1)
    cosine = (found * exact).sum(1) / (np.linalg.norm(found, axis=1) * size)
    agreement = {
        "r2": r2(found, exact),
        "cosine": cosine.mean(),
        "median": np.median(error / size),
        "worst": (error / size).max(),
    }
    if bound is None:
        return agreement
    return {
        **agreement,
        "bound": np.median(bound / error),
        "held": (bound >= error).mean(),
        "rank": spearmanr(bound, error).statistic,
    }


def shaps(model: nn.Module, x: Tensor, widths: Tensor, exact: Any) -> list[tuple[str, dict[str, float]]]:
    """What shap's explainers reach by default on five rows, in calls of the model and in time of X-Gradient."""
    n, method = len(widths), XGradient(model)
    calls, costs, one = 0, [], np.ones((1, len(widths)))

    def explain(name: str, row: Tensor) -> Any:
        def score(there: Any) -> Any:
            nonlocal calls
            calls += len(there)
            with torch.no_grad():
                return model(row * torch.from_numpy(there).repeat_interleave(widths, 1))[:, 0].numpy()

        return getattr(shap, name)(score, np.zeros((1, n)))(one, silent=True).values[0]

    def seconds(work: Callable[[], Any], times: int) -> float:
        work()  # what is compiled once is not counted
        began = time.process_time()
        for _ in range(times):
            work()
        return (time.process_time() - began) / times

    ours = seconds(lambda: method.attribute(x, 0), 20) / len(x)
    for name in ("PermutationExplainer", "KernelExplainer"):
        slower = seconds(lambda name=name: explain(name, x[0]), 3) / ours
        calls = 0
        values = np.stack([explain(name, row) for row in x[:5]])
        costs.append((name, {"r2": r2(values, exact[:5]), "calls": calls / len(values), "time": slower}))
    return costs


@torch.no_grad()
def shapley_values(
    model: nn.Module, x: Tensor, widths: Tensor, orders: Sequence[Tensor], absent: Tensor | None = None
) -> Tensor:
    """What each column adds to the score when it comes: mean over orders and their reverse [rows, columns].

    Columns that have not come are zero, or those of `absent` [orders, inputs]; `widths` are inputs per column.
    """
    n, values = len(widths), torch.zeros(len(x), len(widths), dtype=x.dtype)
    for i, order in enumerate(orders):
        base = torch.zeros_like(x[0]) if absent is None else absent[i]
        for each in (order, order.flip(0)):
            present = torch.arange(n + 1)[:, None] > each.argsort()  # [how many came, column]
            inputs = torch.where(present.repeat_interleave(widths, 1), x[:, None], base)
            values[:, each] += model(inputs.flatten(0, 1)).view(len(x), n + 1).diff(dim=1)
    return values / (2 * len(orders))


@torch.no_grad()
def quality(table: Table, model: nn.Module, seed: int, part: int) -> float:
    """ROC-AUC or R² on the rows of a part of the split."""
    rows = table.split(seed)[part]
    scores, y = model(table.inputs[rows].double())[:, 0] + table.offset(seed), table.targets[rows].double()
    return float(roc_auc(scores, y)) if table.schema.classes else r2(scores, y)


def r2(found: Any, wanted: Any) -> float:
    """1 − Σ(found − wanted)²/Σ(wanted − mean)², over everything.

    >>> r2(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    0.5
    """
    return float(1 - ((found - wanted) ** 2).sum() / ((wanted - wanted.mean()) ** 2).sum())
