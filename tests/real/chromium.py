"""Headless Chromium for tests and for eyes: opens an address, waits until it says what is expected, takes a PNG.

    PYTHONPATH=tests python tests/real/chromium.py http://127.0.0.1:8501/ cluster.png --wait-for "Newest incidents"

Speaks the Chrome DevTools Protocol over its WebSocket, since a Streamlit page is drawn long after it has loaded.
Needs Debian's package `chromium` and the Python package `websockets`, which Streamlit's server brings along.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from real.patience import patience
from real.programs import bound
from websockets.sync.client import ClientConnection, connect

CHROMIUM = Path("/usr/bin/chromium")
START_S = patience(30.0)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
# A page is drawn when Streamlit is idle, no placeholder is left and every expected text is there.
DRAWN = """(() => {
  const text = document.body.innerText, app = document.querySelector('[data-testid="stApp"]');
  const idle = !app || app.getAttribute('data-test-script-state') !== 'running';
  return idle && !document.querySelector('[data-testid="stSkeleton"]') && EXPECTED.every(t => text.includes(t));
})()"""


class Page:
    """One open page of a running Chromium."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._sent = 0

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": params}))
        while True:
            answer: dict[str, Any] = json.loads(self._socket.recv(timeout=START_S))
            if answer.get("id") == self._sent:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page; in the new one where it was left meanwhile."""
        while True:
            try:
                result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
            except RuntimeError as error:
                if "navigated" not in str(error):
                    raise
            else:
                return result["result"].get("value")

    def wait_for(self, texts: Sequence[str], timeout_s: float) -> None:
        """Wait until the page is drawn and shows every text; `TimeoutError` says what it shows instead."""
        script = DRAWN.replace("EXPECTED", json.dumps(list(texts)))
        within_s = patience(timeout_s)
        deadline = time.monotonic() + within_s
        while not self.evaluate(script):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{texts} not seen within {within_s} s; seen: {self.text()[:2000]!r}")
            time.sleep(0.2)

    def text(self) -> str:
        """What a reader sees."""
        return str(self.evaluate("document.body.innerText"))

    def click(self, text: str) -> None:
        """Press the first button or link that bears a text."""
        found = self.evaluate(
            "(() => { const all = [...document.querySelectorAll('button, a')];"
            f" const it = all.find(e => e.innerText.split(/\\n/).some(t => t.trim() === {json.dumps(text)}));"
            " if (it) it.click(); return !!it; })()"
        )
        if not found:
            raise LookupError(f"no button or link says {text!r}")

    def screenshot(self, path: Path) -> None:
        """The visible part as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def opened(url: str, width_px: int = 1440, height_px: int = 900, dark: bool = False) -> Iterator[Page]:
    """A fresh Chromium on an address; ended by its process id."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        command = [
            str(CHROMIUM),
            *FLAGS,
            f"--user-data-dir={profile}",
            f"--window-size={width_px},{height_px}",
            "about:blank",
        ]
        child = subprocess.Popen(  # a fixed program
            bound(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": profile}
        )
        try:
            with connect(
                _page_address(Path(profile), child), max_size=None, proxy=None, open_timeout=START_S
            ) as socket:
                page = Page(socket)
                page.call("Page.enable")
                page.call(
                    "Emulation.setDeviceMetricsOverride",
                    width=width_px,
                    height=height_px,
                    deviceScaleFactor=1,
                    mobile=False,
                )
                scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
                page.call("Emulation.setEmulatedMedia", features=[scheme])
                page.call("Page.navigate", url=url)
                yield page
        finally:
            child.terminate()
            try:
                child.wait(patience(10))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _page_address(profile: Path, child: subprocess.Popen[bytes]) -> str:
    """The WebSocket of the first page, from the port that Chromium writes into its profile."""
    deadline = time.monotonic() + START_S
    port_file = profile / "DevToolsActivePort"
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise RuntimeError(f"{CHROMIUM} ended with status {child.returncode} at its start")
        lines = port_file.read_text().splitlines() if port_file.exists() else []
        if len(lines) >= 2:
            return _first_page(f"ws://127.0.0.1:{lines[0]}{lines[1]}", int(lines[0]))
        time.sleep(0.05)
    raise TimeoutError(f"{CHROMIUM} did not start within {START_S} s")


def _first_page(browser: str, port: int) -> str:
    with connect(browser, proxy=None, open_timeout=START_S) as socket:
        page = Page(socket)
        targets = page.call("Target.getTargets")["targetInfos"]
        found = next(t["targetId"] for t in targets if t["type"] == "page")
    return f"ws://127.0.0.1:{port}/devtools/page/{found}"


def main(argv: Sequence[str]) -> int:
    """Take one PNG."""
    parser = argparse.ArgumentParser(description="Take a PNG of a page once it is drawn.")
    parser.add_argument("url")
    parser.add_argument("png", type=Path)
    parser.add_argument("--size", default="1440x900")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--wait-for", action="append", default=[], metavar="TEXT")
    parser.add_argument("--timeout-s", type=float, default=60.0)
    parser.add_argument("--settle-s", type=float, default=1.5, help="let charts end their first animation")
    given = parser.parse_args(argv)
    width, height = map(int, given.size.split("x"))
    with opened(given.url, width, height, given.dark) as page:
        page.wait_for(given.wait_for, given.timeout_s)
        time.sleep(given.settle_s)
        page.screenshot(given.png)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
