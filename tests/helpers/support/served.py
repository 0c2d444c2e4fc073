"""A folder behind a plain static server, and the npm package that pages with a model in them need."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from axiograd.errors import DataMissingError
from axiograd.export.page import runtime_package


class _Plain(SimpleHTTPRequestHandler):
    #: As a server would that knows nothing of these.
    extensions_map: ClassVar[dict[str, str]] = {
        ".html": "text/html",
        ".css": "text/css",
        ".js": "text/javascript",
        "": "application/octet-stream",
    }

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder while it is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Plain, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def onnxruntime_web() -> Path:
    """The package, fetched once for all; a skip with the reason where it cannot be had."""
    try:
        return runtime_package(download=True)
    except DataMissingError as error:
        pytest.skip(str(error))
