"""`foreshock sidecar` from its command line to its settings."""

from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from cli.config.sidecar import File, load, settings_from
from cli.console.errors import Failure
from cli.main import foreshock
from collectors.agent.sidecar import DEFAULT_PORT
from collectors.agent.supervisor import SourceSpec


def write(tmp_path: Path, text: str) -> Path:
    """A configuration file."""
    path = tmp_path / "sidecar.yaml"
    path.write_text(text)
    return path


def file_of(values: dict[str, object]) -> File:
    """A file with these keys, one a line."""
    return File(values, {key: f"sidecar.yaml:{line}" for line, key in enumerate(values, start=1)})


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    """And defaults fill the rest."""
    file = load(
        write(tmp_path, "server: http://file:1\nnode: from-file\nsource: [kmsg, journal]\nscrape-interval-s: 5\n")
    )
    environ = {"FORESHOCK_NODE": "from-environment", "FORESHOCK_DB": "sqlite:///ignored", "TZ": "Europe/Berlin"}
    options = {"server": "http://option:2", "source": (), "port": 0, "spool": None}
    settings = settings_from(options, file, environ)
    assert (settings.servers, settings.node, settings.port) == (("http://option:2",), "from-environment", 0)
    assert settings.sources == (SourceSpec("kmsg"), SourceSpec("journal"))
    assert settings.scrape_interval_s == 5.0
    assert settings.zone == ZoneInfo("Europe/Berlin")
    assert settings.listen == "127.0.0.1"


def test_a_source_may_be_one_word_in_the_file_and_several_on_the_line() -> None:
    """The line's replace the file's."""
    one = settings_from({"source": ()}, file_of({"server": "http://x", "source": "kmsg"}), {})
    assert (one.sources, one.port) == ((SourceSpec("kmsg"),), DEFAULT_PORT)
    both = settings_from({"source": ("journal", "file:/a b")}, file_of({"server": "http://x", "source": "kmsg"}), {})
    assert both.sources == (SourceSpec("journal"), SourceSpec("file:/a b"))


def test_the_spool_is_where_systemd_says(tmp_path: Path) -> None:
    """Else the system's place for root and the user's for others."""
    given = file_of({"server": "http://x", "source": "kmsg"})
    assert settings_from({}, given, {"STATE_DIRECTORY": f"{tmp_path}:/other"}).spool == tmp_path
    assert settings_from({}, given, {"XDG_STATE_HOME": str(tmp_path)}).spool.name == "foreshock"
    assert settings_from({"spool": tmp_path / "s"}, given, {"STATE_DIRECTORY": "/other"}).spool == tmp_path / "s"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": "kmsg"}, "--server is missing"),
        ({"server": "foreshock.example.org", "source": "kmsg"}, "http:// or https://"),
        ({"server": "http://x"}, "--source is missing"),
        ({"server": "http://x", "source": []}, "--source is missing"),
        ({"server": "http://x", "source": "kmsg", "port": "many"}, "port is 'many'"),
        ({"server": "http://x", "source": "kmsg", "scrape_interval_s": -1}, "sidecar.yaml:3: scrape_interval_s is -1"),
        ({"server": "http://x", "source": "kmsg", "spool": None}, "spool is None"),
        ({"server": "http://x", "source": "kmsg", "zone": "Mars/Olympus"}, "zone 'Mars/Olympus'"),
    ],
)
def test_what_does_not_fit_is_said_with_a_remedy(values: dict[str, object], message: str) -> None:
    """One sentence."""
    with pytest.raises(Failure, match=message):
        settings_from({}, file_of(values), {})


def test_a_node_without_a_zone_file_has_its_clock_s_zone() -> None:
    """Some zone, with a fixed difference."""
    zone = settings_from({}, file_of({"server": "http://x", "source": "kmsg"}), {"TZ": "No/Such"}).zone
    assert zone.utcoffset(None) is None or isinstance(zone.utcoffset(None), timedelta)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- kmsg\n", "holds no keys"),
        ("node: n1\nserver: [", "sidecar.yaml:2: this is no YAML"),
        ("servr: http://x\n", "sidecar.yaml:1: 'servr' is no key"),
    ],
)
def test_a_wrong_file_is_said_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    """No YAML, no mapping, a key that is not known."""
    path = write(tmp_path, text)
    with pytest.raises(Failure, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_said_and_an_empty_one_says_nothing(tmp_path: Path) -> None:
    """An empty file is no keys."""
    with pytest.raises(Failure, match="cannot be read"):
        load(tmp_path / "none.yaml")
    assert load(write(tmp_path, "# nothing yet\n")) == File()
    assert load(None) == File()


def test_bad_usage_exits_with_two_and_one_sentence(tmp_path: Path) -> None:
    """Before anything is started: a source that is not known, a format that is not known."""
    for source, message in (("floppy", "is no source"), ("file:/x:kernle", "kernle is no format")):
        arguments = ["sidecar", "--server", "http://127.0.0.1:1", "--spool", str(tmp_path / "s"), "--source", source]
        result = CliRunner().invoke(foreshock, [*arguments, "--port", "0"])
        assert result.exit_code == 2
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_a_spool_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "s").write_text("")
    arguments = ["sidecar", "--server", "http://127.0.0.1:1", "--spool", str(tmp_path / "s"), "--source", "kmsg"]
    result = CliRunner().invoke(foreshock, [*arguments, "--port", "0"])
    assert result.exit_code == 2
    assert "--spool" in result.stderr


def test_help_names_every_kind_of_source() -> None:
    """What a first reader looks for."""
    result = CliRunner().invoke(foreshock, ["sidecar", "--help"])
    assert result.exit_code == 0
    for word in ("kmsg", "journal", "file:PATH[:FORMAT]", "scrape:URL", "--spool", "--config"):
        assert word in result.output
