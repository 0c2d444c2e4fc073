"""Tables of anything: rows as mappings or sequences, cells that sort by their value."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from axiograd.errors import InputError
from axiograd.report._escape import text


def as_rows(rows: Any, columns: Sequence[str] | None = None) -> tuple[list[str], list[list[Any]]]:
    """Column names and rows of a list of mappings, a list of sequences, or {row name: mapping}.

    >>> as_rows([{"a": 1}, {"a": 2, "b": 3}])
    (['a', 'b'], [[1, None], [2, 3]])
    """
    if isinstance(rows, Mapping):
        named = [
            ({"": key, **value} if isinstance(value, Mapping) else {"": key, " ": value}) for key, value in rows.items()
        ]
        return as_rows(named, columns)
    listed = list(rows)
    if all(isinstance(r, Mapping) for r in listed):
        names = list(columns) if columns else list(dict.fromkeys(str(k) for r in listed for k in r))
        return names, [[r.get(n) for n in names] for r in listed]
    sequences = [list(r) for r in listed]
    if columns is None or any(len(r) != len(columns) for r in sequences):
        raise InputError(f"Rows of {[len(r) for r in sequences]} cells need columns=[…] with as many names.")
    return list(columns), sequences


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, label: str) -> str:
    """A table that scrolls by itself where it is too wide; its headers sort."""
    numeric = [any(_is_number(r[c]) for r in rows) for c in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_class("number" if n else "")} data-sortable>{text(c)}</th>'
        for c, n in zip(columns, numeric, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(_cell(v, c, n) for v, c, n in zip(r, columns, numeric, strict=True)) + "</tr>" for r in rows
    )
    return (
        f'<div class="table" role="region" tabindex="0" aria-label="{text(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def show(value: Any) -> str:
    """A cell as words: four significant digits, yes and no with a sign.

    >>> show(0.123456), show(True), show(None), show("KPM"), show(1234567)
    ('0.1235', '✓ yes', '–', 'KPM', '1,234,567')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "✓ yes" if value else "✗ no"
    if isinstance(value, int):
        return f"{value:,}"
    if _is_number(value):
        number = float(value)
        return f"{number:.4g}".replace("e-0", "e-").replace("-", "−") if math.isfinite(number) else str(number)
    return str(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return not isinstance(value, bool | str) and hasattr(value, "__float__")


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _cell(value: Any, column: str, numeric: bool) -> str:
    kind = {True: "yes", False: "no"}[value] if isinstance(value, bool) else "number" if numeric else ""
    sort = f' data-value="{float(value)!r}"' if _is_number(value) else ""
    return f'<td data-column="{text(column)}"{_class(kind)}{sort}>{text(show(value))}</td>'
