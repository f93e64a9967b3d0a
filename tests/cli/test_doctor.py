"""`foreshock doctor`."""

import json
from pathlib import Path

import sqlalchemy as sa
from click.testing import CliRunner

from cli.commands.doctor import doctor, server_tokens
from store.database.connections import newest_revision


def checks(*args: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code and the findings by name."""
    result = CliRunner().invoke(doctor, ["--json", *args])
    rows, _ = json.JSONDecoder().raw_decode(result.stdout)
    return result.exit_code, {row["check"]: row for row in rows}


def test_a_whole_installation_is_in_order() -> None:
    """Every package of the extras is here, the catalogues are readable."""
    code, found = checks()
    assert code == 0
    assert found["extra server"]["result"] == "ok"
    assert "sqlalchemy" in found["extra server"]["detail"]
    assert found["fault catalogues"]["result"] == "ok"


def test_a_migrated_database_is_in_order(engine: sa.Engine) -> None:
    """The schema that migrations made is the one that is asked for."""
    code, found = checks("--db", str(engine.url))
    assert code == 0
    assert found["database"]["detail"] == f"schema {newest_revision()}"


def test_an_empty_database_is_wrong_and_names_the_remedy(tmp_path: Path) -> None:
    """A database without a schema fails the check with exit 3."""
    code, found = checks("--db", f"sqlite:///{tmp_path}/new.db")
    assert code == 3
    assert "foreshock db migrate" in found["database"]["detail"]


def test_a_file_that_is_no_database_is_told_once_and_with_its_remedy(tmp_path: Path) -> None:
    """As other commands tell it; what the database would hold is not asked for."""
    file = tmp_path / "notes.txt"
    file.write_text("certainly no database, but long enough to have a header" * 40)
    code, found = checks("--db", f"sqlite:///{file}")
    assert code == 3
    assert "correct --db where it never was one" in found["database"]["detail"]
    assert not {"inventory", "models"} & set(found)


def test_a_malformed_database_url_is_wrong() -> None:
    """What is no URL is named, not raised."""
    code, found = checks("--db", "mysql://x")
    assert code == 3
    assert "sqlite:///PATH" in found["database"]["detail"]


def test_a_silent_server_is_wrong() -> None:
    """Nothing listens on port 1."""
    code, found = checks("--server", "http://127.0.0.1:1")
    assert code == 3
    assert "foreshock serve" in found["server"]["detail"]


def test_the_table_is_for_people() -> None:
    """Without --json the findings are an aligned table."""
    result = CliRunner().invoke(doctor)
    assert result.output.startswith("CHECK")


def test_each_source_of_a_sidecar_is_listed_with_its_trust(tmp_path: Path) -> None:
    """One that may not tell what its format says is wrong, and the remedy stands there."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(
        "server: http://127.0.0.1:1\nsource:\n  - kmsg\n  - file:/none/run.log:training\n"
        "  - file:/none/syslog:kernel\n  - {source: 'file:/none/messages:kernel', trust: system}\n"
    )
    code, found = checks("--config", str(file))
    listed = {name: (row["result"], row["detail"].split(":")[0]) for name, row in found.items() if "source " in name}
    assert listed == {
        "source kmsg": ("ok", "trust kernel"),
        "source file:/none/run.log:training": ("ok", "trust user"),
        "source file:/none/syslog:kernel": ("wrong", "trust user"),
        "source file:/none/messages:kernel": ("ok", "trust system"),
    }
    assert "say `trust: system`" in found["source file:/none/syslog:kernel"]["detail"]
    assert code == 3


def test_a_token_that_speaks_for_every_node_unasked_is_named(tmp_path: Path) -> None:
    """Mode act is refused with it; the remedy is beside it."""
    file = tmp_path / "foreshock.yaml"
    file.write_text(f"tokens: [{{name: shared, sha256: {'a1' * 32}, scopes: [ingest]}}]")
    check = server_tokens(file)
    assert (check.check, check.result) == ("tokens", "wrong")
    assert "shared may report faults of every node: write `node:`" in check.detail
    file.write_text(file.read_text().replace("[ingest]", '[ingest], node: "*"'))
    assert server_tokens(file).result == "ok"
    file.write_text("mode: shadow")
    assert "has none; `foreshock token list` shows" in server_tokens(file).detail
    file.write_text("tokens: [{name: shared}]")
    assert "sha256: expected 64 hex digits" in server_tokens(file).detail
