"""A browser without a window, spoken to over two pipes (Chrome DevTools Protocol, NUL-separated JSON)."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Escape": 27, "Tab": 9, "Enter": 13, " ": 32}


class Browser:
    """One tab; everything that the page logs or throws is in `complaints`."""

    def __init__(self, profile: Path, *flags: str) -> None:
        reading, self._send = os.pipe()
        self._receive, writing = os.pipe()
        # Chromium reads from 3 and writes to 4; our ends must not be in the way.
        commands, answers = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (reading, writing))
        launch = f'exec "$0" "$@" 3</dev/fd/{commands} 4>/dev/fd/{answers}'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", launch, str(CHROMIUM), *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (reading, writing, commands, answers):
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self._events: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        #: Where a page may send requests to, besides its own file.
        self.allowed: tuple[str, ...] = ("file:", "data:", "about:")
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._session = ""
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(10)
        os.close(self._send)
        os.close(self._receive)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(time.monotonic() + 30)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("chromium does not answer")
            chunk = os.read(self._receive, 1 << 20)
            if not chunk:
                raise OSError("chromium has gone")
            self._buffer += chunk
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(parameters["args"]))
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"dialog: {parameters['message']}")
            case "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith(self.allowed):
                    self.complaints.append(f"request: {url}")

    def resize(self, width: int, height: int, *, scale: float = 1, dark: bool = False, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setEmulatedMedia", features=[scheme, {"name": "prefers-reduced-motion", "value": "reduce"}]
        )

    def visit(self, address: str) -> None:
        """A page of a server, which may ask that server and nobody else."""
        self.call("Page.navigate", url="about:blank")
        self.complaints.clear()
        self.allowed = ("file:", "data:", "about:", "blob:", address)
        self.call("Page.navigate", url=address)
        self.wait("document.documentElement?.dataset.ready === 'yes'", 30)

    def drag(self, selector: str, *places: tuple[float, float]) -> None:
        """Press at the first of some places, each a share of an element's width and height, and let go at the last."""
        left, top, width, height = self.evaluate(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.left, b.top, b.width, b.height]; })()"
        )
        points = [(left + across * width, top + down * height) for across, down in places]
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=points[0][0], y=points[0][1])
        kinds = ["mousePressed", *["mouseMoved"] * (len(points) - 1), "mouseReleased"]
        for kind, (x, y) in zip(kinds, [*points, points[-1]], strict=True):
            button = {"button": "left", "buttons": 0 if kind == "mouseReleased" else 1, "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def open(self, path: Path, fragment: str = "") -> None:
        # Through an empty page, because a change of the fragment alone would not load anything.
        self.call("Page.navigate", url="about:blank")
        self.complaints.clear()
        self.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {condition}; complaints: {self.complaints}")
            time.sleep(0.02)

    def key(self, key: str) -> None:
        code = KEYS.get(key, ord(key[0].upper()))
        printed = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **printed)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        for character in text:
            self.key(character)

    def point(self, selector: str, across: float = 0.5, down: float = 0.5, *, click: bool = False) -> None:
        """Move the mouse to a share of an element's width and height."""
        left, top, width, height = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'});"
            " const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
        )
        x, y = left + across * width, top + down * height
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(image["data"]))
