"""Callbacks for other training loops: what a network relies on, logged at every validation."""

from typing import TYPE_CHECKING, Any

from axiograd.callbacks.watching import AttributionWatch as AttributionWatch, Look as Look

if TYPE_CHECKING:
    from axiograd.callbacks.hugging_face import WatchTrainer as WatchTrainer
    from axiograd.callbacks.lightning import WatchLightning as WatchLightning

_OWN_PACKAGES = {"WatchLightning": "lightning", "WatchTrainer": "hugging_face"}


def __getattr__(name: str) -> Any:
    """Subclasses of Lightning's and transformers' callbacks, imported on first use."""
    if name not in _OWN_PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"axiograd.callbacks.{_OWN_PACKAGES[name]}"), name)
