"""Names that lead to Python of the user's own: `package.module:factory` or `path/to/file.py:factory`.

Naming a function runs it, so a name is code. It may lead only to what the user wrote: the standard library, which can
start a shell, and installed packages are refused before anything of theirs is imported, and so is a function that the
user's module has merely imported from there. Networks of `torch.nn`, `torchvision.models` and our own, and our data
sets, are the exception.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from torch import nn

from axiograd._names import choose_from
from axiograd.errors import AxiogradError, ConfigurationError, DataMissingError

T = TypeVar("T")

#: Installed packages whose classes are networks, and those whose functions make networks or data sets.
CLASSES = ("torch.nn", "torchvision.models", "axiograd.models")
FUNCTIONS = ("torchvision.models", "axiograd.datasets")
_RULE = "a name may lead to Python of your own (a file, or a package that is not installed)"


def locate(name: str) -> Path | None:
    """The file that a name leads to, without importing anything; None for the packages that are known.

    >>> locate("os:system")
    Traceback (most recent call last):
    axiograd.errors.ConfigurationError: os:system is not yours: ...
    """
    source, _, attribute = name.rpartition(":")
    if not source or not attribute.isidentifier():
        raise ConfigurationError(f"{name!r} does not name a function: write package.module:factory or file.py:factory.")
    if source.endswith(".py"):
        path = Path(source)
        if not path.is_file():
            raise DataMissingError(f"there is no file {path}.")
        return path
    if source in {*CLASSES, *FUNCTIONS}:
        return None
    spec = _find(source) if source.partition(".")[0] not in sys.stdlib_module_names else None
    if spec is None and source.partition(".")[0] not in sys.stdlib_module_names:
        raise ConfigurationError(f"{name} cannot be imported: there is no module {source!r}.")
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    files = [Path(place) for place in places if place and place not in {"built-in", "frozen"}]
    if not files or not all(_is_users(file) for file in files):
        raise ConfigurationError(
            f"{name} is not yours: {_RULE}, or to {', '.join(CLASSES)}. Write a function of your own that calls it."
        )
    return files[0]


def load(name: str) -> Any:
    """The function, class or model that a name leads to; importing it runs its module."""
    source, _, attribute = name.rpartition(":")
    path = locate(name)
    module = _from_file(path) if path is not None and source.endswith(".py") else _from_package(source)
    found = getattr(module, attribute, None)
    if found is None:
        own = [one for one, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        meant = f": {choose_from(attribute, own[:20])}" if own else ""
        raise ConfigurationError(f"{source} has no {attribute!r}{meant}.")
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise ConfigurationError(
            f"{name} is of type {type(found).__name__}: expected a model, or a function that makes what is asked for."
        )
    written = _written(found)
    home = sys.modules.get(getattr(written, "__module__", None) or type(written).__module__)
    known = CLASSES if inspect.isclass(written) and issubclass(written, nn.Module) else FUNCTIONS
    is_known = home is not None and home.__name__.startswith(tuple(f"{package}." for package in known))
    if home is None or not (is_known or _is_users(Path(getattr(home, "__file__", None) or "/"))):
        where = "nowhere" if home is None else home.__name__
        raise ConfigurationError(
            f"{name} is not yours, it comes from {where}: {_RULE}. Write a function of your own that calls it."
        )
    return found


def run(what: str, code: Callable[[], T]) -> T:
    """Run a user's code; whatever it raises is said in a sentence, with the line that it comes from."""
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


def _written(found: Any) -> Any:
    """The function or class behind partials and decorators."""
    while isinstance(found, functools.partial):
        found = found.func
    return inspect.unwrap(found) if inspect.isfunction(found) else found


def _find(source: str) -> ModuleSpec | None:
    """The spec of a module by its parents' search paths: `importlib.util.find_spec` would import the parents."""
    with _here():
        top, *rest = source.split(".")
        try:
            # The path first: finders that packages add may do more than look (setuptools' replaces distutils).
            spec = PathFinder.find_spec(top) or importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return None
        full = top
        for part in rest:
            full = f"{full}.{part}"
            if spec is None or spec.submodule_search_locations is None:
                return None
            spec = PathFinder.find_spec(full, list(spec.submodule_search_locations))
        return spec


@functools.cache
def _installed() -> tuple[Path, ...]:
    paths = [sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({Path(path).resolve() for path in (*paths, *site.getsitepackages(), site.getusersitepackages())})


def _is_users(file: Path) -> bool:
    resolved = file.resolve()
    parts = {"site-packages", "dist-packages"}.isdisjoint(resolved.parts)
    ours = Path(__file__).resolve().parent
    return parts and not any(resolved.is_relative_to(path) for path in (*_installed(), ours)) and file != Path("/")


def _from_file(path: Path) -> ModuleType:
    name = f"axiograd_spec_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} cannot be read as Python.")
    module, execute = importlib.util.module_from_spec(spec), spec.loader.exec_module
    sys.modules[name] = module
    with _here(str(path.parent.resolve())):  # a file may import its neighbours, as a script does
        run(str(path), lambda: execute(module))
    return module


def _from_package(name: str) -> ModuleType:
    with _here():
        try:
            return run(name, lambda: importlib.import_module(name))
        except ConfigurationError as error:
            if isinstance(error.__cause__, ModuleNotFoundError):
                raise ConfigurationError(f"{name} cannot be imported: {error.__cause__}.") from error
            raise


@contextmanager
def _here(folder: str = "") -> Iterator[None]:
    """The current folder's modules can be named too."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
