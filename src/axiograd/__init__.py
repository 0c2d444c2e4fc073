"""Exact Integrated Gradients in one backward pass, differentiable, so that you can train with them."""

from typing import TYPE_CHECKING

from axiograd._version import __version__ as __version__

if TYPE_CHECKING:
    from axiograd._surface import *  # noqa: F403  # the names below, for type checkers
else:
    from functools import cache

    @cache
    def _public() -> dict[str, str]:
        """The public names, and the module that each one is imported from in `_surface`."""
        import ast
        from pathlib import Path

        surface = ast.parse(Path(__file__).with_name("_surface.py").read_text(encoding="utf-8"))
        imports = [node for node in surface.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: node.module for node in imports for alias in node.names}

    def __getattr__(name: str) -> object:
        """Import a public name, or a subpackage, at its first use: nobody waits for what is not used."""
        from importlib import import_module
        from importlib.util import find_spec

        if name == "__all__":
            return sorted(_public())
        module = _public().get(name, "axiograd")
        if module != "axiograd":
            value = getattr(import_module(module), name)
        elif not name.startswith("_") and find_spec(f"axiograd.{name}") is not None:
            value = import_module(f"axiograd.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_public()})
