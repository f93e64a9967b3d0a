"""Names and messages of others in logs, metrics, chats, pagers, webhooks, Slurm, Kubernetes and the dashboard."""

import csv
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from attacks.hostile_texts import PIECES, hidden_in, hostile
from hypothesis import example, given
from real.foreshock import Running, free_port, serve, sidecar
from real.programs import stop, wait_for
from real.prometheus import check_metrics

from cli.console.output import LogFormatter
from collectors.metrics import SidecarMetrics
from dashboard.text import words
from schedulers.reconcile.delivery import delivery_of, verdict_delivery
from schedulers.slurm.node import read_reason, reason_of
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.webhook import FORMATS, format_of
from store.hints.outbox import Delivery
from store.html_page import page, section, table
from store.records.hint import Evidence, Hint
from store.records.verdict import Verdict
from store.visible_text import csv_text, visible, visible_json
from wire.verdicts import verdict_json

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
ALL = "".join(PIECES)
SECRETS = {"pagerduty": "0123456789abcdef0123456789abcdef"}
SIGNED = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
TEMPLATE = '{"who": "$node", "why": "$reason", "owner": "$owner", "whole": $document}'


@given(hostile())
@example(ALL)
def test_what_is_printed_is_one_line_and_the_same_a_second_time(text: str) -> None:
    """Nothing that a person can see is lost."""
    said = visible(text)
    assert hidden_in(said, "") == []
    assert visible(said) == said
    assert visible("gpu-017 é 漢 Xid 79: GPU fell\\off") == "gpu-017 é 漢 Xid 79: GPU fell\\off"


@given(hostile())
@example(ALL)
def test_json_is_another_spelling_of_the_same_values(text: str) -> None:
    """Indented or not."""
    for option in (0, orjson.OPT_INDENT_2):
        written = visible_json(orjson.dumps({text: [text, 1]}, option=option))
        assert orjson.loads(written) == {text: [text, 1]}
        assert hidden_in(written.decode()) == []


@given(hostile())
@example(ALL)
def test_no_log_line_is_forged(text: str) -> None:
    """A message is one line; of a traceback no line begins where messages begin."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter())
    logger = logging.Logger("hostile")
    logger.addHandler(handler)
    logger.warning("node %s speaks", f"{text}\nERROR forged")
    try:
        raise ValueError(f"{text}\nERROR forged")  # noqa: TRY301 - the traceback is what is tried
    except ValueError:
        logger.exception("of %s", text)
    lines = stream.getvalue().splitlines()
    assert hidden_in(stream.getvalue()) == []
    assert [line for line in lines if line.startswith("ERROR forged")] == []
    assert len([line for line in lines if not line.startswith("    ")]) == 2


@given(hostile())
@example(ALL)
@example("+2")
@example("S1;=cmd|' /C calc'!A0;  +1;-1")
def test_no_cell_is_a_formula_and_no_page_has_a_tag_of_a_name(text: str) -> None:
    """Read back as a spreadsheet and a browser read them."""
    (row,) = csv.reader(io.StringIO(csv_text([[text, f"={text}", "-12.5", 3]]), newline=""))
    cells = [cell for cell in row[:2] if re.fullmatch(r"[+-]?[\d.e+-]+", cell, re.IGNORECASE) is None]
    assert [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r"))] == []
    assert row[2:] == ["-12.5", "3"]
    # In a locale whose lists are separated by semicolons each part of a cell that is not quoted is one.
    parts = [part.lstrip(" ") for cell in cells for part in cell.split(";")[1:]]
    assert [part for part in parts if part.startswith(("=", "+", "-", "@", "|", "%"))] == []
    html = page(text, [section(text, text, table([text], [[text]]))])
    body = html.partition("</head>")[2]
    assert set(re.findall(r"<\s*(/?\w+)", body)) <= {"body", "h2", "p", "table", "tr", "th", "td", "/h2"} | {
        "/body", "/html", "/p", "/table", "/tr", "/th", "/td"
    }  # fmt: skip
    assert hidden_in(html) == []


@given(hostile())
@example(ALL)
def test_a_metrics_page_is_whole_whatever_a_source_is_called(text: str) -> None:
    """A label value keeps its place between the quotes."""
    metrics = SidecarMetrics()
    metrics.source(f"file:{text}").totals["lost"] += 1
    page = metrics.page(process=False).decode()
    assert hidden_in(page) == []
    assert len([line for line in page.split("\n") if "source_up{" in line]) == 1


def test_promtool_takes_the_page_of_every_piece() -> None:
    """As Prometheus reads it."""
    metrics = SidecarMetrics()
    for text in PIECES:
        metrics.source(text)
    assert check_metrics(metrics.page().decode()) == ""


def delivered(text: str, kind: str, template: Path) -> Iterator[tuple[bytes, Any]]:
    """The messages of a hint and a verdict whose words are hostile: as sent, and as read."""
    hint = Hint("h1", f"n{text}", "cordon", "approved", text, text, NOW, NOW, Evidence(spare=text))
    cause = Verdict("gpu", text, 0.9, "hardware", "drain_node", NOW, text, node=f"n{text}", jobs=(text,), id="v1")
    more = {"template_file": str(template)} if kind == "template" else {}
    made = format_of(WebhookSettings("ops", "http://ops.example", format=kind, **more))  # type: ignore[arg-type]
    secret = SECRETS.get(kind, SIGNED)
    plain = msgspec.to_builtins(verdict_json(cause, 1))
    deliveries: list[Delivery] = [verdict_delivery(plain, text, "ops", NOW)]
    if not made.of_verdicts:
        deliveries.append(delivery_of(hint, "cordon", "ops", "act", NOW))
    for delivery in deliveries:
        body = made.write(delivery, (secret,), NOW).body
        yield body, json.loads(body)


def texts(value: Any) -> Iterator[str]:
    """Every text inside a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator's template."""
    path = tmp_path_factory.mktemp("template") / "t.txt"
    path.write_text(TEMPLATE)
    return path


@pytest.mark.parametrize("kind", sorted(FORMATS))
@given(text=hostile())
@example(text=ALL)
def test_no_message_to_a_chat_or_pager_does_more_than_say(template: Path, kind: str, text: str) -> None:
    """Nothing hidden in any; in those for people no mention, no link, no markup, no forged line."""
    for body, document in delivered(text, kind, template):
        check_message(kind, body, document)


def check_message(kind: str, body: bytes, document: Any) -> None:
    """One message, of any kind."""
    assert hidden_in(body.decode(), "") == []
    if kind in ("slack", "feishu", "dingtalk", "pagerduty"):
        for said in texts(document):
            assert hidden_in(said) == []
            assert re.search(r"://|www\.|@\w", said, re.ASCII) is None
    if kind == "slack":
        said = document["blocks"][1]["text"]["text"]
        assert not set("<>`_~") & set(said)
        assert len(said.splitlines()) == len(re.findall(r"^\*[a-z ]+\*: ", said, re.MULTILINE))
        assert not set("<>`_~*") & set(document["text"])
    if kind == "dingtalk":
        said = document["markdown"]["text"]
        assert not set("<>[]`_@|~") & set(said)
        assert re.findall(r"^#.*", said, re.MULTILINE) == [said.splitlines()[0]]


@given(hostile())
@example(ALL)
def test_a_reason_in_slurm_is_one_field_that_bears_our_mark(text: str) -> None:
    """No other field, no list, no stamp."""
    said = reason_of(text, "drain", "h-17")
    assert said.isprintable()
    mark = read_reason(said)
    assert mark is not None
    assert (mark.action, mark.hint) == ("drain", "h-17")
    assert re.search(r"\b[A-Z][A-Za-z]*=|[\[\]]", said.removesuffix(" action=drain id=h-17"), re.ASCII) is None


@given(hostile())
@example(ALL)
def test_markdown_of_a_name_is_text(text: str) -> None:
    """Escaped, on one line; a bare address has a blank in it."""
    said = words.plain(text)
    assert hidden_in(said, "") == []
    bare = re.sub(r"\\(.)", r"\1", said)
    assert re.search(r"https?://|www\.|:streamlit:|\w@\w+\.", bare, re.IGNORECASE | re.ASCII) is None
    assert "<" not in words.drawn(text)


APP = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
import streamlit as st
from attacks.hostile_texts import PIECES
from dashboard.panels import frames
from dashboard.text import words

st.markdown("BEGIN " + " ".join(words.plain(text) for text in PIECES) + " END")
st.caption(words.plain("x".join(PIECES)))
st.error(words.plain(" ".join(PIECES)))
frames.show([{{"node": text, "why": text}} for text in PIECES], key="rows")
"""


@pytest.mark.integration
@pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="Debian's package chromium is not installed")
def test_a_browser_makes_nothing_of_a_name(tmp_path: Path) -> None:
    """The real page in a real browser: no link, image, formula, icon or heading out of any of the texts."""
    from real.chromium import opened

    root = Path(__file__).parents[2]
    (tmp_path / "app.py").write_text(APP.format(root=str(root), tests=str(root / "tests")))
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}", "--server.headless=true"]
    with (tmp_path / "app.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--server.address=127.0.0.1", "--browser.gatherUsageStats=false"],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        app = Running(f"http://127.0.0.1:{port}", process.pid)
        wait_for("the page answers", lambda: app.answers("/_stcore/health"))
        with opened(app.url) as shown:
            shown.wait_for(["BEGIN", "END"], 60)
            made = shown.evaluate(
                "[...document.querySelectorAll('[data-testid=stMarkdownContainer]')].map(e => "
                "[...e.querySelectorAll('a,img,script,h1,h2,h3,code,pre,.katex,[data-testid=stIconMaterial]')]"
                ".map(x => x.outerHTML.slice(0, 80))).flat()"
            )
            assert made == []
            assert hidden_in(shown.text(), "\n\t") == []
    finally:
        stop(process, 15)


@pytest.mark.integration
def test_a_servers_and_a_sidecars_log_hold_no_control_byte(tmp_path: Path) -> None:
    """A file, a format and a body of hostile names, through the real programs; and their metrics."""
    evil = "x\x1b[2J\u202e\u200b\x9b.log"
    (tmp_path / evil).write_text("2025-03-01T04:05:06Z n kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1, \x1b[2J gone\n")
    with (
        serve(f"sqlite:///{tmp_path}/site.db", tmp_path) as server,
        sidecar(server, tmp_path, f"file:{tmp_path}/{evil}:kernel", f"file:{tmp_path}/none{evil}") as agent,
    ):
        wait_for("a line was read", lambda: "lines_total" in agent.text("/metrics"), 30)
        wait_for("it is an event", lambda: len(server.get("/api/v1/events")["items"]) > 0, 60)
        for page in (agent.text("/metrics"), server.text("/metrics")):
            assert hidden_in(page) == []
            assert check_metrics(page) == ""
        assert "\\x1b" in agent.text("/metrics")
    for name in ("serve.log", "sidecar.log"):
        assert hidden_in((tmp_path / name).read_text()) == []
