"""Slurm as an actuator: nodes are read right before they are written, and read again after.

    slurm = Slurm(SlurmSettings(conf="/etc/slurm/slurm.conf"))
    slurm.observe()
    slurm.carry_out([Order("gpu-017", "h-1", "cordon", "foreshock: xid 79 on gpu 0", until)])

Slurm has no compare-and-set. Between our reading and our writing lie some milliseconds in which another's drain or
resume can be overwritten unseen; what lands after our write wins, and is reported (docs/slurm.md, "Races").
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from schedulers.reconcile.actuator import Hold, JobOrder, Order, OrderReport, SchedulerAwayError
from schedulers.slurm.commands import CommandResult, SlurmCommands, SlurmSettings
from schedulers.slurm.jobs import ask_job
from schedulers.slurm.node import SlurmNode, hold_of, is_name, read_json, read_text
from schedulers.slurm.plan import NodeUpdate, SlurmState, plan

# Reservations of ours: no new job on a suspect until a hint's end, jobs that run go on. Named `foreshock-<hint>`.
#
# They end by themselves at the hint's end, with us or without.

_PREFIX = "foreshock-"
_LINE = re.compile(
    rf"^ReservationName={_PREFIX}(\S+) .*? ?EndTime=(\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d) ", re.ASCII | re.MULTILINE
)


def read_reservations(text: str) -> dict[str, datetime]:
    """The ends of our reservations, by hint, from `scontrol -o show reservation`, told in UTC."""
    return {found[1]: datetime.fromisoformat(found[2]).replace(tzinfo=UTC) for found in _LINE.finditer(text)}


def reservation_calls(write: NodeUpdate, commands: SlurmCommands) -> Iterator[CommandResult]:
    """What a write asks of reservations, in order.

    Raises:
        SchedulerAwayError: nobody answers.
    """
    if write.unreserve is not None:
        yield commands.run("scontrol", "delete", f"reservation={_PREFIX}{write.unreserve}")
    if write.reserve is not None and write.until is not None:
        name = f"ReservationName={_PREFIX}{write.reserve}"
        end = f"EndTime={write.until.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
        if write.is_extended:
            yield commands.run("scontrol", "update", name, end)
        else:
            # IGNORE_JOBS: running ones do not stand in its way. Nobody submits to it: it is for the one who made it.
            means = ("StartTime=now", end, "Users=root", "Flags=IGNORE_JOBS")
            yield commands.run("scontrol", "create", "reservation", name, f"Nodes={write.node}", *means)


# When a controller was started, as `scontrol show config` tells it.

_MOMENT = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
_ASKED = re.compile(rf"^Configuration data as of {_MOMENT}", re.ASCII | re.MULTILINE)
_STARTED = re.compile(rf"^BOOT_TIME\s*=\s*{_MOMENT}", re.ASCII | re.MULTILINE)


def read_start(text: str, now: datetime) -> datetime | None:
    """The start by our own clock: so long ago as it is by the controller's. None where it is not told.

    Both are told in whole seconds: it may have been up to a second earlier or later.
    """
    answered, started = _ASKED.search(text), _STARTED.search(text)
    if answered is None or started is None:
        return None
    up = datetime.fromisoformat(answered[1]) - datetime.fromisoformat(started[1])
    return now - max(up, timedelta())


# A single word of a command may have 128 KiB on Linux (MAX_ARG_STRLEN); a shell beyond ssh may take less.
_MOST_LIST = 60_000
_CAPPED = "the cap on calls (calls_per_min) is reached"


class Slurm:
    """One cluster's controller. Not for two threads at once."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self._commands = SlurmCommands(settings)
        self._has_json = True  # until scontrol says that it knows no such option

    @property
    def name(self) -> str:
        """As the configuration names it."""
        return self._settings.name

    @property
    def address(self) -> str:
        """Its slurm.conf, and by way of what."""
        return self._commands.address

    @property
    def avoid_takes(self) -> bool:
        """Whether an `avoid` is a reservation."""
        return self._settings.avoid_takes

    def started(self) -> datetime | None:
        """When its controller was started: one that is killed loses the changes of its last seconds.

        Raises:
            SchedulerAwayError: it cannot be asked.
        """
        said = self._commands.run("scontrol", "show", "config")
        if said.code:
            raise SchedulerAwayError(f"scontrol show config: {said.error}")
        return read_start(said.out, datetime.now(UTC))

    def observe(self) -> Sequence[Hold]:
        """Every node that it knows.

        Raises:
            SchedulerAwayError: it cannot be asked, or its answer cannot be read.
        """
        nodes, reserved = self._read_all(), self._reserved()
        return [hold_of(node, self._settings, reserved) for node in nodes.values()]

    def look(self, names: Sequence[str]) -> Mapping[str, Hold]:
        """Some nodes alone; a name that it does not know is left out.

        Raises:
            SchedulerAwayError: as above.
        """
        nodes, reserved = self._read([name for name in names if is_name(name)]), self._reserved()
        return {name: hold_of(node, self._settings, reserved) for name, node in nodes.items()}

    def carry_out(self, orders: Sequence[Order]) -> Sequence[OrderReport]:
        """Bring nodes to where they are to be; what is beyond the cap on calls is to be asked again.

        Raises:
            SchedulerAwayError: it cannot be asked; some orders may have been carried out.
        """
        reports: list[OrderReport] = []
        for some in rounds(orders, self._settings.nodes_per_read):
            if self._commands.allowance.has_some:
                reports += self._round(some)
            else:
                reports += [OrderReport(order.node, "retry", _CAPPED) for order in some]
        return reports

    def ask_jobs(self, orders: Sequence[JobOrder]) -> Sequence[OrderReport]:
        """Ask something of running jobs.

        Raises:
            SchedulerAwayError: it cannot be asked; some may have been asked.
        """
        return [
            ask_job(order, self._settings, self._commands)
            if self._commands.allowance.has_some
            else OrderReport(order.job, "retry", _CAPPED)
            for order in orders
        ]

    def close(self) -> None:
        """Nothing is kept between two calls."""

    def _round(self, orders: Sequence[Order]) -> list[OrderReport]:
        """Some orders of as many nodes: read, write, read again."""
        before = self._read_state(orders)
        first = [(order, plan(order, before)) for order in orders]
        reports = [step for _order, step in first if isinstance(step, OrderReport)]
        complaints = self._write([step for _order, step in first if isinstance(step, NodeUpdate)])
        written = [order for order, step in first if isinstance(step, NodeUpdate)]
        if not written:
            return reports
        after = self._read_state(written)
        for order in written:
            step = plan(order, after)
            if isinstance(step, NodeUpdate):
                why = complaints.get(order.node) or f"it is {after.nodes[order.node].state} after the update"
                step = OrderReport(order.node, "retry", why)
            reports.append(step)
        return reports

    def _read_state(self, orders: Iterable[Order]) -> SlurmState:
        names = [order.node for order in orders if is_name(order.node)]
        reserved = self._reserved()  # before the nodes: their reading is to be the last before the writing
        return SlurmState(self._settings, self._read(names), reserved)

    def _write(self, writes: Sequence[NodeUpdate]) -> Mapping[str, str]:
        """Send updates, equal ones in one call; what was complained of, by node."""
        complaints: dict[str, str] = {}
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for write in writes:
            for said in reservation_calls(write, self._commands):
                if said.code:
                    complaints[write.node] = said.error
            if write.words:
                alike[write.words].append(write.node)
        for words, nodes in alike.items():
            for some in name_lists(nodes):
                if not self._commands.allowance.has_some:
                    complaints |= dict.fromkeys(some, _CAPPED)
                    continue
                complaints |= self._update(some, words)
        return complaints

    def _update(self, nodes: Sequence[str], words: Sequence[str]) -> Mapping[str, str]:
        """One update of many nodes. One bad node fails the call, with some done and some not: then one by one."""
        said = self._commands.run("scontrol", "update", f"nodename={','.join(nodes)}", *words)
        if said.code == 0:
            return {}
        if len(nodes) == 1:
            return {nodes[0]: said.error}
        return {node: why for one in nodes for node, why in self._update([one], words).items()}

    def _reserved(self) -> Mapping[str, datetime]:
        if self._settings.soft != "reservation":
            return {}
        said = self._commands.run("scontrol", "-o", "show", "reservation")
        if said.code:
            raise SchedulerAwayError(f"scontrol show reservation: {said.error}")
        return read_reservations(said.out)

    def _read_all(self) -> Mapping[str, SlurmNode]:
        nodes = self._show(None)
        if not nodes:
            raise SchedulerAwayError("scontrol show node names no node")
        return nodes

    def _read(self, names: Sequence[str]) -> Mapping[str, SlurmNode]:
        wanted = frozenset(names)
        found = {name: node for some in name_lists(names) for name, node in self._show(some).items()}
        return {name: node for name, node in found.items() if name in wanted}

    def _show(self, names: Sequence[str] | None) -> Mapping[str, SlurmNode]:
        """These nodes, or all. A name that is none is complained of, the others are told."""
        which = [] if names is None else [",".join(names)]
        if self._has_json:
            said = self._commands.run("scontrol", "show", "node", *which, "--json")
            self._has_json = "option" not in said.error or said.code == 0
            if said.code == 0:
                try:
                    return read_json(said.out)
                except ValueError:  # a form that is not known here: the lines of text are the same in every version
                    self._has_json = False
        said = self._commands.run("scontrol", "-o", "show", "node", *which)
        nodes = read_text(said.out)
        if said.code and not nodes and "not found" not in f"{said.error} {said.out}":
            raise SchedulerAwayError(f"scontrol show node: {said.error}")
        return nodes


def rounds(orders: Sequence[Order], most: int) -> Iterator[list[Order]]:
    """The orders in their order, some at a time, no node twice in one round."""
    some: list[Order] = []
    taken: set[str] = set()
    for order in orders:
        if len(some) >= most or order.node in taken:
            yield some
            some, taken = [], set()
        some.append(order)
        taken.add(order.node)
    if some:
        yield some


def name_lists(names: Sequence[str]) -> Iterator[list[str]]:
    """Names, as many at a time as one word of a command may hold."""
    some: list[str] = []
    length = 0
    for name in dict.fromkeys(names):
        if some and length + len(name) + 1 > _MOST_LIST:
            yield some
            some, length = [], 0
        some.append(name)
        length += len(name) + 1
    if some:
        yield some
