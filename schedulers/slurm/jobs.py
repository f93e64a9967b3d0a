"""Requests to a job that runs on a culprit: a signal to save, a requeue, the name of a spare; each by its setting.

A requeue ends the job's run, so it is done only where Slurm would not start it on the culprit again: the node is out of
service, by our drain or another's, or the job leaves it out (ExcNodeList).
"""

import re

from schedulers.reconcile.actuator import JobOrder, OrderReport
from schedulers.slurm.commands import CommandResult, SlurmCommands, SlurmSettings
from schedulers.slurm.node import is_ident, is_name, read_text
from store.records.hostlist import hosts

_JOB = re.compile(r"\d{1,12}(?:_\d{1,9})?(?:\+\d{1,9})?", re.ASCII)
_MARK = re.compile(r"\s*\[foreshock: swap [^\]]*\]")
_OUT = frozenset({"DRAIN", "FAIL", "DOWN"})
_RUNNING = frozenset({"RUNNING", "SUSPENDED"})
_GONE = "Invalid job id"


def ask_job(order: JobOrder, settings: SlurmSettings, commands: SlurmCommands) -> OrderReport:
    """Ask one thing of one job.

    Raises:
        SchedulerAwayError: nobody answers.
    """
    if not _JOB.fullmatch(order.job) or not is_name(order.node) or not is_ident(order.hint):
        return OrderReport(order.job, "refused", "no job's number of Slurm's, or no name of a node")
    if (why := _forbidden(order, settings)) is not None:
        return OrderReport(order.job, "refused", why)
    said = commands.run("scontrol", "-o", "show", "job", order.job)
    if said.code:
        return OrderReport(order.job, "absent" if _GONE in said.error else "retry", said.error)
    if _word(said.out, "JobState") not in _RUNNING:
        return OrderReport(order.job, "absent", f"it is {_word(said.out, 'JobState')}")
    if order.node not in hosts(_word(said.out, "NodeList")):
        return OrderReport(order.job, "absent", f"it does not run on {order.node} any more")
    if order.action == "checkpoint":
        signal = f"--signal={settings.checkpoint_signal}"
        return _report(order, commands.run("scancel", signal, "--batch", order.job))
    if order.action == "swap":
        return _swap(order, said.out, commands)
    return _requeue(order, said.out, settings, commands)


def _forbidden(order: JobOrder, settings: SlurmSettings) -> str | None:
    if order.action == "checkpoint" and settings.checkpoint_signal is None:
        return "checkpoint_signal is not set: a job without a handler would die of a signal"
    if order.action == "requeue" and not settings.requeue:
        return "requeue: false is set"
    if order.action == "swap" and not settings.swap_comment:
        return "swap_comment: false is set"
    if order.action not in ("checkpoint", "requeue", "swap"):
        return f"{order.action} is no action on a job"
    return None


def _swap(order: JobOrder, job: str, commands: SlurmCommands) -> OrderReport:
    """Write into the job's AdminComment which node to leave for which; what stood there stays."""
    spare = order.spare if order.spare is not None and is_name(order.spare) else "none"
    node = order.node if is_name(order.node) else "unknown"
    mark = f"[foreshock: swap node={node} spare={spare} id={order.hint}]"
    was = re.search(r" AdminComment=(.*?) (?= Comment=| Extra=| StdErr=| SystemComment=)", f"{job} ")
    old = was[1] if was else ""
    if mark in old:
        return OrderReport(order.job, "done", "it was written before")
    comment = f"{_MARK.sub('', old)} {mark}".strip()
    return _report(order, commands.run("scontrol", "update", f"jobid={order.job}", f"admincomment={comment}"))


def _requeue(order: JobOrder, job: str, settings: SlurmSettings, commands: SlurmCommands) -> OrderReport:
    if _word(job, "Requeue") != "1":
        return OrderReport(order.job, "refused", "the job forbids it (--no-requeue)")
    node = read_text(commands.run("scontrol", "-o", "show", "node", order.node).out).get(order.node)
    is_out = node is not None and bool(node.states & _OUT)
    if not is_out and not settings.exclude:
        return OrderReport(order.job, "retry", f"{order.node} still takes work: it could start there again")
    said = commands.run("scontrol", "requeuehold" if settings.exclude else "requeue", order.job)
    if said.code or not settings.exclude:
        return _report(order, said)
    excluded = [name for name in [_word(job, "ExcNodeList"), order.node] if name not in ("", "(null)")]
    left_out = commands.run("scontrol", "update", f"jobid={order.job}", f"excnodelist={','.join(excluded)}")
    freed = commands.run("scontrol", "release", order.job)  # whatever came of it: a job that stays held is lost
    if freed.code:
        return OrderReport(order.job, "retry", f"requeued and held: scontrol release {order.job}: {freed.error}")
    return OrderReport(order.job, "done", left_out.error if left_out.code else f"requeued without {order.node}")


def _report(order: JobOrder, said: CommandResult) -> OrderReport:
    if said.code == 0:
        return OrderReport(order.job, "done")
    return OrderReport(order.job, "absent" if _GONE in said.error else "retry", said.error)


def _word(text: str, key: str) -> str:
    found = re.search(rf"(?:^|\s){key}=(\S*)", text)
    return found[1] if found else ""
