"""Pictures of the demo's pages, some hours into its replay, when its real node is faulty.

    PYTHONPATH=tests python tests/real/screenshot.py docs --hours 12     # docs/cluster.png, docs/pages/verdicts.png ...

The same seed shows the same cluster, on the dates of the day on which it is run.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

import httpx2
from real.chromium import Page, opened
from real.patience import patience
from real.visitor import Visitor

from dashboard.app import FIRST, PAGES

SPEED = 600
# The map's own frame tells how many nodes it has painted.
DRAWN_MAP = "!!document.querySelector('iframe[title*=fabric_map]')?.contentWindow.document.body?.dataset.nodes"
PATIENCE_S = patience(300.0)


def address(out: Path, name: str) -> str:
    """The address that the demo prints for `API` or `Dashboard`, once it has."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for line in out.read_text().splitlines():
            if line.startswith(f"{name} "):
                return line.split()[1]
        time.sleep(0.2)
    raise SystemExit(f"the demo printed no {name} address: see {out}")


def wait_for_hours(api: str, hours: float) -> None:
    """Wait until the replay has gone on for some hours of its own time."""

    def now() -> datetime:
        return datetime.fromisoformat(httpx2.get(f"{api}/api/v1/cluster", timeout=patience(30.0)).json()["now"])

    until = now() + timedelta(hours=hours)
    while now() < until:
        time.sleep(0.5)


def wait_for_map(page: Page) -> None:
    """Wait until the map is painted: Streamlit is idle before."""
    deadline = time.monotonic() + PATIENCE_S
    while not page.evaluate(DRAWN_MAP):
        if time.monotonic() > deadline:
            raise SystemExit("the map of the nodes was not drawn: look at the page in a browser")
        time.sleep(0.2)


def take(folder: Path, hours: float, size: tuple[int, int]) -> None:
    """Run the demo, wait, take the pictures, stop the demo."""
    (folder / "pages").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        ports = ["--port", "0", "--dashboard-port", "0"]
        with out.open("wb") as file:
            demo = subprocess.Popen(
                [sys.executable, "-m", "foreshock", "demo", "--no-browser", "--speed", str(SPEED), *ports],
                stdout=file,
                env={**os.environ, "TMPDIR": directory},
            )
        try:
            page = address(out, "Dashboard")
            wait_for_hours(address(out, "API"), hours)
            with opened(page, *size) as shown:
                shown.wait_for(["served by"], 300.0)
                wait_for_map(shown)
                shown.screenshot(folder / "cluster.png")
                for name in PAGES.keys() - {FIRST}:
                    shown.call("Page.navigate", url=f"{page}/{name}")
                    Visitor(shown).sees("served by")
                    shown.screenshot(folder / "pages" / f"{name}.png")
        finally:
            demo.send_signal(signal.SIGTERM)
            demo.wait(patience(30))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=float, default=12.0)
    asked = parser.parse_args()
    take(asked.folder, asked.hours, (1440, 1240))
