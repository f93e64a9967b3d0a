"""Somebody at a page of the dashboard: sees what is visible, presses with the mouse, types; presses are counted.

visitor.press("Hints")
visitor.sees("waits for your approval")
assert visitor.presses == 1
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from real.chromium import Page
from real.patience import patience

# Streamlit draws tables on a canvas; what stands in their cells a screen reader finds inside it.
SEEN = """(() => {
  const shown = e => e.getClientRects().length && e.checkVisibility();
  const cells = [...document.querySelectorAll('canvas')].filter(shown).map(e => e.textContent);
  return [document.body.innerText, ...cells].join('\\n').replace(/\\u00a0/g, ' ');
})()"""
ROWS = "[...document.querySelectorAll('canvas tr')].map(row => [...row.children].map(cell => cell.textContent.trim()))"
IDLE = """(() => {
  const app = document.querySelector('[data-testid="stApp"]');
  return (!app || app.getAttribute('data-test-script-state') !== 'running')
    && !document.querySelector('[data-testid="stSkeleton"]');
})()"""
# Where the first thing is that can be pressed and bears a name, once it is in view and nothing lies over it.
PLACE = """(name => {
  const said = e => {
    const own = e.cloneNode(true);
    own.querySelectorAll('[data-testid=stIconMaterial]').forEach(icon => icon.remove());
    return [e.getAttribute('aria-label') || '', own.textContent].map(text => text.trim());
  };
  const kinds = ['input, textarea, [role=option], [role=radio]', 'button, a, summary, label'];
  const found = kinds.flatMap(kind => [...document.querySelectorAll(kind)])
    .filter(e => e.getClientRects().length && !e.disabled && said(e).includes(name));
  for (const one of found) {
    one.scrollIntoView({block: 'center', behavior: 'instant'});
    const box = one.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    const top = document.elementFromPoint(x, y);
    if (top && (one.contains(top) || top.contains(one))) return [x, y];
  }
  return null;
})"""


class Visitor:
    """One person, one browser."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.presses = 0

    def text(self) -> str:
        """All that is visible, tables too."""
        return str(self.page.evaluate(SEEN))

    def sees(self, *texts: str) -> None:
        """Wait until the page is drawn and shows every text."""
        self._until(lambda: self._has(texts), f"{texts} not seen")

    def row(self, *cells: str) -> list[str]:
        """Wait for a table's row that has these among its cells; all of its cells."""

        def found() -> list[list[str]]:
            return [row for row in self.page.evaluate(ROWS) if set(cells) <= set(row)]

        self._until(lambda: bool(found()), f"no table has a row of {cells}")
        return found()[0]

    def sees_no(self, *texts: str) -> None:
        """Wait until the page is drawn and shows none of them."""
        self._until(lambda: not any(text in self.text() for text in texts), f"{texts} still seen")

    def press(self, name: str) -> None:
        """One press on what bears a name, with the mouse, where it stands in sight."""
        where = f"{IDLE} && {PLACE}({json.dumps(name)})"
        found: list[float] = []

        def holds() -> bool:
            found[:] = self.page.evaluate(where) or ()
            return bool(found)

        self._until(holds, f"nothing says {name!r}")
        self.press_at(*found)

    def press_at(self, x: float, y: float) -> None:
        """One press at a place."""
        for kind in ("mousePressed", "mouseReleased"):
            self.page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.presses += 1

    def drag(self, x: float, until_x: float, y: float) -> None:
        """Press, move to the right and let go: over a stretch of a chart."""
        self.page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.page.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
        for step in range(1, 6):
            at = x + (until_x - x) * step / 5
            self.page.call("Input.dispatchMouseEvent", type="mouseMoved", x=at, y=y, button="left", buttons=1)
        self.page.call("Input.dispatchMouseEvent", type="mouseReleased", x=until_x, y=y, button="left", clickCount=1)
        self.presses += 1

    def key(self, key: str) -> None:
        """One key."""
        more = {"ArrowLeft": {"windowsVirtualKeyCode": 37}}.get(key, {"text": {"Enter": "\r"}.get(key, key)})
        self.page.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **more)
        self.page.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def types(self, text: str) -> None:
        """A text, where the cursor stands."""
        self.page.call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        """What is in sight as a PNG."""
        self.page.screenshot(path)

    def _has(self, texts: Sequence[str]) -> bool:
        shown = self.text()
        return all(text in shown for text in texts) and bool(self.page.evaluate(IDLE))

    def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + patience(20)
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{otherwise}; seen: {self.text()[:3000]!r}")
            time.sleep(0.1)
