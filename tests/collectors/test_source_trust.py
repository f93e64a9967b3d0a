"""Whose word each source is: by its kind, its path, its format, its owner and mode, and by what the operator says."""

from pathlib import Path

import pytest

from collectors import trust
from collectors.agent.supervisor import SourceSpec
from collectors.collector import SourceError, SourceSettings
from collectors.metrics import SidecarMetrics
from collectors.registry import SCHEMES
from collectors.trust import gives_nothing, trust_of
from parsers.registry import PARSERS
from store.records.event_sources import TRUSTS, WORK, may_tell, narrower


@pytest.fixture(autouse=True)
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """journald owns the place where programs log to."""
    link = tmp_path / "dev-log"
    link.symlink_to("/run/systemd/journal/dev-log")
    monkeypatch.setattr(trust, "SYSLOG_SOCKET", link)
    return link


@pytest.mark.parametrize(
    ("spec", "whose"),
    [
        ("kmsg", "kernel"),
        ("journal", "kernel"),
        ("journal:/host/var/log/journal", "kernel"),
        ("infiniband", "system"),
        ("subnet:/opt/ufm/files/log/opensm-subnet.lst", "system"),
        ("nvml", "system"),
        ("scrape:http://127.0.0.1:9400/metrics", "system"),
        ("prometheus:http://127.0.0.1:9090", "system"),
        ("redfish:/etc/foreshock/bmc.list", "system"),
        ("checkpoints:/ckpt", "user"),
        ("nvrx:/run-7", "user"),
        ("exec:ibqueryerrors:/usr/sbin/ibqueryerrors", "system"),
        ("exec:training:cat /log", "user"),
        ("file:/none/kern.log", "kernel"),
        ("file:/none/kern.log.1", "kernel"),
        ("file:/none/kern.log-20261101.gz", "kernel"),
        ("file:/none/gpu-017.log:kernel", "kernel"),
        ("file:/none/opensm.log", "system"),
        ("file:/none/osm.log:opensm", "system"),
        ("file:/none/jobs.csv", "system"),
        ("file:/none/fm.log:fabricmanager", "system"),
        ("file:/none/syslog", "user"),
        ("file:/none/messages:kernel", "user"),
        ("file:/none/syslog:fabricmanager", "user"),
        ("file:/var/log/containers/x.log:kernel", "user"),
        ("file:/none/run.log", "user"),
        ("file:/none/run.log:auto", "user"),
        ("file:/none/*.log", "user"),
        ("file:/none/*.log:training", "user"),
        ("file:/none/*.jsonl:hook", "user"),
        ("file:/none/kern.log:training", "user"),
    ],
)
def test_a_source_has_the_trust_of_its_kind_path_and_format(spec: str, whose: str) -> None:
    """And says why."""
    found = trust_of(spec)
    assert (found.trust, bool(found.why)) == (whose, True)


def test_every_kind_of_source_has_a_trust() -> None:
    """A new one is not forgotten."""
    for scheme in SCHEMES:
        assert scheme in {*trust._SOURCES, "file", "exec"}, f"collectors/trust.py does not say whose word {scheme} is"


def test_every_format_is_told_by_the_system_and_only_work_by_users() -> None:
    """By the testimony of each; the kernel's log tells of nothing else."""
    assert all(may_tell("system", name) for name in PARSERS)
    assert {name for name in PARSERS if may_tell("user", name)} == set(PARSERS) & WORK
    assert [name for name in PARSERS if may_tell("kernel", name)] == ["kernel"]
    assert not may_tell("user", "a-sites-own-program")
    assert all(narrower(one, other) == narrower(other, one) for one in TRUSTS for other in TRUSTS)
    assert narrower("kernel", "user") == narrower("system", "user") == "user"


def test_the_weakest_file_of_a_pattern_counts(tmp_path: Path) -> None:
    """One that everybody may write makes the pattern everybody's."""
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("x\n")
    assert trust_of(f"file:{tmp_path}/*.log:kernel").trust == "kernel"
    (tmp_path / "b.log").chmod(0o666)
    assert trust_of(f"file:{tmp_path}/*.log:kernel") == trust.SourceTrust("user", "every user may write it")


def test_a_syslog_daemon_that_listens_itself_makes_kern_log_anybodys(socket: Path) -> None:
    """Only journald corrects the facility that a program claims."""
    socket.unlink()
    assert trust_of("file:/none/kern.log").trust == "kernel", "no program can log there"
    socket.symlink_to("/run/rsyslog/dev-log")
    assert trust_of("file:/none/kern.log").trust == "user"
    assert trust_of("file:/none/kern.log", "kernel").trust == "kernel"


def test_what_an_operator_says_holds() -> None:
    """Behind a SPEC, or in the configuration's mapping; the SPEC keeps its name, and so its place."""
    written = SourceSpec.of("file:/var/log/messages:kernel#trust=system")
    assert written == SourceSpec("file:/var/log/messages:kernel", trust="system")
    assert written.source_trust().trust == "system"
    with pytest.raises(SourceError, match="use one of kernel, system, user"):
        SourceSpec.of("file:/var/log/messages#trust=root")


def test_a_format_that_its_source_may_not_tell_is_named() -> None:
    """Such a source would give nothing, without a word."""
    assert gives_nothing("file:/var/log/syslog:kernel", "user") == "kernel"
    assert gives_nothing("file:/var/log/x", "user", "opensm") == "opensm"
    assert gives_nothing("exec:sinfo:sinfo -R", "user") == "sinfo"
    assert gives_nothing("file:/var/log/x:training", "user") is None
    assert gives_nothing("file:/var/log/x", "user") is None
    assert gives_nothing("kmsg", "kernel") is None


def test_refused_lines_and_trust_are_figures() -> None:
    """Of each source and reason, from 0 on."""
    metrics = SidecarMetrics()
    metrics.source("kmsg").trust = "kernel"
    text = metrics.page(process=False).decode()
    assert 'foreshock_sidecar_refused_lines_total{reason="trust",source="kmsg"} 0.0' in text
    assert 'foreshock_sidecar_source_trust{source="kmsg",trust="kernel"} 1.0' in text


def test_settings_carry_the_trust_to_the_collector() -> None:
    """With the source's other options."""
    settings = SourceSpec("file:/x:kernel", trust="user").settings(SourceSettings(node="n"))
    assert settings.trust == "user"
