"""Opens the page: from the command until Ctrl-C, from Python beside what runs."""

from __future__ import annotations

import socket
import threading
import webbrowser
from contextlib import ExitStack
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Self

from torch import nn

from axiograd._extras import optional
from axiograd.datasets import PIXELS, Preprocess, TensorData
from axiograd.datasets.pictures import Pictures
from axiograd.errors import ConfigurationError
from axiograd.studio.masks import import_masks
from axiograd.studio.network import Origin
from axiograd.studio.session import Session
from axiograd.studio.worker import Worker


class Opened:
    """A studio that is running: its address, its session, and `close()`.

    As a context manager it closes itself.
    """

    def __init__(
        self, pictures: Pictures, origin: Origin, folder: Path, *, masks: Path | None = None, port: int = 0
    ) -> None:
        uvicorn = optional("uvicorn", "studio", "the studio")
        server = optional("axiograd.studio.server", "studio", "the studio", package="starlette")
        with ExitStack() as stack:
            self.session = stack.enter_context(Session.opened(folder, pictures, origin.name))
            if masks is not None:
                import_masks(masks, pictures, self.session.marks, folder)
            try:
                # From here on a browser waits for the server instead of being refused.
                listening = stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError as error:
                raise ConfigurationError(f"port {port} cannot be used ({error.strerror}); choose another.") from error
            self.worker = Worker(self.session, origin)
            pages = server.Server(self.worker)
            self.address = f"http://127.0.0.1:{listening.getsockname()[1]}/{pages.token}/"
            config = uvicorn.Config(pages.app, log_level="error", timeout_graceful_shutdown=1, server_header=False)
            self._server = uvicorn.Server(config)
            self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
            self.worker.open()
            self._thread.start()
            self._stack = stack.pop_all()

    def wait(self) -> None:
        """Until Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def close(self) -> None:
        """Stop the server and the worker; everything is on the disk."""
        self.worker.close()
        self._server.should_exit = True
        self._thread.join(10)
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"axiograd studio at {self.address}"


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
    model takes. `masks` is a folder with masks to add to the session, one PNG per image.

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
        first = next((layer for layer in model.modules() if isinstance(layer, nn.Conv2d)), None)
        pictures = Pictures.of_folder(data, transform, grey=first is not None and first.in_channels == 1)
    copy = partial(deepcopy, deepcopy(model).cpu())
    origin = Origin(copy, copy, name=type(model).__name__)
    opened = Opened(pictures, origin, Path(out), masks=None if masks is None else Path(masks), port=port)
    if browser:
        webbrowser.open(opened.address)
    return opened
