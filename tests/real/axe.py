"""axe-core in a page: what keeps people from using it who see, hear or move otherwise, by the rules of WCAG A and AA.

for one in violations(page):
    print(one)      # color-contrast (serious): `As of ...`: contrast of 3.88, expected 4.5:1

`.ci/axe` fetches it. It looks into frames of the page's own origin, too.
"""

import json
import os
from pathlib import Path

import pytest
from real.chromium import Page
from real.programs import missing

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foreshock/axe"
# The levels A and AA of WCAG 2.0, 2.1 and 2.2.
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
_RUN = """axe.run(document, {runOnly: TAGS, resultTypes: ['violations'], iframes: false})
  .then(found => found.violations.flatMap(
    rule => rule.nodes.map(node => [rule.id, node.html.slice(0, 200), node.failureSummary])))"""


def axe_script() -> str:
    """The newest one that `.ci/axe` has fetched; without it the test ends."""
    found = sorted(_CACHE.glob("[0-9]*/axe.min.js"), key=lambda path: [int(n) for n in path.parent.name.split(".")])
    if found:
        return found[-1].read_text(encoding="utf-8")
    if (_CACHE / "why-not").exists():  # no fault of the environment: it cannot be had there
        pytest.skip(f"no axe-core: {(_CACHE / 'why-not').read_text().strip()}")
    missing(f"no axe-core in {_CACHE}: .ci/axe fetches it")
    raise AssertionError  # missing() has ended the test


def violations(page: Page, script: str) -> list[tuple[str, str]]:
    """The rules that the page breaks as it is now: each with the element and what is wrong with it.

    Args:
        script: that of `axe_script`.
    """
    tree = page.call("Page.getFrameTree")["frameTree"]
    # A world of its own beside the page's: no Content-Security-Policy keeps the script out of it.
    worlds = [
        page.call("Page.createIsolatedWorld", frameId=frame["frame"]["id"])["executionContextId"]
        for frame in [tree, *tree.get("childFrames", [])]
    ]
    return [one for world in worlds for one in _broken(page, world, script)]


def _broken(page: Page, world: int, script: str) -> list[tuple[str, str]]:
    """Of one frame."""
    page.call("Runtime.evaluate", contextId=world, expression=f"{script};0")
    run = _RUN.replace("TAGS", json.dumps(TAGS))
    found = page.call("Runtime.evaluate", contextId=world, expression=run, returnByValue=True, awaitPromise=True)
    if "value" not in found["result"]:
        raise RuntimeError(f"axe-core did not run: {found}")
    return [(rule, f"{html}: {why}") for rule, html, why in found["result"]["value"]]
