"""Python of the user's own, by its name: `package.module:factory` or `path/to/file.py:factory`. Naming it runs it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from torch import nn

from axiograd._names import choose_from
from axiograd.errors import AxiogradError, ConfigurationError, DataMissingError

T = TypeVar("T")


def locate(name: str) -> Path | None:
    """The file that a name refers to, without importing anything; None for a package.

    >>> locate("net:")
    Traceback (most recent call last):
    axiograd.errors.ConfigurationError: 'net:' does not name a function: write package.module:factory or ...
    """
    source, _, attribute = name.rpartition(":")
    if not source or not attribute.isidentifier():
        raise ConfigurationError(f"{name!r} does not name a function: write package.module:factory or file.py:factory.")
    if source.endswith(".py"):
        path = Path(source)
        if not path.is_file():
            raise DataMissingError(f"there is no file {path}.")
        return path
    if not all(part.isidentifier() for part in source.split(".")):
        raise ConfigurationError(f"{name} cannot be imported: {source!r} is not the name of a module.")
    with _search(""):
        if importlib.util.find_spec(source.partition(".")[0]) is None:
            raise ConfigurationError(f"{name} cannot be imported: there is no module {source!r}.")
    return None


def module_of(name: str) -> ModuleType:
    """Import the module that a name refers to, which runs it."""
    path, source = locate(name), name.rpartition(":")[0]
    if path is None:
        with _search(""):
            return run(source, lambda: importlib.import_module(source))
    spec = importlib.util.spec_from_file_location(f"axiograd_spec_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} cannot be read as Python.")
    module, execute = importlib.util.module_from_spec(spec), spec.loader.exec_module
    sys.modules[spec.name] = module
    with _search(str(path.parent.resolve())):  # a file may import its neighbours, as a script does
        run(str(path), lambda: execute(module))
    return module


def member(module: ModuleType, name: str) -> Any:
    """The function, class or model of a module that a name ends in."""
    source, _, attribute = name.rpartition(":")
    found = getattr(module, attribute, None)
    if found is None:
        own = [one for one, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        meant = f": {choose_from(attribute, own[:20])}" if own else ""
        raise ConfigurationError(f"{source} has no {attribute!r}{meant}.")
    if not isinstance(found, nn.Module) and not callable(found):
        raise ConfigurationError(
            f"{name} is of type {type(found).__name__}: expected a model, or a function that builds one."
        )
    return found


def load(name: str) -> Any:
    """The function, class or model that a name refers to.

    >>> load("torch.nn:Linear")
    <class 'torch.nn.modules.linear.Linear'>
    """
    return member(module_of(name), name)


def run(what: str, code: Callable[[], T]) -> T:
    """Run a user's code; an exception becomes one sentence with the line it comes from."""
    try:
        return code()
    except AxiogradError:
        raise
    except (Exception, SystemExit) as error:
        file = what.rpartition(":")[0] if ":" in what else what
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == Path(file).name]
        line = f", line {frames[-1].lineno}" if frames and not isinstance(error, SyntaxError) else ""
        raise ConfigurationError(f"{what} raised {type(error).__name__}{line}: {error}") from error


def line_of(error: BaseException) -> str:
    """The user's own line that an error comes from, as "net.py:12"; "" where there is none."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(Path(f.filename).absolute())]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def _is_users(file: Path) -> bool:
    if not {"site-packages", "dist-packages"}.isdisjoint(file.parts):
        return False
    others = (sysconfig.get_paths()["stdlib"], Path(__file__).resolve().parent)
    return file.is_file() and not any(file.resolve().is_relative_to(Path(other).resolve()) for other in others)


@contextmanager
def _search(folder: str) -> Iterator[None]:
    """Modules of a folder can be imported too; "" is the current one."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
