"""Opens the page: from the command until Ctrl-C, from Python beside what runs."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch import nn

from axiograd._extras import optional
from axiograd.datasets import PIXELS, Preprocess, TensorData
from axiograd.datasets.pictures import Pictures
from axiograd.errors import ConfigurationError
from axiograd.studio.chief import Chief
from axiograd.studio.mask_files import import_masks
from axiograd.studio.network import Origin
from axiograd.studio.session import Session
from axiograd.studio.survey import Between


class Opened:
    """A studio that is running: its address, its session, and `close()`.

    As a context manager it closes itself.
    """

    def __init__(self, session: Session, origin: Origin, stack: ExitStack, *, port: int = 0, method: str) -> None:
        uvicorn = optional("uvicorn", "studio", "the studio")
        server = optional("axiograd.studio.server", "studio", "the studio", package="starlette")
        self.session = session
        self.chief = Chief(session, origin, method=method)
        self.chief.open()
        stack.callback(self.chief.close)
        pages = server.Server(self.chief)
        listening = _listen(port)
        self.port = int(listening.getsockname()[1])
        self.address = f"http://127.0.0.1:{self.port}/{pages.token}/"
        config = uvicorn.Config(pages.app, log_level="error", timeout_graceful_shutdown=1, server_header=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()
        self._stack = stack
        stack.callback(self._end)

    def _end(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    def wait(self) -> None:
        """Until Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def close(self) -> None:
        """Stop the server and the worker; everything is on the disk."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"axiograd studio at {self.address}"


def _listen(port: int) -> socket.socket:
    """A socket on this machine alone; port 0 is any that is free."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        # From here on a browser waits for the server instead of being refused.
        listening.listen()
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"port {port} cannot be used ({error.strerror}); choose another one.") from error
    return listening


@contextmanager
def opened(
    pictures: Pictures,
    origin: Origin,
    folder: Path,
    *,
    masks: Path | None = None,
    port: int = 0,
    method: str = "spawn",
) -> Iterator[Opened]:
    """A running studio on a session's folder, until the block ends."""
    with open_session(pictures, origin, folder, masks=masks, port=port, method=method) as found:
        yield found


def open_session(
    pictures: Pictures, origin: Origin, folder: Path, *, masks: Path | None, port: int, method: str
) -> Opened:
    """The same without a block: whoever calls it closes it."""
    stack = ExitStack()
    try:
        session = stack.enter_context(Session.opened(folder, pictures, origin.name))
        if masks is not None and not session.marks.actions:
            import_masks(masks, pictures, session.marks, folder)
        return Opened(session, origin, stack, port=port, method=method)
    except BaseException:
        stack.close()
        raise


def open_studio(
    model: nn.Module,
    data: TensorData | Pictures | str | Path,
    *,
    out: str | Path = "axiograd-studio",
    transform: Preprocess = PIXELS,
    masks: str | Path | None = None,
    port: int = 0,
    browser: bool = True,
) -> Opened:
    """Open the studio on a model and images, beside what runs; `close()` ends it, the session stays in `out`.

    `data` are pixels in [0, 1] with classes, or a folder with one folder per class; `transform` makes of them what the
    model takes.

    >>> import tempfile, torch
    >>> from torch import nn
    >>> from axiograd.datasets import TensorData
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2, bias=False))
    >>> data = TensorData(torch.rand(40, 1, 8, 8), torch.arange(40) % 2, name="noise")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_studio(model, data, out=folder, browser=False) as studio:
    ...         studio.address
    'http://127.0.0.1:...'
    """
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"the studio takes an nn.Module, not a {type(model).__name__}.")
    if isinstance(data, Pictures):
        pictures = data
    elif isinstance(data, TensorData):
        pictures = Pictures.of_tensors(data, transform)
    else:
        pictures = Pictures.of_folder(data, transform, grey=_is_grey(model))
    kept = deepcopy(model).cpu().eval()
    origin = Origin(partial(_given, kept), partial(deepcopy, kept), name=type(model).__name__)
    # A class that was written in a notebook cannot be imported by another process, but a fork has it.
    forks = "fork" if "fork" in torch.multiprocessing.get_all_start_methods() else "spawn"
    inside = type(model).__module__ == "__main__" or any(type(m).__module__ == "__main__" for m in model.modules())
    found = open_session(
        pictures,
        origin,
        Path(out),
        masks=None if masks is None else Path(masks),
        port=port,
        method=forks if inside else "spawn",
    )
    if browser:
        webbrowser.open(found.address)
    return found


def _given(model: nn.Module, between: Between) -> nn.Module:  # noqa: ARG001  # it is made already
    return model


def _is_grey(model: nn.Module) -> bool:
    first = next((layer for layer in model.modules() if isinstance(layer, nn.Conv2d)), None)
    return first is not None and first.in_channels == 1
