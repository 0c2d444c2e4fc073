"""Two described runs side by side: in what they differ, and what could not be described."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from axiograd.errors import StorageError

#: What begins with this could not be described in full: a change of it may go unnoticed.
UNNAMED = "unnamed: "
#: Differences that a message lists.
_LISTED = 12


def plain(described: Any) -> Any:
    """As JSON gives it back, so that descriptions compare equal before and after a file."""
    return json.loads(json.dumps(described))


def unnamed(described: Any) -> list[str]:
    """Where something could not be described in full, so that a change of it may go unnoticed.

    >>> from axiograd.runs.identity import describe
    >>> unnamed({"loss": describe(lambda x: x)})
    ['loss (a lambda)']
    """
    found = (
        (name.removesuffix(".name"), value.removeprefix(UNNAMED))
        for name, value in _flat(described)
        if isinstance(value, str) and value.startswith(UNNAMED)
    )
    return [f"{name} ({what})" for name, what in found]


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Every setting in which two described runs differ, with both values.

    >>> differences({"method": {"n_steps": 8}}, {"method": {"n_steps": 16}})
    ['method.n_steps (there: 8, here: 16)']
    """
    there, here = dict(_flat(found)), dict(_flat(expected))
    nothing = "nothing"
    return [
        f"{name} (there: {there.get(name, nothing)}, here: {here.get(name, nothing)})"
        for name in {**there, **here}
        if there.get(name, nothing) != here.get(name, nothing)
    ]


def refuse_other(folder: Path, found: Mapping[str, Any], expected: Mapping[str, Any], advice: str) -> None:
    """Raise unless both descriptions are of one run; the message lists what changed."""
    if changed := differences(found, expected):
        more = f"; and {len(changed) - _LISTED} more" if len(changed) > _LISTED else ""
        raise StorageError(
            f"{folder} belongs to another run; different are {'; '.join(changed[:_LISTED])}{more}. {advice}"
        )


def _flat(described: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(described, Mapping):
        for key, value in described.items():
            yield from _flat(value, f"{name}.{key}" if name and key else name or str(key))
    elif isinstance(described, list) and any(isinstance(one, Mapping | list) for one in described):
        for place, value in enumerate(described):
            yield from _flat(value, f"{name}[{place}]")
    else:
        yield name, described
