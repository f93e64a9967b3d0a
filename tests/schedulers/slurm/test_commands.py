"""How Slurm's commands are run: programs of our own stand in for a prefix, a slow answer and a broken one."""

import shlex
from pathlib import Path

import pytest
from real.patience import patience

from schedulers.reconcile.actuator import Order, SchedulerAwayError
from schedulers.registry import ACTUATORS
from schedulers.slurm.actuator import Slurm
from schedulers.slurm.commands import CallAllowance, SlurmCommands, SlurmSettings, command_line

from .clusters import UNTIL

WORDS = ["update", "nodename=n1", 'reason=it\'s $(id) "x"; reboot']


def program(folder: Path, script: str) -> SlurmSettings:
    """A folder whose scontrol is this script."""
    path = folder / "scontrol"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return SlurmSettings(bin=str(folder), timeout_s=patience(5.0))


def test_a_remote_shell_gets_quoted_words_and_no_other_does() -> None:
    """What arrives behind ssh is read by a shell there; behind sudo it is not."""
    remote = command_line(
        SlurmSettings(prefix=("ssh", "-o", "BatchMode=yes", "head"), conf="/etc/a b"), "scontrol", WORDS
    )
    assert remote[:4] == ["ssh", "-o", "BatchMode=yes", "head"]
    assert shlex.split(" ".join(remote[4:]))[-4:] == ["scontrol", *WORDS]
    assert "SLURM_CONF=/etc/a b" in shlex.split(" ".join(remote[4:]))
    local = command_line(SlurmSettings(prefix=("sudo", "-n")), "scontrol", WORDS)
    assert local == ["sudo", "-n", "env", "TZ=UTC", "LC_ALL=C.UTF-8", "SLURM_TIME_FORMAT=standard", "scontrol", *WORDS]
    assert command_line(SlurmSettings(bin="/opt/slurm/bin"), "scontrol", WORDS) == ["/opt/slurm/bin/scontrol", *WORDS]


def test_words_reach_a_program_as_they_are_behind_a_shell(tmp_path: Path) -> None:
    """An ssh that hands its words to sh, as the real one does at the other end."""
    settings = program(tmp_path, 'for word; do printf "%s\\n" "$word"; done')
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    behind = SlurmSettings(bin=settings.bin, prefix=(str(ssh), "head"))
    assert SlurmCommands(behind).run("scontrol", *WORDS).out.splitlines() == WORDS


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exec sleep 60", "no answer within 0.2 s"),
        ("echo 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2; exit 1", "Unable to"),
        ("echo 'Slurm backup controller in standby mode' >&2; exit 1", "standby"),
        ("kill -9 $$", "ended with -9"),
    ],
)
def test_no_answer_is_a_scheduler_that_is_away(tmp_path: Path, script: str, said: str) -> None:
    """A timeout, a controller that is down, a program that is ended."""
    settings = program(tmp_path, script)
    slurm = Slurm(SlurmSettings(bin=settings.bin, timeout_s=0.2 if "sleep" in script else patience(5.0)))
    with pytest.raises(SchedulerAwayError, match=said):
        slurm.observe()


@pytest.mark.parametrize("script", ["exit 0", "echo nothing of Slurm", "echo 'Access denied' >&2; exit 1"])
def test_an_answer_without_nodes_is_no_empty_cluster(tmp_path: Path, script: str) -> None:
    """Else every hold would look undone."""
    with pytest.raises(SchedulerAwayError, match="node"):
        Slurm(program(tmp_path, script)).observe()


def test_a_missing_program_and_a_failing_ssh_are_away(tmp_path: Path) -> None:
    """With a word of what to set."""
    with pytest.raises(SchedulerAwayError, match="set bin or prefix"):
        Slurm(SlurmSettings(bin=str(tmp_path))).observe()
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'Host key verification failed.' >&2\nexit 255\n")
    ssh.chmod(0o755)
    with pytest.raises(SchedulerAwayError, match="Host key"):
        Slurm(SlurmSettings(prefix=(str(ssh), "head"))).carry_out([Order("n1", "h", "drain", "x", UNTIL)])


def test_json_is_asked_for_once_where_it_is_not_known(tmp_path: Path) -> None:
    """And read where it is."""
    asked = tmp_path / "asked"
    text = "NodeName=n1 Arch=x AllocTRES= State=IDLE Weight=1 "
    settings = program(
        tmp_path,
        f'echo "$*" >> {asked}\n'
        'case "$*" in *--json) echo "unrecognized option --json" >&2; exit 1;; esac\n'
        f'echo "{text}"',
    )
    slurm = Slurm(settings)
    assert [hold.node for hold in (*slurm.observe(), *slurm.observe())] == ["n1", "n1"]
    assert asked.read_text().splitlines() == ["show node --json", "-o show node", "-o show node"]
    newer = program(tmp_path, """echo '{"nodes": [{"name": "n2", "state": ["IDLE"]}]}'""")
    assert [hold.node for hold in Slurm(newer).observe()] == ["n2"]


def test_calls_are_counted_over_a_minute() -> None:
    """A minute's worth at once, then as many as the time brings; what had to go out is owed."""
    now = [0.0]
    allowance = CallAllowance(60, lambda: now[0])
    for _ in range(63):
        allowance.take()
    assert not allowance.has_some
    now[0] = 3.5
    assert not allowance.has_some
    now[0] = 4.0
    assert allowance.has_some
    now[0] = 10_000.0
    taken = 0
    while allowance.has_some:
        allowance.take()
        taken += 1
    assert taken == 60


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_s": 0.0},
        {"calls_per_min": 0},
        {"nodes_per_read": 0},
        {"avoid_weight": 0},
        {"avoid_weight": 2**32},
        {"opt_out": " "},
        {"checkpoint_signal": "USR1 9"},
        {"name": ""},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    """With the name of the setting."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SlurmSettings(**wrong)  # type: ignore[arg-type]


def test_the_registry_makes_it() -> None:
    """A configuration names it `slurm`; making it asks nobody."""
    made = ACTUATORS["slurm"].make(SlurmSettings(name="big", conf="/nowhere/slurm.conf", prefix=("sudo", "-n")))
    assert (made.name, made.address) == ("big", "/nowhere/slurm.conf through sudo -n")
