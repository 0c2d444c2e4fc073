"""The page on which a person sees what a network looks at, says what is wrong with it, and fixes it.

`axiograd.studio(model, data)` opens it, and so does the command `axiograd studio`.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package with the name of what it does: `axiograd.studio(...)` is `axiograd.studio.opening.open_studio(...)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from axiograd.studio.opening import open_studio

        return open_studio(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
