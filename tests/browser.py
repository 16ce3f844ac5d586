"""A real browser that tests steer: one process for all of them, a page of its own for each, by the protocol of Chrome's
own developer tools."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from needs import lacking, needed

PROGRAMS = [
    *("chromium", "chromium-browser", "google-chrome", "chrome"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
]
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--remote-debugging-port=0", "--hide-scrollbars"),
]
PATIENCE = 300.0
"""Seconds: other work on the machine is no mistake of a page."""


class Navigated(Exception):
    """The page that was asked has given way to another."""


class Browser:
    """The process, and the line to it."""

    def __init__(self, folder: Path) -> None:
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            lacking("there is no Chromium or Chrome on this machine")
        command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port, path = self._address(folder / "DevToolsActivePort")
        connect = needed("websockets.sync.client").connect
        self._open = ExitStack()
        self._line = self._open.enter_context(
            connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None, ping_interval=None)
        )
        self._numbers = count(1)
        self.events: list[dict[str, Any]] = []

    @staticmethod
    def _address(file: Path) -> list[str]:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if file.exists() and len(found := file.read_text().split()) == 2:
                return found
            time.sleep(0.02)
        raise TimeoutError("the browser did not start")

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """What it answers; what it tells besides is kept in `events`."""
        number = next(self._numbers)
        about = {} if session is None else {"sessionId": session}
        self._line.send(json.dumps({"id": number, "method": method, "params": params, **about}))
        while True:
            found = json.loads(self._line.recv(timeout=PATIENCE))
            if found.get("id") == number:
                if any(word in found.get("error", {}).get("message", "") for word in ("navigated", "context")):
                    raise Navigated
                assert "error" not in found, found["error"]
                return found["result"]
            self.events.append(found)

    def close(self) -> None:
        self._open.close()
        self._process.terminate()
        self._process.wait(PATIENCE)

    @contextmanager
    def page(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Page]:
        """A page in a window of this size."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            yield Page(self, session).open(address, width=width, height=height, dark=dark)
        finally:
            self.send("Target.closeTarget", targetId=target)


class Page:
    """What is open in one window."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session, self._begun = browser, session, len(browser.events)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **params)

    def open(self, address: str, *, width: int, height: int, dark: bool) -> Page:
        for part in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{part}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")
        return self

    def run(self, code: str) -> Any:
        """The value of an expression in the page, awaited."""
        found = self.send("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until this expression holds."""
        until = time.monotonic() + PATIENCE
        while not self._holds(condition):
            if time.monotonic() > until:
                raise TimeoutError(f"{condition}; {self.complaints()}")
            time.sleep(0.02)

    def _holds(self, condition: str) -> bool:
        """Whether it does; between two pages nothing holds: there is no document yet, or none any more."""
        with suppress(Navigated):
            return self.run(f"document.documentElement !== null && Boolean({condition})")
        return False

    def key(self, name: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        same = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", **same, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **same)

    def hover(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path, *, whole: bool = True) -> Path:
        """A screenshot, of all that can be scrolled to."""
        found = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=False)["data"])

    def _told(self, method: str) -> list[dict[str, Any]]:
        own = [event for event in self._browser.events[self._begun :] if event.get("sessionId") == self._session]
        return [event["params"] for event in own if event["method"] == method]

    def complaints(self) -> list[Any]:
        """Exceptions, and what was written into the console as an error or a warning."""
        called = [told for told in self._told("Runtime.consoleAPICalled") if told["type"] in ("error", "warning")]
        logged = [told["entry"] for told in self._told("Log.entryAdded")]
        return [*self._told("Runtime.exceptionThrown"), *called, *logged]

    def requests(self) -> list[str]:
        """All that was asked for, the page itself first; what it has inside counts nothing."""
        asked = [told["request"]["url"] for told in self._told("Network.requestWillBeSent")]
        return [url for url in asked if not url.startswith(("data:", "blob:"))]
