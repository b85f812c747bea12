"""A page in a real headless Chromium, driven over the browser's debugging pipe: no package, no open port.

`open_browser(command, profile)` starts it; `Browser.open(page)` loads a file, or an address of this machine. A page evaluates
expressions, takes mouse and keys as a person's would arrive, and remembers what it asked the network for and what its console
said. Messages are JSON ended by NUL, to the browser on descriptor 3 and from it on 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
         "--remote-debugging-pipe"]  # fmt: skip
PATIENCE_S = 60.0
READY = "document.documentElement?.dataset.ready === 'yes'"
"""What pages of ours say when they are drawn."""


class NavigatedError(AssertionError):
    """The page went elsewhere while it was asked."""


class Browser:
    """The process and its pipe."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._waiting = b""
        self._number = 0
        self.pages: dict[str, Page] = {}

    def send(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events that come in between go to their pages."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._keep(answer)
        if "error" in answer:
            went = any(word in answer["error"]["message"] for word in ("navigated", "context"))
            raise (NavigatedError if went else AssertionError)(f"{method}: {answer['error']}")
        found: dict[str, Any] = answer["result"]
        return found

    def _keep(self, event: dict[str, Any]) -> None:
        if event.get("sessionId") in self.pages:
            self.pages[event["sessionId"]].note(event)

    def _read(self) -> dict[str, Any]:
        deadline_s = time.monotonic() + PATIENCE_S
        while b"\0" not in self._waiting:
            readable, _, _ = select.select([self._from], [], [], max(0.0, deadline_s - time.monotonic()))
            assert readable, "the browser does not answer"
            received = os.read(self._from, 1 << 20)
            assert received, "the browser has ended"
            self._waiting += received
        message, _, self._waiting = self._waiting.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(
        self, file: Path | str, *, view: str = "", width: int = 1200, height: int = 900, dark: bool = False, ready: str = READY
    ) -> Page:
        """A new page that has loaded `file`, or the address, and drawn it: `ready` then holds."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        page.paint(dark=dark)
        page.visit((file if isinstance(file, str) else file.as_uri()) + (f"#{view}" if view else ""), ready=ready)
        return page


class Page:
    """One loaded page. `asked` holds the addresses it wanted, its own file left out; `said` what its console showed."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.asked: list[str] = []
        self.said: list[str] = []

    def note(self, event: dict[str, Any]) -> None:
        """Remember what must not go unnoticed."""
        parameters = event["params"]
        if event["method"] == "Network.requestWillBeSent" and parameters.get("type") != "Document":
            self.asked.append(parameters["request"]["url"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.said.append(json.dumps(parameters["exceptionDetails"]))
        elif event["method"] in {"Runtime.consoleAPICalled", "Log.entryAdded"}:
            self.said.append(json.dumps(parameters))

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, session=self._session, **parameters)

    def resize(self, width: int, height: int = 900) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.settle()

    def paint(self, *, dark: bool) -> None:
        """Draw it as on a machine that asks for light or for dark pages."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.settle()

    def visit(self, address: str, *, ready: str = READY) -> None:
        """Go to an address, and wait until it is loaded and drawn."""
        self.send("Page.navigate", url=address)
        self.until(ready)
        self.settle()

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression holds, here or on the page that this one goes to."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not self._holds(expression):
            assert time.monotonic() < deadline_s, f"never true: {expression}; {self.said}"
            time.sleep(0.02)

    def _holds(self, expression: str) -> bool:
        with suppress(NavigatedError):
            return bool(self.ask(expression))
        return False

    def close(self) -> None:
        self.send("Page.close")

    def settle(self) -> None:
        """Wait until what was asked for is on screen."""
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element that is scrolled into sight."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{find}.scrollIntoView({{block: 'center'}})")
        left, top, width, height = self.ask(f"(r => [r.left, r.top, r.width, r.height])({find}.getBoundingClientRect())")
        return left, top, width, height

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str, *, x_share: float = 0.5, y_share: float = 0.5) -> None:
        left, top, width, height = self.box(selector)
        self.click_at(left + width * x_share, top + height * y_share)

    def click_at(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.settle()

    def press(self, key: str) -> None:
        """A key as a person types it, on what has the focus."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))
        self.settle()

    def type(self, selector: str, text: str) -> None:
        self.ask(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=text)
        self.settle()

    def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of what is on screen, or of the whole page."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])


@contextmanager
def open_browser(command: str, profile: Path) -> Iterator[Browser]:
    """A browser until the block ends."""
    read_commands, write_commands = os.pipe()
    read_answers, write_answers = os.pipe()
    line = [command, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    shell = ["bash", "-c", f'exec "$@" 3<&{read_commands} 4>&{write_answers}', "chromium", *line]
    process = subprocess.Popen(
        shell,
        pass_fds=(read_commands, write_answers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_commands)
    os.close(write_answers)
    browser = Browser(write_commands, read_answers)
    try:
        yield browser
    finally:
        with suppress(AssertionError, OSError):  # one that was asked to end removes its temporary files
            browser.send("Browser.close")
            process.wait(timeout=PATIENCE_S)
        os.close(write_commands)
        os.close(read_answers)
        process.kill()
        process.wait(timeout=PATIENCE_S)
