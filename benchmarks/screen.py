"""The operator's screen in headless Chromium, by the browser's own clock: at 64 and at 12,500 nodes.

`python -m benchmarks screen` measures it. Each visit is a browser without cache, as somebody's who opens the page; a
moment counts once the frame that shows it is painted.
"""

import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fabric_fleet import FAULTY, fill_fabric, name_of
from real.chromium import Page, opened
from real.foreshock import Running, free_port, serve, sidecar
from real.programs import wait_for

from benchmarks.result import Result, Verdict, quantile
from benchmarks.screen_sessions import crowd
from cli.commands.dashboard import DashboardAddress, running
from store.database.connections import migrate, open_database

WHAT = "the operator's screen"
BUDGET = "first verdict < 2 s"
SIZES = (64, 12_500)
VISITS, LINES = 5, 50
LATE_S = 60.0
# What is waited for is looked up before each frame; its moment is the one after that frame was painted. Milliseconds
# since the document began, or since 1970 for what has to do with another program.
WATCH = """(() => {
  if (window.top !== window) return;
  window.wants = {}; window.seen = {};
  const found = one => { try { return one(); } catch { return false; } };
  const look = () => {
    for (const [name, one] of Object.entries(window.wants)) {
      if (name in window.seen || !found(one)) continue;
      window.seen[name] = NaN;
      setTimeout(() => { window.seen[name] = performance.now(); });
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  addEventListener('click', event => { window.seen.click ??= event.timeStamp; }, true);
  window.WebSocket = class extends WebSocket {
    constructor(...given) {
      super(...given);
      this.addEventListener('message', event => {
        if ('answer' in window.seen || !(event.data instanceof ArrayBuffer)) return;
        const at = performance.now();
        if (new TextDecoder('latin1').decode(event.data).includes('blocks_by')) window.seen.answer = at;
      });
    }
  };
})()"""
MAP = "document.querySelector('iframe[title*=fabric_map]').contentDocument.body.dataset.nodes"
# All that the first page has is there: its last line, no placeholder any more, both tables with their rows.
WHOLE = """document.body.innerText.includes('served by') && document.body.innerText.includes('Look at these first')
  && !document.querySelector('[data-testid=stSkeleton]')
  && document.querySelectorAll('canvas tr').length > 1"""
SAID = "[...document.querySelectorAll('[data-testid=stAlert]')].some(one => one.innerText.includes(TEXT))"
CELLS = "[...document.querySelectorAll('canvas')].some(one => one.textContent.includes(TEXT))"


@dataclass(slots=True)
class Times:
    """What the visits took, in seconds."""

    verdict: list[float] = field(default_factory=list)
    settled: list[float] = field(default_factory=list)
    drawn: list[float] = field(default_factory=list)
    node: list[float] = field(default_factory=list)


def measure(folder: Path) -> Iterator[Result]:
    """Both sizes, each with a server, a sidecar and a dashboard of its own, as users start them."""
    for nodes in SIZES:
        place = folder / str(nodes)
        place.mkdir()
        with site(place, nodes) as (server, url, log):
            times = Times()
            for _ in range(VISITS):
                visit(url, nodes, times)
            took = lines(url, log)
            many = crowd(server.url, url)
        yield from results(nodes, times, took)
        yield many.result(nodes)


@contextmanager
def site(folder: Path, nodes: int) -> Iterator[tuple[Running, str, Path]]:
    """The API, the dashboard's address, and the log that the sidecar of a node follows."""
    database, log = f"sqlite:///{folder / 'x.db'}", folder / "kern.log"
    log.write_text("")
    engine = open_database(database)
    migrate(engine)
    fill_fabric(engine, nodes, datetime.now(UTC))
    engine.dispose()
    with (
        serve(database, folder) as server,
        sidecar(server, folder, f"file:{log}:kernel", node=name_of(1)),
        running(DashboardAddress(server.url, port=(port := free_port()))),
    ):
        yield server, f"http://127.0.0.1:{port}", log


@contextmanager
def watched(url: str, wants: Mapping[str, str]) -> Iterator[Page]:
    """A fresh browser on an address, in which what is waited for is timed from the first moment."""
    with opened("about:blank", height_px=1000) as page:
        said = ", ".join(f"{name}: () => {test}" for name, test in wants.items())
        page.call("Page.addScriptToEvaluateOnNewDocument", source=f"{WATCH}; window.wants = {{{said}}};")
        page.call("Page.navigate", url=url)
        yield page


def moment(page: Page, name: str) -> float:
    """When something was painted, in milliseconds of the document's clock."""
    wait_for(f"{name} is painted", lambda: page.evaluate(f"Number.isFinite(window.seen?.{name})") is True, LATE_S)
    return float(page.evaluate(f"window.seen.{name}"))


def visit(url: str, nodes: int, times: Times) -> None:
    """The first page, and from there a press on a node."""
    painted = f"{MAP} === '{nodes}'"
    first = {"verdict": SAID.replace("TEXT", "'faulty'"), "map": painted, "settled": f"{WHOLE} && {painted}"}
    with watched(url, first) as page:
        for name, found in (("verdict", times.verdict), ("settled", times.settled)):
            found.append(moment(page, name) / 1000)
        times.drawn.append((moment(page, "map") - moment(page, "answer")) / 1000)
        name = name_of(FAULTY)
        said = SAID.replace("TEXT", json.dumps(f"{name} is faulty"))
        page.evaluate(f"delete window.seen.click, window.wants.node = () => location.pathname === '/node' && {said}")
        page.click(name)
        times.node.append((moment(page, "node") - moment(page, "click")) / 1000)


def lines(url: str, log: Path) -> list[float]:
    """Seconds from a line's end in the log until a cell of the first screen shows it, for each of many lines."""
    took = []
    with watched(url, {"settled": WHOLE}) as page:
        moment(page, "settled")
        for number in range(LINES):
            name = f"line{number:03}x"
            test = CELLS.replace("TEXT", json.dumps(name))
            page.evaluate(f"window.wants = {{{name}: () => {test}}}, 0")
            time.sleep(0.35 + number * 0.61 % 1)  # at any moment of the page's turns
            stamp = datetime.now(UTC).isoformat(timespec="microseconds")
            written = f"{stamp} {name_of(1)} kernel: NVRM: Xid (PCI:0000:{number % 8 + 16:02x}:00): 31, {name}\n"
            with log.open("a") as out:
                out.write(written)
            began = time.time()
            at = moment(page, name) + float(page.evaluate("performance.timeOrigin"))
            took.append(at / 1000 - began)
    return took


def results(nodes: int, times: Times, took: list[float]) -> Iterator[Result]:
    """A row for each budget."""
    rows: tuple[tuple[str, float, list[float]], ...] = (
        ("first verdict painted", 2.0, times.verdict),
        ("page settled, with its map", 4.0, times.settled),
        ("the map painted after its answer came", 1.0, times.drawn),
        ("a press on a node until its page says how it is", 1.5, times.node),
    )
    for what, budget_s, found in rows:
        middle = statistics.median(found)
        shown = f"median {middle:.2f} s, most {max(found):.2f} s"
        yield row(f"{nodes:,} nodes: {what}", f"< {budget_s:g} s", shown, middle < budget_s, f"{VISITS} visits")
    p95 = quantile(took, 0.95)
    shown = f"p50 {quantile(took, 0.5):.2f} s, p95 {p95:.2f} s, most {max(took):.2f} s"
    what = f"{nodes:,} nodes: a kernel line until the first screen shows it"
    yield row(what, "p95 < 2 s", shown, p95 < 2, f"{len(took)} lines")


def row(what: str, budget: str, shown: str, met: bool, note: str) -> Result:
    """One row, with how busy the machine was."""
    verdict: Verdict = "met" if met else "not met"
    return Result(
        what,
        budget,
        shown,
        "-",
        None,
        verdict,
        f"{note}; SQLite, {datetime.now(UTC):%Y-%m-%d}; load average {os.getloadavg()[1]:.1f}",
    )
