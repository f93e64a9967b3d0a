"""Management controllers: an emulator's over TLS, and such as lie, drip, refuse and send elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import orjson
import pytest
from real.programs import wait_for
from real.redfish import simulated_hall

from collectors.collector import Position, SourceError, SourceSettings
from collectors.sources import redfish
from collectors.sources.redfish import RedfishCollector
from parsers.formats.redfish import ResourceState, message_event
from store.records.event import Event

SETTINGS = SourceSettings(node="mgmt", interval_s=0.1, timeout_s=5.0)
SUPPLY = "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies/1"


@contextmanager
def asking(rest: str, position: Position | None = None, settings: SourceSettings = SETTINGS) -> Iterator["Heard"]:
    """The source, open."""
    source = RedfishCollector(rest, settings)
    source.open(position)
    try:
        yield Heard(source)
    finally:
        source.close()


class Heard:
    """What a source has told so far."""

    def __init__(self, source: RedfishCollector) -> None:
        self.source, self.events, self.position = source, list[Event](), None
        self.lines = self.errors = 0

    def until(self, enough: Callable[[], bool]) -> None:
        """Collect until it is enough."""

        def look() -> bool:
            turn = self.source.collect(0.1)
            self.events += turn.events
            self.position = turn.position or self.position
            self.lines, self.errors = self.lines + turn.lines, self.errors + turn.errors
            return enough()

        wait_for("controllers to answer", look)

    def kinds(self) -> list[tuple[str | None, str, str]]:
        """Node, kind and severity of each event."""
        return [(one.node, one.kind, one.severity) for one in self.events]


@pytest.mark.integration
def test_an_emulator_s_leak_is_told_once_remembered_and_over(tmp_path: Path) -> None:
    """Over TLS by the site's authority, and no certificate of another name; one that answers 500 is told of."""
    with simulated_hall(tmp_path) as hall:
        listed = tmp_path / "bmc.list"
        listed.write_text("# the hall\n" + "".join(hall.line(f"node{i}") for i in (3, 7, 9)))
        rest = f"{listed}#ca={hall.authority}&at_once=2"
        leak, broken = hall.break_("coolant_leak", "node7"), hall.break_("unreachable_node", "node3", mode="http_500")
        with asking(rest) as heard:
            heard.until(lambda: len(heard.events) >= 3 and heard.lines >= 9)
            assert sorted(heard.kinds()) == [
                ("node3", "bmc_silent", "info"),
                ("node7", "coolant_leak", "fatal"),
                ("node7", "coolant_leak", "fatal"),
            ]
            assert {one.name() for one in heard.events if one.node == "node7"} == {"LeakDetector_0", "LeakDetector_1"}
        hall.mend(leak)
        hall.mend(broken)
        with asking(rest, heard.position) as after:
            after.until(lambda: len(after.events) >= 3)
            over = [("node7", "coolant_leak", "info")] * 2
            assert sorted(after.kinds()) == [("node3", "bmc_returned", "info"), *over]
            listed.write_text(hall.line("node9"))
            hall.ask("POST", "/sim/actions", {"kind": "power_off", "device": "node9"})
            after.until(lambda: len(after.events) >= 4)
            assert after.kinds()[3:] == [("node9", "node_power", "info")]
        listed.write_text(hall.line("node9", "127.0.0.1"))  # the certificate is of another name
        with asking(rest) as refused:
            refused.until(lambda: bool(refused.events))
            assert "CERTIFICATE_VERIFY_FAILED" in refused.events[0].message


class Controller(BaseHTTPRequestHandler):
    """A controller of one power supply, which does what the test says."""

    protocol_version = "HTTP/1.1"
    supply: ClassVar[dict[str, Any]] = {}
    act = "well"
    chassis, delay_s = 1, 0.0  # the further ones tell of nothing

    def do_GET(self) -> None:
        """One answer."""
        kind = type(self)
        time.sleep(kind.delay_s)
        if kind.act == "refuse" or self.headers["Authorization"] != "Basic cm9vdDpzZWNyZXQ=":
            return self.say({}, 401)
        if kind.act == "elsewhere":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/stolen")  # type: ignore[attr-defined]
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if kind.act == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            for _ in range(600):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.1)
            return None
        if kind.act == "much":
            return self.say({"Members": ["x" * redfish._MOST_BYTES]})
        chassis = "/redfish/v1/Chassis/1"
        further = [f"/redfish/v1/Chassis/{number}" for number in range(2, kind.chassis + 1)]
        links = [chassis, *further, "http://198.51.100.1/redfish/v1/x", "/redfish/v1/../../secret", 7, None]
        tree: dict[str, dict[str, Any]] = {
            "/redfish/v1/Systems": {"Members": "none"},
            "/redfish/v1/Chassis": {"Members": [{"@odata.id": link} for link in links]},
            chassis: {"PowerSubsystem": {"@odata.id": f"{chassis}/PowerSubsystem"}, "HostName": "gpu-999"},
            f"{chassis}/PowerSubsystem": {"PowerSupplies": {"@odata.id": f"{chassis}/PowerSubsystem/PowerSupplies"}},
            f"{chassis}/PowerSubsystem/PowerSupplies": {"Members": [{"@odata.id": SUPPLY}]},
            SUPPLY: {"@odata.type": "#PowerSupply.v1_5_2.PowerSupply", "@odata.id": SUPPLY, **kind.supply},
        }
        return self.say(tree.get(self.path, {}))

    def say(self, body: dict[str, Any], status: int = 200) -> None:
        """An answer in JSON."""
        content = orjson.dumps(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_words: object) -> None:
        """Nothing."""


class QuietServer(ThreadingHTTPServer):
    """A client that breaks off is no news."""

    daemon_threads = True

    def handle_error(self, *_arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def controller(folder: Path, **supply: Any) -> Iterator[tuple[type[Controller], str]]:
    """A controller that runs, and the SPEC that asks it as gpu-017."""
    kind = type("Made", (Controller,), {"supply": supply})
    server = QuietServer(("127.0.0.1", 0), kind)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    (folder / "bmc.list").write_text(f"gpu-017 http://127.0.0.1:{server.server_port}\n")
    (folder / "bmc.secret").write_text("root:secret\n")
    try:
        yield kind, f"{folder}/bmc.list#credentials={folder}/bmc.secret"
    finally:
        server.shutdown()
        server.server_close()


def test_a_supply_without_input_is_told_of_the_node_of_the_list(tmp_path: Path) -> None:
    """Whatever name the controller bears; an answer that names other hosts or paths sends us nowhere."""
    lost = {"Status": {"State": "UnavailableOffline", "Health": None}, "LineInputStatus": "LossOfInput"}
    with controller(tmp_path, **lost) as (made, rest), asking(rest) as heard:
        heard.until(lambda: heard.lines >= 3)
        assert heard.kinds() == [("gpu-017", "power_supply", "error")]
        made.supply = {"Status": {"State": "Enabled", "Health": "Critical"}, "LineInputStatus": "Normal"}
        heard.until(lambda: len(heard.events) == 2)
        made.supply = {"Status": {"State": "Enabled", "Health": "OK"}, "LineInputStatus": "Normal"}
        heard.until(lambda: len(heard.events) == 3)
        assert [(one.cause, one.action) for one in heard.events] == [
            ("host", "run_diagnostics"),
            ("hardware", "replace_part"),
            ("host", "none"),
        ]


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("refuse", "refuses the credentials"),
        ("elsewhere", "none of its resources"),
        ("drip", ""),
        ("much", "over 4194304 bytes"),
    ],
)
def test_a_controller_that_misbehaves_is_silent_and_holds_nobody(tmp_path: Path, act: str, why: str) -> None:
    """It is told once, asked less and less often, and is back when it answers."""
    settings = SourceSettings(node="mgmt", interval_s=0.1, timeout_s=0.5)
    with controller(tmp_path, Status={"Health": "OK"}) as (made, rest), asking(rest, settings=settings) as heard:
        made.act = act
        heard.until(lambda: bool(heard.events))
        assert heard.kinds() == [("gpu-017", "bmc_silent", "info")]
        assert why in heard.events[0].message
        made.act = "well"
        heard.until(lambda: len(heard.events) == 2)
        assert heard.events[1].kind == "bmc_returned"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu-017\n", "bmc.list:1: 'gpu-017' is no node and address"),
        ("\n# a\ngpu-017 ftp://10.0.0.1\n", "bmc.list:3: "),
        ("a https://h\na https://i\n", "bmc.list:2: a stands there twice"),
        ("a http://10.1.0.17\n", "in clear text: use https"),
        ("a https://h:99999\n", "is no address"),
        ("a https://root:secret@h\n", "bears no user"),
        ("\xff\n", "is no node and address"),
    ],
)
def test_a_broken_list_names_the_line_and_the_remedy(tmp_path: Path, text: str, said: str) -> None:
    """At the start; a list that breaks while this runs is told of, and the one before stays."""
    listed, secret = tmp_path / "bmc.list", tmp_path / "bmc.secret"
    listed.write_text(text)
    secret.write_text("root:secret")
    source = RedfishCollector(f"{listed}#credentials={secret}", SETTINGS)
    with pytest.raises(SourceError, match=said):
        source.open(None)
    listed.write_text("a https://127.0.0.1:9\n")
    with asking(f"{listed}#credentials={secret}") as heard:
        listed.write_text(text + "\n")
        heard.until(lambda: bool(heard.events))
        assert (heard.kinds(), heard.errors >= 2) == ([("a", "bmc_silent", "info")], True)
        secret.write_text("nothing")
        with pytest.raises(SourceError, match="holds no USER:PASSWORD"):
            heard.until(lambda: False)


@pytest.mark.parametrize("rest", ["", "#ca=x", "/l#at_once=0", "/l#password=x", "/none", "/dev/null#ca=/none"])
def test_a_spec_that_is_not_understood_says_what_would_be(rest: str) -> None:
    """Before anything is asked."""
    with pytest.raises(SourceError, match="redfish:"):
        RedfishCollector(rest, SETTINGS).open(None)


def test_a_controller_that_tells_of_too_much_fills_nothing(tmp_path: Path) -> None:
    """Two thousand things are more than anybody builds: the round fails, and nothing of it is kept."""
    fan = {"@odata.type": "#Fan.v1_5_0.Fan", "Status": {"Health": "Critical"}, "Name": "f" * 100_000}
    with controller(tmp_path, Members=[fan] * 2) as (made, rest), asking(rest) as heard:
        heard.until(lambda: bool(heard.events))
        assert len(heard.events[0].message) < 300
        made.supply = {"Members": [{**fan, "Name": "f", "@odata.id": f"/f/{n}"} for n in range(3000)]}
        heard.until(lambda: len(heard.events) > 1)
        assert [one.kind for one in heard.events[1:]] == ["bmc_silent"]
        assert "more than 2000 things" in heard.events[1].message
        assert len(heard.position["bad"]["gpu-017"]) == 1


def test_a_controller_that_lacks_a_resource_and_invents_others_fills_nothing(tmp_path: Path) -> None:
    """A round that is not whole forgets nothing, up to the number of things of one round."""
    with controller(tmp_path) as (_made, rest), asking(rest) as heard:
        one = heard.source._controllers["gpu-017"]
        for turn in range(3):
            names = [f"/redfish/v1/Chassis/1/Fans/{turn}-{n}" for n in range(redfish._MOST_STATES)]
            states = tuple(ResourceState(name, "node_fan", "Warning", name) for name in names)
            told = list(heard.source._report(redfish._Answer(one, states, errors=1), datetime.now(UTC)))
            assert len(told) == redfish._MOST_STATES
            assert set(one.bad) == {f"node_fan {name}" for name in names}


def test_a_controller_of_many_chassis_is_looked_through_in_several_rounds(tmp_path: Path) -> None:
    """Where one round is too short for all, the next goes on, and it is not silent meanwhile."""
    settings = SourceSettings(node="mgmt", interval_s=0.1, timeout_s=0.5)
    with controller(tmp_path, Status={"Health": "Critical"}) as (made, rest):
        made.chassis, made.delay_s = 16, 0.05
        with asking(rest, settings=settings) as heard:
            heard.until(lambda: bool(heard.events))
            assert heard.kinds() == [("gpu-017", "power_supply", "error")]


def test_what_is_pulled_out_is_forgotten(tmp_path: Path) -> None:
    """It is told of again when it is back as it was."""
    failed = {"Status": {"State": "Enabled", "Health": "Critical"}}
    with controller(tmp_path, **failed) as (made, rest), asking(rest) as heard:
        heard.until(lambda: len(heard.events) == 1)
        made.supply = {"Status": {"State": "Absent"}}
        one = heard.source._controllers["gpu-017"]
        heard.until(lambda: not one.bad)
        made.supply = failed
        heard.until(lambda: len(heard.events) == 2)
        assert heard.kinds() == [("gpu-017", "power_supply", "error")] * 2


@pytest.mark.parametrize(
    ("ident", "text", "told"),
    [
        ("Environmental.1.1.0.LeakDetectedCritical", "Leak detector 'Tray' reports a leak.", ("coolant_leak", "fatal")),
        ("Environmental.1.1.0.LeakDetectedCritical", "Leak at 'Memory tray'. Do not touch.", ("coolant_leak", "fatal")),
        ("Maker.1.0.LeakDetectorLost", "Leak detector 'Tray' is lost", ("coolant_leak", "error")),
        ("Maker.1.0.LeakageCurrentHigh", "Leakage current of the line is high", ("health_event", "error")),
        ("Maker.1.0.Alert", "Leak of handles in a service", ("health_event", "error")),
        ("Maker.1.0.Alert", "Liquid leak at the manifold", ("coolant_leak", "error")),
        ("Maker.1.0.Alert", "Memory Leak Detected in BMC process", ("health_event", "error")),
        ("Maker.1.0.Alert", "MEMORY LEAK in service", ("health_event", "error")),
        ("Maker.1.0.Alert", "Coolant temperature above the upper critical threshold", ("node_hot", "error")),
        ("Maker.1.0.Alert", "Coolant pump redundancy lost", ("health_event", "error")),
        ("Maker.1.0.Alert", "No coolant leak is present", ("health_event", "error")),
    ],
)
def test_a_leak_that_holds_a_node_is_one_by_its_id(ident: str, text: str, told: tuple[str, str]) -> None:
    """A maker's words may speak of a program's memory, or of no leak at all."""
    event = message_event({"MessageId": ident, "Message": text, "Severity": "Critical"}, "gpu-017")
    assert event is not None
    assert (event.kind, event.severity) == told
