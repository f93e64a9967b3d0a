"""The map of the fabric in a browser: painted, worked by keys, and no name of a node comes to life."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from fabric_fleet import FAULTY, fill_fabric, name_of
from real.chromium import Page, opened
from real.foreshock import free_port, serve
from real.programs import wait_for

from cli.commands.dashboard import DashboardAddress, running
from dashboard.text import words
from store.database.connections import migrate, open_database, writing
from store.events.append import append_nodes
from store.records.node import Node
from store.tables import schema

LONG = "leaf-switch-of-the-eastern-hall-row-17-rack-04-unit-40-plane-b-0042"
EVIL = "<img src=x onerror=parent.evil=1>"
NODES = 64
# The texts that a drawing squeezes: those that are wider than the place that they are drawn into.
DRAWN = """((frame) => {
  const told = [], own = frame.CanvasRenderingContext2D.prototype, draw = own.fillText;
  own.fillText = function (text, x, y, most) {
    if (most !== undefined && this.measureText(text).width > most + 0.5) told.push(text);
    return draw.apply(this, arguments);
  };
  const now = frame.requestAnimationFrame;
  frame.requestAnimationFrame = (paint) => paint();
  frame.dispatchEvent(new frame.Event("resize"));
  frame.requestAnimationFrame = now;
  own.fillText = draw;
  return told;
})"""
FRAME = "document.querySelector('iframe[title*=fabric_map]').contentWindow"


def in_frame(page: Page, expression: str) -> object:
    """What an expression over the map's `document` is."""
    return page.evaluate(f"((document) => {expression})({FRAME}.document)")


def painted(page: Page) -> object:
    """How many nodes the map has drawn; None before it has."""
    return page.evaluate(f"document.querySelector('iframe[title*=fabric_map]') && {FRAME}.document.body?.dataset.nodes")


@pytest.mark.integration
@pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="Debian's package chromium is not installed")
def test_the_map_is_painted_worked_by_keys_and_obeys_no_name(tmp_path: Path) -> None:
    """Of 64 nodes and one whose name is markup; a choice opens the side panel, and its button the node's page."""
    database = f"sqlite:///{tmp_path / 'x.db'}"
    engine = open_database(database)
    migrate(engine)
    fill_fabric(engine, NODES, datetime.now(UTC))
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(EVIL, "rack-0000", "leaf-000", "H100", 8)])
        recent = datetime.now(UTC) - timedelta(minutes=1)
        connection.execute(sa.update(schema.nodes).where(schema.nodes.c.node == EVIL).values(last_seen=recent))
        leaf = schema.nodes.c.leaf
        longer = LONG + sa.func.substr(leaf, 5)
        connection.execute(sa.update(schema.nodes).where(leaf != "leaf-000").values(leaf=longer))
    engine.dispose()
    with serve(database, tmp_path) as server:
        place = DashboardAddress(server.url, port=free_port())
        with running(place), opened(place.url) as page:
            wait_for("the map is painted", lambda: painted(page) == str(NODES + 1), 60)
            assert in_frame(page, "document.querySelectorAll('img, svg, iframe').length") == 0
            told = [
                _pressed(page, key) for key in ("Home", *(["ArrowRight"] * 20 + ["ArrowDown"] + ["ArrowLeft"] * 20) * 4)
            ]
            assert any(EVIL in text for text in told), "its name stands as text"
            assert any(name_of(FAULTY) in text and "faulty" in text for text in told)
            _pressed(page, "Home")
            _pressed(page, "Enter")
            wait_for("the side panel", lambda: in_frame(page, "!document.getElementById('panel').hidden"), 20)
            assert str(in_frame(page, "document.getElementById('name').textContent")) in told[0]
            assert page.evaluate("window.evil === undefined") is True
            risks = [0.0, 0.0004, 0.001, 0.004, 0.0136, 0.04, 0.0546, 0.0999, 0.1, 0.254, 0.63, 0.99, 0.995]
            assert page.evaluate(f"{risks}.map({FRAME}.percent)") == [
                words.risk(one).removesuffix(" %") for one in risks
            ]
            assert page.evaluate(f"{DRAWN}({FRAME})") == [], "no name is squeezed"
            short = page.evaluate(f"{FRAME}.shortened({LONG!r}, 120, (text) => 6 * text.length)")
            assert short == f"{LONG[:6]}…{LONG[-13:]}"
            fits = page.evaluate(
                f"[{FRAME}.shortened('leaf-01', 120, (t) => 6 * t.length), "
                f"{FRAME}.shortened('leaf-01', 5, (t) => 6 * t.length)]"
            )
            assert fits == ["leaf-01", ""]
            newer = page.evaluate(f"{FRAME}.stateLook({{states: ['ok', 'dreaming'], state: [1]}}, 0, {{ok: {{}}}})")
            assert isinstance(newer, dict)
            assert (newer["hatched"], newer["text"], newer["rank"] > 0) == (True, "dreaming", True), "not called well"
            page.screenshot(tmp_path / "map.png")


def _pressed(page: Page, key: str) -> str:
    """Press a key in the grid; what a screen reader is told then."""
    event = f"new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}})"
    in_frame(page, f"document.getElementById('grid').dispatchEvent({event})")
    return str(in_frame(page, "document.getElementById('cell').textContent"))
