"""A page in headless Chromium, driven over its pipe: evaluate, press, drag, take a picture."""

import base64
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH")
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
QUIET += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


class Page:
    """A page; `console` is what it wrote and threw."""

    def __init__(self, write: int, read: int):
        self._write, self._read, self._numbers = write, read, itertools.count(1)
        self._left, self._session, self.console = b"", None, list[str]()

    def call(self, method: str, **params: Any) -> Any:
        """Send a command of the DevTools protocol; return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def _next(self) -> Any:
        while b"\0" not in self._left:
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser is gone"
            self._left += piece
        line, self._left = self._left.split(b"\0", 1)
        answer = json.loads(line)
        name, params = answer.get("method"), answer.get("params", {})
        if name == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(x.get("value")) for x in params["args"]))
        elif name == "Runtime.exceptionThrown":
            self.console.append(json.dumps(params["exceptionDetails"]))
        elif name == "Log.entryAdded":
            self.console.append(params["entry"]["text"])
        return answer

    def open(self, path: Path) -> None:
        """Open a file and wait until its scripts have run."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=path.resolve().as_uri())
        while (
            self.js("document.readyState") != "complete" or self.js("location.protocol") != "file:"
        ):
            pass

    def js(self, source: str) -> Any:
        """Return the value of an expression, awaited."""
        done = self.call(
            "Runtime.evaluate", expression=source, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Press, move (with the button down) or release the mouse."""
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, button="left",
                  buttons=0 if kind == "Released" else 1, clickCount=1)  # fmt: skip

    def drag(self, start: tuple[float, float], end: tuple[float, float], steps: int = 8) -> None:
        """Drag from one place of the window to another."""
        self.mouse("Pressed", *start)
        for k in range(1, steps + 1):
            share = k / steps
            where = [a + (b - a) * share for a, b in zip(start, end, strict=True)]
            self.mouse("Moved", *where)
        self.mouse("Released", *end)

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the window, and whether the system is dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def picture(self, path: Path) -> None:
        """Write the whole page as PNG."""
        self.settle()
        made = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def opened(path: Path, width: int = 1400, height: int = 1000) -> Iterator[Page]:
    """Open a file in a browser of its own."""
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()

    pipes = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'  # where Chromium reads and writes
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [str(BROWSER), *QUIET, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        with subprocess.Popen(
            ["bash", "-c", pipes, *command, f"--window-size={width},{height}", "about:blank"],
            pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            os.close(to_browser)
            os.close(from_browser)
            page = Page(from_us, to_us)
            try:
                page.open(path)
                page.size(width, height)
                yield page
            finally:
                page._session = None
                with suppress(AssertionError, OSError):
                    page.call("Browser.close")
                process.kill()
                os.close(from_us)
                os.close(to_us)
