"""Faults that are done to a simulated fabric, one after the other and each cured, with the truth of each.

    with fabric(folder, plan=plan, arguments=["-y"]) as sim:
        for act in play(sim, drawn(plan, KINDS, 3, Random(17))):
            act.lines(sim.log)        # what the subnet manager wrote from the fault on until it was at rest

The truth names every place that is the same fault: a cable, and the port or adapter at either end of it, which no log
tells apart. An act ends cured; a flap is cured already when its lines end. Beside the log stands what the source
`subnet` tells of the manager's list of links.
"""

import random
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from real.fabric_plan import Cable, FabricPlan
from real.opensm import Fabric
from real.programs import wait_for

from collectors.collector import SourceSettings
from collectors.sources.subnet import SubnetCollector
from store.records.event import Event

KINDS = (
    "cable",
    "uplink",
    "flap",
    "leaf",
    "spine",
    "host",
    "hca",
    "duplicate_guid",
    "admin_down",
    "reboot",
)
# After ten traps of a switch, each less than this after the last, the manager ignores that switch's traps.
QUIET_S = 5.2
# A real link trains for longer than this before it is up again; notices nearer than 0.05 s are one burst.
_TRAINING_S = 0.2
# Looks at the log, twenty a second, after which a manager that has not swept is asked to.
_DEAF_LOOKS = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: a kind, and on what: a switch, a host, an adapter, or an uplink's cable."""

    kind: str
    target: str
    cable: Cable | None = None
    other: str = ""  # whose GUID is taken


@dataclass(frozen=True, slots=True)
class Act:
    """What was done. `accepted` names its places; `offsets` in the log: at its start, at rest, cured.

    `listed` is what the source `subnet` told: at rest, and when it was cured.
    """

    kind: str
    target: str
    accepted: tuple[str, ...]
    offsets: tuple[int, int, int]
    listed: tuple[tuple[Event, ...], tuple[Event, ...]] = ((), ())

    def lines(self, log: Path) -> list[str]:
        """What the manager wrote of it, until it was at rest."""
        with log.open("rb") as file:
            file.seek(self.offsets[0])
            return file.read(self.offsets[1] - self.offsets[0]).decode(errors="replace").splitlines()


def drawn(plan: FabricPlan, kinds: Iterable[str], each: int, chance: random.Random) -> list[Plan]:
    """So many acts of each kind, on targets drawn by chance, in an order drawn by chance; the manager's host stays."""
    own = plan.adapters()[0]
    host, leaf = own.split("/")[0], plan.cables_of(own)[0].switch
    adapters = [name for name in plan.adapters() if name != own]
    uplinks = [cable for cable in plan.cables if plan.is_switch(cable.peer)]
    targets: dict[str, Sequence[str]] = {
        "leaf": [name for name in plan.switches("leaf") if name != leaf],
        "spine": plan.switches("spine"),
        "host": [name for name in plan.hosts() if name != host],
    }
    targets["reboot"] = targets["host"]
    acts = []
    for kind in (kind for kind in kinds for _ in range(each)):
        cable = chance.choice(uplinks)
        if kind == "uplink" or (kind in ("admin_down", "flap") and chance.random() < 0.25):
            acts.append(Plan(kind, cable.name(), cable))
        elif kind == "duplicate_guid":
            first, second = chance.sample(adapters, 2)
            acts.append(Plan(kind, first, plan.cables_of(first)[0], second))
        else:
            target = chance.choice(targets.get(kind, adapters))
            acts.append(Plan(kind, target, plan.cables_of(target)[0] if target in adapters else None))
    chance.shuffle(acts)
    return acts


def play(sim: Fabric, plans: Iterable[Plan], pause_s: float = 0.0) -> Iterator[Act]:
    """Do what is planned; each act is given once it is cured and the manager at rest.

    Args:
        pause_s: before each act. From QUIET_S on the manager hears every trap; with none, it is deaf to some.
    """
    source = SubnetCollector(str(sim.links), SourceSettings(node="manager", interval_s=0.01))
    source.open(None)
    _read(source)
    for plan in plans:
        time.sleep(pause_s)
        begin = _size(sim)
        _break(sim, plan)
        rest, broken = _size(sim), _read(source)
        _cure(sim, plan)
        listed = broken, _read(source)
        accepted = [plan.target] if plan.cable is None else [plan.cable.name(), *plan.cable.ends()]
        yield Act(plan.kind, plan.target, tuple(accepted), (begin, rest, _size(sim)), listed)


def _read(source: SubnetCollector) -> tuple[Event, ...]:
    """What the list of a manager at rest says that it did not say before: seen, seen again, read."""
    return tuple(event for _ in range(3) for event in source.collect(1.0).events)


def _break(sim: Fabric, plan: Plan) -> None:
    since = _size(sim)
    if plan.kind == "duplicate_guid":
        sim.unlink(plan.target)
        _settle(sim, since)
        sim.impersonate(plan.target, plan.other)
        since = _size(sim)
        sim.relink(plan.target)
        # It never comes to rest: it tells it anew at each of its sweeps, ten a second.
        wait_for("a GUID is told twice", lambda: "\nPaths are" in _since(sim, since))
        return
    if plan.kind == "admin_down":
        _set_port(sim, plan, "disable")
        # A real switch sends a trap; the simulated one keeps still, and the manager finds it at its next sweep.
        sim.sweep()
    elif plan.kind in ("hca", "reboot"):
        sim.reset(plan.target)
    elif plan.kind == "flap":
        _flap(sim, plan)
    else:
        _link(sim, plan, up=False)
    _settle(sim, since)


def _cure(sim: Fabric, plan: Plan) -> None:
    since = _size(sim)
    if plan.kind == "flap":
        return
    if plan.kind == "duplicate_guid":
        sim.unlink(plan.target)
        _settle(sim, since)
        since = _size(sim)
        sim.impersonate(plan.target, plan.target)
        sim.relink(plan.target)
    elif plan.kind == "admin_down":
        _set_port(sim, plan, "enable")
        _link(sim, plan, up=False)
        _link(sim, plan, up=True)
    else:
        _link(sim, plan, up=True)
    _settle(sim, since)


def _flap(sim: Fabric, plan: Plan) -> None:
    """Down and up, each seen by the manager."""
    for _ in range(2):
        for up in (False, True):
            since = _size(sim)
            _link(sim, plan, up=up)
            _settle(sim, since)
            time.sleep(_TRAINING_S)


def _link(sim: Fabric, plan: Plan, *, up: bool) -> None:
    is_uplink = plan.cable is not None and plan.cable.name() == plan.target
    name, port = (plan.cable.switch, plan.cable.port) if plan.cable is not None and is_uplink else (plan.target, None)
    if up:
        sim.relink(name, port)
    else:
        sim.unlink(name, port)


def _set_port(sim: Fabric, plan: Plan, verb: str) -> None:
    assert plan.cable is not None
    sim.diagnose("ibportstate", "-G", f"0x{sim.plan.guids[plan.cable.switch]:016x}", str(plan.cable.port), verb)


def _size(sim: Fabric) -> int:
    return sim.log.stat().st_size


def _settle(sim: Fabric, since: int) -> None:
    """Wait until the manager has swept; one that ignores a switch's many traps for a while is asked to."""
    asked = [0]

    def swept() -> bool:
        asked[0] += 1
        if asked[0] % _DEAF_LOOKS == 0:
            sim.opensm.send_signal(signal.SIGHUP)
        return "SUBNET UP" in _since(sim, since)

    wait_for("the manager has swept", swept)
    sim.rest()


def _since(sim: Fabric, offset: int) -> str:
    with sim.log.open("rb") as file:
        file.seek(offset)
        return file.read().decode(errors="replace")
