"""Configuration, serve and hints: the edges that an operator meets at night."""

import getpass
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import click
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from api.server.settings import SCOPES, ApiSettings
from cli.commands.db import db
from cli.commands.hints import hints
from cli.commands.serve import serve
from cli.config.fill import check_keys, convert, fill, listed, mapping
from cli.config.server import load_settings
from cli.config.tokens import secret
from cli.console.errors import Failure
from cli.console.store import open_store
from schedulers.policy.settings import Policy
from store.database.connections import migrate, open_database, writing
from store.hints.hint_log import audit_page, save_hint
from store.records.hint import Hint

SECRET = "whsec_c2hvd24taW4tYW4tZXhhbXBsZS1vbmx5LTEyMzQ="
NOW = datetime.now(UTC)


def refused(tmp_path: Path, text: str, **environ: str) -> str:
    """The one sentence with which a file is refused."""
    file = tmp_path / "f.yaml"
    file.write_text(text)
    with pytest.raises(click.ClickException) as caught:
        load_settings(file, environ)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("budgets: {percent_of_nodes: .inf}", ["percent_of_nodes", "finite"]),
        ("budgets: {percent_of_nodes: .nan}", ["percent_of_nodes", "not negative"]),
        ("intervals: {score_s: .inf}", ["intervals, score_s", "finite"]),
        ("validity: {avoid_s: .inf}", ["validity, avoid_s", "finite"]),
        ("validity: {avoid_s: -1}", ["validity, avoid_s", "not negative"]),
        ("breaker: {window_s: '60'}", ["breaker, window_s", "number"]),
        ("mode: 2024-13-45", ["f.yaml is no YAML", "month"]),
        ("mode: [shadow]", ["mode", "shadow, approve, act"]),
        ("mode: off", ["mode", "'False'"]),
        ("schedulers: [{kind: [webhook]}]", ["schedulers[0], kind", "webhook"]),
        ("schedulers: [7]", ["schedulers[0]", "expected keys and values"]),
        ("schedulers: {kind: webhook}", ["schedulers", "expected a list"]),
        (f"schedulers: [{{kind: webhook, name: a, url: 'http://[', secret: {SECRET}}}]", ["url", "http://"]),
        (f"schedulers: [{{kind: webhook, name: a, url: 'http://x:99999', secret: {SECRET}}}]", ["url", "http://"]),
        (f"schedulers: [{{kind: webhook, name: a, url: 'http://x:port', secret: {SECRET}}}]", ["url", "http://"]),
        (f"schedulers: [{{kind: webhook, name: a, url: 'http://', secret: {SECRET}}}]", ["url", "http://"]),
        (f"schedulers: [{{kind: webhook, name: a, url: 'x.example', secret: {SECRET}}}]", ["url", "http://"]),
        ("tokens: [{name: 5, sha256: x, scopes: [read]}]", ["tokens[0]", "needs a name"]),
        (f"tokens: [{{name: a, sha256: {'a' * 64}, scopes: read}}]", ["tokens[0], scopes", "list"]),
        (
            f"tokens: [{{name: a, sha256: {'a' * 64}, scopes: [[read]]}}]",
            ["ingest:fleet, read", "report, join"],
        ),
        (f"tokens: [{{name: a, sha256: {'g' * 64}, scopes: [read]}}]", ["64 hex digits"]),
        ("thresholds: {checkpoint: 1.5}", ["<= 1"]),
        ("thresholds: {avoid: 0}", ["watch <= avoid"]),
        ("? [a]\n: b", ["no YAML"]),
        ("mode: !!python/object:os.system x", ["no YAML"]),
        ("5", ["expected keys and values", "'5'"]),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(tmp_path: Path, text: str, words: list[str]) -> None:
    """With place and remedy; never a trace."""
    said = refused(tmp_path, text)
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("FORESHOCK_MODE", "2024-13-45", "shadow, approve, act"),
        ("FORESHOCK_MODE", "[", "shadow, approve, act"),
        ("FORESHOCK_MODE", "", "nothing"),
        ("FORESHOCK_BUDGETS__NODES", "many", "whole number"),
        ("FORESHOCK_BUDGETS__NODES", "1.5", "whole number"),
        ("FORESHOCK_INTERVALS__SCORE_S", ".inf", "finite"),
        ("FORESHOCK_THRESHOLDS__AVOID", "2", "probabilities"),
    ],
)
def test_a_mistake_in_the_environment_is_one_sentence(variable: str, value: str, words: str) -> None:
    """The same checks, whoever said it."""
    with pytest.raises(Failure, match=words):
        load_settings(None, {variable: value})


def test_an_empty_file_holds_the_defaults(tmp_path: Path) -> None:
    """So do empty groups."""
    for text in ("", "# nothing\n", "budgets:\nthresholds: {}\ntokens:\nschedulers: []\n"):
        (tmp_path / "f.yaml").write_text(text)
        assert load_settings(tmp_path / "f.yaml", {}) == ApiSettings()


def test_the_environment_does_not_break_a_group_that_is_none(tmp_path: Path) -> None:
    """A scalar where a group belongs is refused by its name."""
    assert "budgets" in refused(tmp_path, "budgets: 5", FORESHOCK_BUDGETS__NODES="3")


def test_a_token_of_the_environment_joins_those_of_the_file(tmp_path: Path) -> None:
    """And may not bear the name of one of them."""
    digest = "A" * 64
    (tmp_path / "f.yaml").write_text(f"tokens: [{{name: a, sha256: {digest}, scopes: [read, read]}}]")
    settings = load_settings(tmp_path / "f.yaml", {"FORESHOCK_TOKEN": "x" * 16})
    assert [(token.name, sorted(token.scopes)) for token in settings.tokens] == [
        ("a", ["read"]),
        ("environment", sorted(set(SCOPES) - {"on_behalf"})),
    ]
    assert settings.tokens[0].sha256 == "a" * 64
    clash = f"tokens: [{{name: environment, sha256: {digest}, scopes: [read]}}]"
    assert "'environment' is there twice" in refused(tmp_path, clash, FORESHOCK_TOKEN="x" * 16)
    assert "under 16 characters" in refused(tmp_path, "", FORESHOCK_TOKEN="x" * 15)


def test_a_secret_s_file_goes_before_its_variable(tmp_path: Path) -> None:
    """Trimmed; one that cannot be read, is empty or no text is named."""
    file = tmp_path / "token"
    file.write_text("  from-the-file\n\n")
    assert secret({"T_FILE": str(file), "T": "from-the-variable"}, "T") == "from-the-file"
    assert secret({"T": "x"}, "T") == "x"
    assert secret({"T": ""}, "T") is None
    assert secret({}, "T") is None
    for content, words in ((b" \n", "is empty"), (b"\xff\xfe", "cannot read")):
        file.write_bytes(content)
        with pytest.raises(Failure, match=words):
            secret({"T_FILE": str(file)}, "T")
    with pytest.raises(Failure, match="T_FILE: cannot read"):
        secret({"T_FILE": str(tmp_path)}, "T")


@dataclass(frozen=True)
class Inner:
    """A group."""

    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    """Settings with every kind of value."""

    name: str
    count: int = 1
    on: bool = False
    way: Literal["up", "down"] = "up"
    inner: Inner = field(default_factory=Inner)


def test_a_record_is_filled_from_a_mapping() -> None:
    """A whole number is a number; what is not there keeps its default; groups nest."""
    found = fill(Outer, {"name": "a", "on": True, "way": "down", "inner": {"share": 1}}, "f")
    assert found == Outer("a", 1, True, "down", Inner(1.0))
    assert type(found.inner.share) is float


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "f: a key is missing .*name"),
        ({"name": 5}, "f, name: expected text, found '5'"),
        ({"name": None}, "f, name: expected text, found nothing"),
        ({"name": "a", "count": 1.0}, "f, count: expected a whole number"),
        ({"name": "a", "count": True}, "f, count: expected a whole number"),
        ({"name": "a", "on": 1}, "f, on: expected true or false"),
        ({"name": "a", "way": "left"}, "f, way: 'left' is none of up, down"),
        ({"name": "a", "inner": 5}, "f, inner: expected keys and values"),
        ({"name": "a", "inner": {"share": "x"}}, "f, inner, share: expected a finite number"),
        ({"name": "a", "inner": {"shares": 1}}, "f, inner: unknown key 'shares': did you mean 'share'"),
        ({"nam": "a"}, "f: unknown key 'nam': did you mean 'name'"),
        ({"name": "a", "inner": {"xyz": 1}}, "f, inner: unknown key 'xyz': known are share"),
        (["name"], "f: expected keys and values"),
    ],
)
def test_what_does_not_fill_a_record_is_named(table: Any, words: str) -> None:
    """With its place, down to the key."""
    with pytest.raises(Failure, match=words):
        fill(Outer, table, "f")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_no_value_is_a_crash(value: Any) -> None:
    """It fits, or it is refused in a sentence; a number that fits is finite and not negative."""
    for kind in (str, int, float, bool, Literal["a"], Policy):
        try:
            found = convert(kind, value, "f")
        except Failure as failure:
            assert failure.message.startswith("f")
        else:
            assert kind not in (int, float) or 0 <= found < float("inf")


def test_nothing_is_an_empty_list_or_mapping() -> None:
    """As YAML gives for a key without a value."""
    assert (mapping(None, "f"), listed(None, "f")) == ({}, [])
    check_keys({}, (), "f")
    with pytest.raises(Failure, match=r"unknown key 'a'$"):
        check_keys({"a": 1}, (), "f")


def test_a_database_of_another_release_is_refused_with_the_remedy(engine: sa.Engine) -> None:
    """Not migrated yet: a command does it; ahead of this program: a newer one is needed."""
    url = engine.url.render_as_string()
    for version, remedy in (("0001", f"foreshock db migrate --db {url}"), ("zzzz", "install the newer program")):
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = :version"), {"version": version})
        with pytest.raises(Failure, match=remedy):
            open_store(url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """By every command, in one sentence."""
    (tmp_path / "x.db").write_text("this is no database, just some text that is long enough")
    url = f"sqlite:///{tmp_path / 'x.db'}"
    for command, arguments in (
        (serve, ["--port", "0"]),
        (hints, ["list"]),
        (db, ["migrate"]),
        (db, ["prune", "--keep-days", "30"]),
        (db, ["export", str(tmp_path / "out")]),
    ):
        done = CliRunner().invoke(command, [*arguments, "--db", url])
        assert done.exit_code == 2, (arguments, done.output)
        assert "x.db" in done.output
        assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "no token is configured"),  # noqa: S104  # refused is the point
        (["--host", "gpu-001"], "no token is configured"),
        (["--port", "65536"], "65536"),
        (["--config", "/nowhere.yaml"], "cannot read /nowhere.yaml"),
        (["--replay-clock", "a/b/c"], "--replay-clock"),
        ([], "Missing option '--db'"),
    ],
)
def test_serve_refuses_before_it_starts(tmp_path: Path, options: list[str], words: str) -> None:
    """Exit 2, and no thread or socket is left."""
    chosen = [] if not options else ["--db", f"sqlite:///{tmp_path / 'a.db'}"]
    done = CliRunner().invoke(serve, [*options, *chosen], env={"FORESHOCK_DB": None})
    assert done.exit_code == 2
    assert words in done.output
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("loop-")]


def test_who_has_no_name_acts_as_cli(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user often is in no list of users."""

    def nameless() -> str:
        raise KeyError("uid 10001")

    monkeypatch.setattr(getpass, "getuser", nameless)
    hint = Hint("h1", "n1", "cordon", "proposed", "foreshock: t", "foreshock", NOW, NOW + timedelta(days=1))
    with writing(engine).begin() as connection:
        save_hint(connection, hint, NOW, {})
    done = CliRunner().invoke(hints, ["withdraw", "h1", "--db", engine.url.render_as_string()])
    assert done.output == "hint h1 of node n1 (cordon) is withdrawn\n"
    with engine.connect() as connection:
        assert audit_page(connection, 1, None, "h1")[0]["actor"] == "cli"


def test_a_list_of_nothing_says_where_to_look(tmp_path: Path) -> None:
    """And `--state all` has nowhere further."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    engine = open_database(url)
    migrate(engine)
    engine.dispose()
    assert CliRunner().invoke(hints, ["list", "--db", url]).output.startswith("no hints (open); --state all")
    assert CliRunner().invoke(hints, ["list", "--db", url, "--state", "all"]).output == "no hints\n"
    assert CliRunner().invoke(hints, ["list", "--db", url, "--json"]).output.strip() == "[]"
    assert CliRunner().invoke(hints, ["list", "--db", url, "--state", "gone"]).exit_code == 2
