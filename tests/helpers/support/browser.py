"""Fixtures for tests in a browser: the system's Chromium, driven by Playwright; tests skip where either is missing.

`chromium` is the browser, `page` a fresh tab in it, `complaints` what its pages logged, threw or asked other hosts for.
"""

import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

#: Without a sandbox, for containers; the camera shows a test picture.
FLAGS = ("--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


# For a module, not for the session: while Playwright runs, its event loop is the thread's.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine (Debian: apt install chromium)")
    with playwright.sync_playwright() as driver, driver.chromium.launch(executable_path=path, args=FLAGS) as browser:
        yield browser


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Must be empty in the end: a test that expects one takes it out."""
    found: list[str] = []
    yield found
    assert not found, found


@pytest.fixture
def page(chromium: Any, complaints: list[str]) -> Iterator[Any]:
    with chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as context:
        tab = context.new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.on("request", lambda request: complaints.extend(_elsewhere(request.url)))
        yield tab


def _elsewhere(url: str) -> list[str]:
    return [] if urlsplit(url).hostname in {None, "127.0.0.1", "localhost"} else [f"request: {url}"]
