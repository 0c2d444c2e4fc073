"""What a Python function reads besides its arguments: nothing else can make two calls of it differ."""

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

_READ = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}


def own_values(function: FunctionType) -> dict[str, Any]:
    """Defaults and closure of a function, by name.

    >>> def scaled(factor):
    ...     return lambda x, shift=2: factor * x + shift
    >>> own_values(scaled(3))
    {'shift': 2, 'factor': 3}
    """
    code, defaults = function.__code__, function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    found = dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    found |= function.__kwdefaults__ or {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
    return found


def global_values(function: FunctionType) -> dict[str, Any]:
    """The globals that a function, or one written inside it, may read, by name.

    >>> list(global_values(_names))
    ['CodeType', '_READ', '_names', 'dis']
    """
    scope = function.__globals__
    return {name: scope[name] for name in sorted(set(_names(function.__code__))) if name in scope}


def _names(code: CodeType) -> Iterator[str]:
    # Not all of `co_names`: attributes may have the name of a global that is never read.
    yield from (str(one.argval) for one in dis.get_instructions(code) if one.opname in _READ)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
