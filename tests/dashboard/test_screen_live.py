"""The screen in a browser: what operators come for, that everybody can use it, and the phone.

Tasks, as somebody does them who has never seen the pages: each within three presses of the first page. What is
asserted is what is in sight: texts of the page and cells of its tables. A picture of each task's end lies in the test's
temporary folder. Then axe-core on every page. One server, one dashboard and one browser for all.
"""

import csv
import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from real.axe import axe_script, violations
from real.chromium import CHROMIUM, Page, opened
from real.foreshock import serve
from real.programs import wait_for
from real.visitor import Visitor
from stopped_run import BLIND, FAULTY, LIKELY, Place, night

from cli.commands.dashboard import DashboardAddress, running
from cli.config.dashboard import ClusterAddress, DashboardSignIn
from cli.processes.children import free_port
from dashboard.app import PAGES

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's package chromium is not installed"),
]
MOST_PRESSES = 3
FINGER_PX = 24  # WCAG 2.2, 2.5.8
# What lies beside a screen, or makes the page wider than it.
BESIDE = """[...document.querySelectorAll('body *')].filter(one => {
  const box = one.getBoundingClientRect();
  return box.left < 0 || box.right > innerWidth || document.documentElement.scrollWidth > innerWidth;
}).map(one => one.outerHTML.slice(0, 200))"""
# Where the choice of the cluster is.
CHOICE = """(() => {
  const box = document.querySelector('input[aria-label*=Cluster]').getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()"""
OPTIONS = "[...document.querySelectorAll('[role=option]')].map(one => one.innerText.trim())"
FIRST = "Newest incidents"  # stands on the first page alone
MAP = "document.querySelector('iframe[title*=fabric_map]').contentWindow.document"
# Where the map's button is, by its frame's place on the page.
OVERLAY = f"""(() => {{
  const frame = document.querySelector('iframe[title*=fabric_map]').getBoundingClientRect();
  const found = [...{MAP}.querySelectorAll('button')].find(one => one.innerText.trim() === 'Temperature');
  const own = found.getBoundingClientRect();
  return [frame.x + own.x + own.width / 2, frame.y + own.y + own.height / 2];
}})()"""
# The chart of the node's time axis, where its second chart is; what is written along axes; a slider.
PLOT = "[...document.querySelectorAll('.js-plotly-plot')].find(one => one.layout.xaxis3)"
AXIS = f"""(() => {{
  const chart = {PLOT};
  chart.scrollIntoView({{block: 'center', behavior: 'instant'}});
  return chart.querySelector('.nsewdrag[data-subplot=x2y2]').getBoundingClientRect().toJSON();
}})()"""
TICKS = "[...document.querySelectorAll('.xtick text')].map(one => one.textContent)"
SAVE = "document.querySelector('button[aria-label=\"Download as CSV\"]').click()"
# Whether a link that bears a name which is too long for its line shows all of it.
LONG_LINK = """(() => {
  const label = document.querySelector('[data-testid=stPageLink-NavLink] p');
  const before = label.textContent;
  label.textContent = 'gpu-' + 'x'.repeat(300);
  const cut = [label, label.closest('a')].some(one => one.scrollWidth > one.clientWidth);
  label.textContent = before;
  return !cut;
})()"""
# Heads of cards that are wider than they are shown.
CUT_HEADS = """[...document.querySelectorAll('[data-testid=stMetricLabel] p')]
  .filter(one => [one, one.parentElement].some(box => box.scrollWidth > box.clientWidth)).map(one => one.innerText)"""
SLIDER = "document.querySelector('input[type=range]')"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Place]:
    """The cluster at night."""
    with night(tmp_path_factory.mktemp("night"), migrated_file) as found:
        yield found


@pytest.fixture(scope="module")
def page(place: Place) -> Iterator[Page]:
    """The browser, on the first page."""
    with opened(place.dashboard, height_px=1000) as found:
        yield found


@pytest.fixture
def visitor(page: Page, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    """Somebody on the first page, whose presses are counted from here."""
    found = Visitor(page)
    if FIRST not in found.text():
        found.press("Cluster")
    found.sees(FIRST, "served by")
    found.presses = 0
    yield found
    found.screenshot(tmp_path / f"{request.node.name}.png")
    assert found.presses <= MOST_PRESSES


def test_which_device_stopped_the_run_and_what_that_cost(visitor: Visitor) -> None:
    """Nothing has to be pressed for it."""
    visitor.sees("GPU 5 of gpu-003 is the cause", "GPU has fallen off the bus", "Do: reboot the node")
    visitor.sees("llm-70b was last stopped", "by GPU 5 of gpu-003 (hardware)", "GPU-hours were lost")


def test_who_else_is_under_that_leaf(visitor: Visitor) -> None:
    """On the page of the node, with the state of each."""
    visitor.press(FAULTY)
    visitor.sees(f"{FAULTY} is faulty", "Under the same leaf, leaf-01", "7 other nodes, 1 of them not well")
    visitor.sees("gpu-008", "out of service", "gpu-001")


def test_how_sure_the_cause_is_and_why(visitor: Visitor) -> None:
    """On the page of the verdict."""
    visitor.press("GPU 5 of gpu-003")
    visitor.sees("Probability", "99 %", "For it", "was lost", "Nothing speaks against it.")


def test_to_acknowledge_it(visitor: Visitor) -> None:
    """On the first page."""
    visitor.press("Acknowledge")
    visitor.sees("You acknowledged it", "with loopback")


def test_to_silence_it_and_to_lift_the_silence(visitor: Visitor) -> None:
    """On the first page; until when stands there."""
    visitor.press("Silence for 4 h")
    visitor.sees("silent until")
    visitor.press("Lift the silence")
    visitor.sees_no("silent until")


def test_which_node_is_next_and_why(visitor: Visitor) -> None:
    """The first page has both; the node's page how much each sign adds."""
    visitor.sees(LIKELY, "31 % risk in 24 h", "14 corrected memory errors in 24 h, none before")
    visitor.press(LIKELY)
    visitor.sees(f"{LIKELY} is at risk", "31 % within 24 h", "What happened, on one time axis")


def test_how_many_gpu_hours_links_took_last_week(visitor: Visitor) -> None:
    """Of all runs, by cause."""
    visitor.press("Goodput")
    visitor.sees("The whole cluster, the last 7 days", "Losses of all runs by cause")
    cells = visitor.row("network links and switches")
    assert float(cells[1]) > 50, "GPU-hours"


def test_what_a_run_lost_and_to_what(visitor: Visitor) -> None:
    """From the sentence of the first page to the run's ledger."""
    visitor.press("What it lost")
    visitor.sees("llm-70b did useful training in", "Where the time went", "Interruptions", "Work lost", "GPU 5")


def test_what_another_run_lost(visitor: Visitor) -> None:
    """It is chosen by its name."""
    visitor.press("Goodput")
    visitor.press("Run, the newest first")
    visitor.press("moe-8x22b")
    visitor.sees("moe-8x22b did useful training in", "moe-8x22b was last stopped 3.0 d ago by port 1")


def test_what_each_attempt_of_a_run_did_and_what_ended_it(visitor: Visitor) -> None:
    """From the run's losses to its own page; what if it saved otherwise is answered there."""
    visitor.press("Run")
    visitor.press("Run, the newest first")
    visitor.press("moe-8x22b")
    visitor.sees("moe-8x22b: attempt 2 completed", "interrupted 1 time", "Attempt by attempt")
    wait_for(
        "the axis has dates", lambda: visitor.page.evaluate(f"{TICKS}.some(t => /[A-Z][a-z][a-z] \\d/.test(t))"), 30
    )
    assert visitor.row("1", "failed")[5] == "port 1 of 0xb83fd20300100b (network links and switches)"
    visitor.page.evaluate(f"{SLIDER}.focus()")
    for _ in range(3):
        visitor.key("ArrowLeft")
    visitor.sees("points of goodput.", "the run itself had 88.", "With 95 % certainty", "By the formula alone")


def test_all_that_happened_to_a_node_on_one_axis_and_what_its_vendor_needs(visitor: Visitor, tmp_path: Path) -> None:
    """Charts below one another, which are zoomed together; its GPUs with their serial numbers; a ZIP for a ticket."""
    visitor.page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    visitor.press(LIKELY)
    visitor.sees("Runs", "Out of service, and hints", "Risk, %", "GPU temperature, °C", "serial number 1650523000011")
    days = "(([a, b]) => (new Date(b) - new Date(a)) / 864e5)"
    ranges = f"{PLOT}.layout.xaxis.range, {PLOT}.layout.xaxis3.range"
    presses = visitor.presses + 1

    def zoomed() -> bool:
        """Draw over a stretch, again where the page was still growing under the mouse."""
        if visitor.page.evaluate(f"[{ranges}].every(one => {days}(one) < 1)"):
            return True
        at = visitor.page.evaluate(AXIS)
        visitor.drag(at["x"] + at["width"] * 0.9, at["x"] + at["width"] * 0.98, at["y"] + at["height"] / 2)
        visitor.presses = presses
        return False

    wait_for("all charts show the stretch", zoomed, 30)
    visitor.press("Evidence for the vendor")
    wait_for("the file is there", lambda: any(tmp_path.glob("*.zip")), 30)
    with zipfile.ZipFile(next(tmp_path.glob("*.zip"))) as pack:
        assert "1650523000011" in pack.read("node.json").decode()


def test_to_save_a_table_as_it_is_seen(visitor: Visitor, tmp_path: Path) -> None:
    """As CSV, from the page where it is looked at; what a spreadsheet would take for a formula is text."""
    visitor.page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    row = visitor.row("gpu-003", "fatal", "GPU 5")
    # Streamlit shows the button under the mouse alone.
    wait_for("the file is there", lambda: visitor.page.evaluate(SAVE) or any(tmp_path.glob("*.csv")), 10)
    with next(tmp_path.glob("*.csv")).open(encoding="utf-8-sig", newline="") as file:
        heads, *saved = list(csv.reader(file))
    assert heads[:7] == ["Open", "When (UTC)", "Severity", "Node", "Device", "What to do", "What"]
    same = next(one for one in saved if "gpu-003" in one)
    assert [same[0], *same[2:6]] == [row[0], *row[2:6]]


def test_to_approve_a_drain(visitor: Visitor) -> None:
    """What it does is said before it is done."""
    visitor.press("Hints")
    visitor.sees("1 hint waits for your approval.", "place no new work on it and let running work end")
    visitor.press("Approve")
    visitor.sees("It will be sent to the scheduler")
    visitor.press("Yes, approve")
    visitor.sees(f"Approved: drain {LIKELY}.")


def test_to_undo_a_drain(visitor: Visitor) -> None:
    """Of another node, which has been approved."""
    visitor.press("Hints")
    visitor.press("Undo")
    visitor.sees("Undone: drain", "is ordered to release the node")


def test_that_nothing_more_is_asked_of_schedulers(visitor: Visitor) -> None:
    """In an emergency, and back."""
    visitor.press("Hints")
    visitor.press("Stop all new hints")
    visitor.press("Resume hints")
    visitor.sees("Stop all new hints")


def test_whether_collection_itself_is_healthy(visitor: Visitor) -> None:
    """Which sidecar is in trouble, with what, and what to do."""
    visitor.press("Collection")
    visitor.sees("Of 16 sidecars: 1 in trouble.", BLIND, "cannot read kmsg", "What to do")


def test_the_raw_lines_of_the_incident(visitor: Visitor) -> None:
    """As the kernel wrote them."""
    visitor.press("Open its incident")
    visitor.sees("Xid 79", FAULTY, "What was said", "NVRM: Xid (PCI:0000:0f:00): 79, pid=4711")


def test_to_save_an_incident_for_a_repair_ticket(visitor: Visitor, tmp_path: Path) -> None:
    """As a file."""
    visitor.page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    visitor.press("Open its incident")
    visitor.press("Save for a ticket")
    wait_for("the file is there", lambda: any(tmp_path.glob("incident-*.html")), 30)
    (file,) = tmp_path.glob("incident-*.html")
    assert "GPU has fallen off the bus" in file.read_text()


def test_to_note_something_about_it(visitor: Visitor) -> None:
    """For whoever has the next shift."""
    visitor.press("Open its incident")
    visitor.press("Note")
    visitor.types("cable of slot 5 reseated")
    visitor.press("Add the note")
    visitor.sees("Noted.", "cable of slot 5 reseated")


def test_to_find_a_node_by_its_name(visitor: Visitor) -> None:
    """The key / leads to the box."""
    visitor.key("/")
    visitor.types("gpu-011")
    visitor.key("Enter")
    visitor.press("gpu-011 · rack r01, leaf leaf-02")
    visitor.sees("gpu-011 is well", "Under the same leaf, leaf-02")


def test_what_was_in_the_last_hour(visitor: Visitor) -> None:
    """A time range for all pages, in the address; and all times again."""
    visitor.press("All times · UTC")
    visitor.press("Last hour")
    visitor.sees("From 20")
    assert visitor.page.evaluate("new URLSearchParams(location.search).has('from')")
    visitor.press("All times")
    visitor.sees("All times · UTC")


def test_how_hot_the_nodes_are(visitor: Visitor) -> None:
    """On the map."""
    wait_for("the map is painted", lambda: visitor.page.evaluate(f"{MAP}.body?.dataset.nodes") == "16", 30)
    visitor.press_at(*visitor.page.evaluate(OVERLAY))
    wait_for("the scale says degrees", lambda: "°C" in str(visitor.page.evaluate(f"{MAP}.body.innerText")), 30)


def test_which_nodes_belong_into_repair(visitor: Visitor) -> None:
    """None, and that is said."""
    visitor.press("Repair")
    visitor.sees("No node of 16 needs repair")


def test_that_the_incident_is_over(visitor: Visitor) -> None:
    """Last of all: the others have looked at it."""
    visitor.press("Open its incident")
    visitor.sees("What was said")  # the first page has a button of that name, too
    visitor.press("Close")
    visitor.sees("Closed, with loopback.", "Open again")


@contextmanager
def guarded(folder: Path, token: str) -> Iterator[tuple[str, Path]]:
    """The address of an empty cluster that takes one token alone, and the token's file."""
    (folder / "token").write_text(token)
    digest = hashlib.sha256(token.encode()).hexdigest()
    (folder / "server.yaml").write_text(f"tokens: [{{name: eye, sha256: {digest}, scopes: [read]}}]\n")
    with serve(f"sqlite:///{folder / 'x.db'}", folder, "--config", str(folder / "server.yaml")) as server:
        yield server.url, folder / "token"


def test_another_cluster_is_chosen_in_the_bar(page: Page, place: Place, tmp_path: Path) -> None:
    """Each by its own token, one gone, one that is none; the address and each link say which."""
    with guarded(tmp_path, "of the south alone") as (south, token):
        clusters = {
            "north": ClusterAddress(place.api),
            "south": ClusterAddress(south, token),
            "gone": ClusterAddress("http://127.0.0.1:9"),
        }
        several = DashboardAddress(port=free_port(), sign_in=DashboardSignIn(clusters=clusters))
        with running(several):
            try:
                _through_clusters(Visitor(page), several.url, place, south, tmp_path)
            finally:
                page.call("Page.navigate", url=place.dashboard)  # where the others begin


def _through_clusters(visitor: Visitor, url: str, place: Place, south: str, tmp_path: Path) -> None:
    page = visitor.page
    page.call("Page.navigate", url=url)
    visitor.sees(FIRST, "GPU 5 of gpu-003", "served by", place.api)
    links = page.evaluate("""[...document.querySelectorAll('a[href*="node="]')].map(one => one.search)""")
    assert links and all("cluster=north" in one for one in links)
    visitor.screenshot(tmp_path / "north.png")
    _choose(visitor, "south")
    visitor.sees("served by", south)
    visitor.sees_no("gpu-003", "wants a token")
    _choose(visitor, "gone")
    visitor.sees("Nothing answers at http", "served by http://127.0.0.1:9")
    visitor.screenshot(tmp_path / "gone.png")
    _choose(visitor, "north")
    visitor.sees(FIRST, "GPU 5 of gpu-003")
    visitor.press(FAULTY)
    visitor.sees(f"{FAULTY} is faulty")
    assert page.evaluate("new URLSearchParams(location.search).get('cluster')") == "north"
    page.call("Page.navigate", url=f"{url}/?cluster=*none*")
    visitor.sees("No cluster is called *none*")
    visitor.screenshot(tmp_path / "none.png")


def _choose(visitor: Visitor, name: str) -> None:
    """Another cluster; the browser goes there."""
    visitor.press_at(*visitor.page.evaluate(CHOICE))
    visitor.types(name)
    wait_for("it is the one option", lambda: visitor.page.evaluate(OPTIONS) == [name])
    visitor.key("Enter")
    wait_for(
        f"the address is of {name}",
        lambda: visitor.page.evaluate("new URLSearchParams(location.search).get('cluster')") == name,
    )


# What axe-core finds and we leave, each with its reason.
LEFT = {
    ("m", "meta-refresh"): "a page without scripts cannot load again otherwise; a link on it stops that",
}


@pytest.fixture(scope="module")
def axe() -> str:
    """Its script."""
    return axe_script()


def test_a_long_name_on_a_link_is_whole(visitor: Visitor) -> None:
    """It takes another line: names of nodes differ at their end."""
    visitor.press("Incidents")
    visitor.sees("Its node:", "served by")
    assert visitor.page.evaluate(LONG_LINK)


def test_heads_of_cards_are_whole_on_a_small_screen(visitor: Visitor) -> None:
    """ "Out or cord..." is no word."""
    size = {"height": 1000, "deviceScaleFactor": 1, "mobile": False}
    visitor.page.call("Emulation.setDeviceMetricsOverride", width=1000, **size)
    try:
        visitor.sees("Out or cordoned", "served by")
        assert visitor.page.evaluate(CUT_HEADS) == []
    finally:
        visitor.page.call("Emulation.setDeviceMetricsOverride", width=1440, **size)


def test_which_link_the_keys_stand_on_is_seen(visitor: Visitor) -> None:
    """By a line around it: the ground alone is hardly another."""
    tab: dict[str, object] = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
    focused = "document.activeElement"

    def on_a_link() -> bool:
        visitor.page.call("Input.dispatchKeyEvent", type="rawKeyDown", **tab)
        visitor.page.call("Input.dispatchKeyEvent", type="keyUp", **tab)
        return bool(visitor.page.evaluate(f"{focused}.dataset.testid === 'stTopNavLink'"))

    wait_for("the keys reach the menu", on_a_link)
    assert visitor.page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"


@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_use_every_page(page: Page, axe: str, name: str) -> None:
    """No rule of WCAG's levels A and AA is broken."""
    visitor = Visitor(page)
    visitor.press(name.capitalize())
    wait_for(
        "it is that page", lambda: page.evaluate("location.pathname") == ("/" if name == "cluster" else f"/{name}")
    )
    visitor.sees("As of", "served by")
    assert violations(page, axe) == []


def test_in_the_dark_everything_can_be_read(page: Page, place: Place, axe: str) -> None:
    """Of the page with the most colours."""
    visitor = Visitor(page)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.call("Page.navigate", url=place.dashboard)
    visitor.sees(FIRST, "served by")
    assert violations(page, axe) == []


def test_everybody_can_use_the_served_pages(page: Page, place: Place, axe: str) -> None:
    """The phone's, and those to print."""
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    for name, text in (("m", "Act now"), ("api/v1/print/week", "GPU-hours")):
        page.call("Page.navigate", url=f"{place.api}/{name}")
        Visitor(page).sees(text)
        assert [one for one in violations(page, axe) if (name, one[0]) not in LEFT] == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_of_360_pixels_shows_it_all(page: Page, place: Place, tmp_path: Path, dark: bool) -> None:
    """Nothing lies beside the screen, and a finger hits each link."""
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.call("Emulation.setEmulatedMedia", features=[scheme])
    page.call("Page.navigate", url=f"{place.api}/m")
    visitor = Visitor(page)
    visitor.sees("Act now", FAULTY)
    visitor.screenshot(tmp_path / "phone.png")
    assert page.evaluate("innerWidth") == 360
    assert page.evaluate(BESIDE) == []
    sizes = page.evaluate("[...document.querySelectorAll('a')].map(e => e.getBoundingClientRect().toJSON())")
    assert sizes and all(min(one["width"], one["height"]) >= FINGER_PX for one in sizes)
