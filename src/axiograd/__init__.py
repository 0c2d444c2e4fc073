"""Exact Integrated Gradients in one backward pass, differentiable, so that you can train with them."""

from typing import TYPE_CHECKING

from axiograd._version import __version__ as __version__

if TYPE_CHECKING:
    from axiograd._surface import *  # noqa: F403  # the names below, for type checkers
else:

    def __getattr__(name: str) -> object:
        """Load the public names (see `_surface`) at the first use of one; `axiograd --help` needs none of them."""
        from importlib import import_module

        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        surface = import_module("axiograd._surface")
        public = {key: value for key, value in vars(surface).items() if not key.startswith("_")}
        globals().update(public)
        if name == "__all__":
            return sorted(public)
        if name not in public:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return public[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
