"""The server's configuration."""

from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml

from api.server.settings import SCOPES, ApiSettings
from cli.config.server import load_settings
from goodput.formulas.shape import Shape
from schedulers.policy.settings import Budgets
from store.database.retention import RetentionPeriods
from store.nodes.tokens import digest_of
from wire.access.address import is_loopback
from wire.money.price import parse_price

EXAMPLE = Path(__file__).parents[2] / "deploy" / "foreshock.example.yaml"
SECRET = "whsec_c2hvd24taW4tYW4tZXhhbXBsZS1vbmx5LTEyMzQ="


def load(tmp_path: Path, text: str, **environ: str) -> ApiSettings:
    """The settings of a file of this text."""
    file = tmp_path / "f.yaml"
    file.write_text(text)
    return load_settings(file, environ)


def refused(tmp_path: Path, text: str, **environ: str) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(click.ClickException) as caught:
        load(tmp_path, text, **environ)
    assert caught.value.exit_code == 2
    return caught.value.message


def test_without_a_file_the_defaults_hold() -> None:
    """Shadow mode, no tokens."""
    assert load_settings(None, {}) == ApiSettings()
    assert ApiSettings().mode == "shadow"


def test_the_example_does_not_load_until_it_has_tokens_of_the_site() -> None:
    """What everybody can read is no token."""
    with pytest.raises(click.ClickException) as caught:
        load_settings(EXAMPLE, {})
    assert "tokens[0], sha256: expected 64 hex digits" in caught.value.message
    assert "`foreshock token new NAME" in caught.value.message


def test_the_example_shows_every_key_and_the_defaults(tmp_path: Path) -> None:
    """It is the documentation: but for its tokens it must load, and lie about nothing."""
    text = EXAMPLE.read_text()
    for number, place in enumerate(("PUT-THE-SHA-256-OF-YOUR-OWN-TOKEN-HERE", "PUT-THE-SHA-256-OF-ANOTHER-TOKEN-HERE")):
        assert place in text
        text = text.replace(place, digest_of(f"a token of the site {number}"))
    settings = load(tmp_path, text)
    assert replace(settings, tokens=(), webhooks=()) == ApiSettings()
    assert [(token.name, token.nodes.text, sorted(token.scopes)) for token in settings.tokens] == [
        ("rack7", "gpu-[001-064]", ["ingest"]),
        ("dashboard", "*", ["act:approve", "act:reset", "act:stop", "read", "report"]),
    ]
    (webhook,) = settings.webhooks
    assert (webhook.name, webhook.send_shadow, webhook.timeout_s) == ("ops", False, 15.0)
    shown = yaml.safe_load(EXAMPLE.read_text())
    assert shown.keys() == {
        *("mode", "thresholds", "budgets", "breaker", "control", "validity", "training", "trial"),
        *("release", "job_watch", "stop", "approval", "hosts", "checks"),
        *("schedulers", "tokens", "inventory", "intervals", "keep", "limits"),
        *("body_limit_bytes", "silent_after_s", "processes"),
    }


def test_the_healthy_time_stands_under_release(tmp_path: Path) -> None:
    """The environment wins over the file."""
    both = load(tmp_path, "release: {healthy_s: 90, validate: [check, '{node}']}")
    assert (both.policy.healthy_s, both.policy.release.validate) == (90.0, ("check", "{node}"))
    assert load(tmp_path, "mode: shadow", FORESHOCK_RELEASE__HEALTHY_S="40").policy.healthy_s == 40.0
    assert "expected a list of texts" in refused(tmp_path, "release: {validate: check gpu}")
    assert "expected a list of texts" in refused(tmp_path, "release: {validate: [1]}")


@pytest.mark.parametrize("wrong", ["at_once: 0", "most_tries: 0", "timeout_s: 0", "validate: ['']"])
def test_a_test_that_can_never_be_passed_is_refused(tmp_path: Path, wrong: str) -> None:
    """What is held would stay so for ever."""
    key = wrong.split(":")[0]
    assert f"release, {key}: " in refused(tmp_path, f"release: {{{wrong}}}")


def test_shapes_of_models_are_read_by_the_names_of_their_runs(tmp_path: Path) -> None:
    """Each of all its figures, none of them zero."""
    text = "shapes: {'llm*': {batch: 8, layers: 2, seq: 16, hidden: 4}}"
    assert load(tmp_path, text).shapes == {"llm*": Shape(batch=8, layers=2, seq=16, hidden=4)}
    figures = "layers: 1, seq: 1, hidden: 1"
    assert "f.yaml:1, shapes, llm: batch, layers" in refused(tmp_path, f"shapes: {{llm: {{batch: 0, {figures}}}}}")
    assert "a key is missing" in refused(tmp_path, "shapes: {llm: {batch: 1}}")
    assert "unknown key 'heads'" in refused(tmp_path, f"shapes: {{llm: {{heads: 2, {figures}}}}}")


def test_there_is_at_least_one_process_and_no_army(tmp_path: Path) -> None:
    """The file and the environment may name how many."""
    assert load(tmp_path, "mode: shadow").processes == 1
    assert load(tmp_path, "processes: 4").processes == 4
    assert load(tmp_path, "processes: 4", FORESHOCK_PROCESSES="2").processes == 2
    for wrong in ("0", "65", "1.5", "many"):
        assert "processes" in refused(tmp_path, f"processes: {wrong}")


def test_most_nodes_cannot_be_left_alone(tmp_path: Path) -> None:
    """A control group is a few nodes."""
    assert load(tmp_path, "control: {percent: 5}").policy.control.percent == 5.0
    assert "control, percent" in refused(tmp_path, "control: {percent: 60}")


def test_how_long_things_are_kept_may_be_said_and_not_be_too_short(tmp_path: Path) -> None:
    """What is not named stays for ever; the environment speaks too; the model keeps its past."""
    settings = load(tmp_path, "keep: {events_days: 60, scores_days: null}\n", FORESHOCK_KEEP__TELEMETRY_DAYS="30")
    assert settings.keep == RetentionPeriods(events_days=60, telemetry_days=30)
    for text in ("keep: {events_days: 28}", "keep: {telemetry_days: 1.5}", "keep: {scores_days: 0}"):
        assert "keep, " in refused(tmp_path, text)


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    """Nested keys by a double underscore; the rest of the group keeps the file's values."""
    text = "mode: approve\nbudgets: {nodes: 3, per_hour: 1}\n"
    settings = load(tmp_path, text, FORESHOCK_MODE="act", FORESHOCK_BUDGETS__NODES="5", FORESHOCK_OTHER="x")
    assert settings.mode == "act"
    assert settings.policy.budgets == replace(Budgets(), nodes=5, per_hour=1)
    assert load_settings(None, {"FORESHOCK_SILENT_AFTER_S": "60"}).silent_after_s == 60.0


def test_a_token_of_the_environment_may_lie_in_a_file(tmp_path: Path) -> None:
    """It has every scope, and is hashed at once."""
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    for environ in ({"FORESHOCK_TOKEN": "0123456789abcdef"}, {"FORESHOCK_TOKEN_FILE": str(file)}):
        (token,) = load_settings(None, environ).tokens
        assert (token.sha256, token.scopes) == (digest_of("0123456789abcdef"), frozenset(SCOPES) - {"on_behalf"})
    assert "0123456789abcdef" not in repr(load_settings(None, environ))


def test_a_webhook_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    """And is not shown."""
    (tmp_path / "s").write_text(SECRET + "\n")
    hook = f"schedulers: [{{kind: webhook, name: a, url: 'http://x', secret_file: {tmp_path / 's'}}}]"
    settings = load(tmp_path, hook)
    assert settings.webhooks[0].secret_files == (str(tmp_path / "s"),)
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("budget: {}", ["f.yaml", "'budget'", "'budgets'"]),
        ("budgets: {node: 3}", ["f.yaml:1, budgets", "'node'", "'nodes'"]),
        ("budgets: {nodes: many}", ["f.yaml:1, budgets, nodes", "whole number", "'many'"]),
        ("budgets: {nodes: -1}", ["not negative"]),
        ("budgets: {nodes: true}", ["whole number"]),
        ("budgets: 7", ["expected keys and values"]),
        ("mode: bold", ["mode", "shadow, approve, act"]),
        ("mode: ", ["nothing"]),
        ("thresholds: {watch: 0.5, avoid: 0.4}", ["watch <= avoid"]),
        ("thresholds: {release_ratio: 1}", ["release_ratio"]),
        ("validity: {avoid_s: 0}", ["validity", "valid for a while"]),
        ("body_limit_bytes: 1.5", ["body_limit_bytes", "whole number"]),
        ("limits: {max_writes: 0}", ["max_writes", "at least 1"]),
        ("limits: {max_writes: 30}", ["32 together"]),
        ("limits: {max_write: 3}", ["max_writes"]),
        ("tokens: {}", ["expected a list"]),
        ("tokens: [{name: a, sha256: abc, scopes: [read]}]", ["tokens[0]", "64 hex digits"]),
        ("tokens: [{sha256: abc, scopes: [read]}]", ["needs a name"]),
        (
            f"tokens: [{{name: a, sha256: {'a' * 64}, scopes: [all]}}]",
            ["ingest, ingest:fleet, read, act:approve", "report, join"],
        ),
        (f"tokens: [{{name: a, sha256: {'a' * 64}}}]", ["scopes"]),
        (f"tokens: [{{name: a, sha256: {'a' * 64}, scopes: [read], scope: read}}]", ["'scope'", "'scopes'"]),
        ("schedulers: [{kind: smoke}]", ["schedulers[0], kind", "webhook"]),
        ("schedulers: [{kind: webhook, name: a, url: 'http://x'}]", ["missing", "secret"]),
        ("schedulers: [{kind: webhook, name: a, url: 'ftp://x', secret: " + SECRET + "}]", ["http://"]),
        ('schedulers: [{kind: webhook, name: a, url: "http://x/\\r\\nA: b", secret: ' + SECRET + "}]", ["line breaks"]),
        ("schedulers: [{kind: webhook, name: a, url: 'http://a b/', secret: " + SECRET + "}]", ["without blanks"]),
        ("schedulers: [{kind: webhook, name: a, url: 'http://x', secret: whsec_short}]", ["24 to 64 bytes"]),
        ("schedulers: [{kind: webhook, name: a, url: 'http://x', secret_file: /nowhere}]", ["/nowhere"]),
        ("schedulers: [{kind: webhook, name: a, url: 5, secret: " + SECRET + "}]", ["url", "text"]),
        (
            "schedulers: [{kind: webhook, name: a, format: slack, url: 'http://chat.example/x'}]",
            ["clear text", "https://"],
        ),
        ("tls: {key: k.pem}", ["tls", "certificate is missing"]),
        ("tls: {certificate: c.pem, client: required}", ["client_ca"]),
        ("a: [", ["no YAML"]),
        ("- a", ["expected keys and values"]),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(tmp_path: Path, text: str, words: list[str]) -> None:
    """One sentence: file, key and remedy."""
    said = refused(tmp_path, text)
    assert all(word in said for word in words), said


def test_a_name_may_be_there_once(tmp_path: Path) -> None:
    """The audit tells tokens apart by it, the outbox receivers."""
    token = f"{{name: a, sha256: {'a' * 64}, scopes: [read]}}"
    assert "'a' is there twice" in refused(tmp_path, f"tokens: [{token}, {token}]")


def test_what_the_environment_says_is_checked_too(tmp_path: Path) -> None:
    """A short token, an empty file, a word for a number."""
    assert "16 characters" in refused(tmp_path, "", FORESHOCK_TOKEN="short")
    (tmp_path / "empty").write_text("\n")
    assert "is empty" in refused(tmp_path, "", FORESHOCK_TOKEN_FILE=str(tmp_path / "empty"))
    assert "cannot read" in refused(tmp_path, "", FORESHOCK_TOKEN_FILE="/nowhere")
    assert "budgets, nodes" in refused(tmp_path, "", FORESHOCK_BUDGETS__NODES="many")
    assert "mode: '['" in refused(tmp_path, "", FORESHOCK_MODE="[")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a folder, or no text."""
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "b"):
        with pytest.raises(click.ClickException, match=str(path)):
            load_settings(path, {})


@pytest.mark.parametrize(
    ("host", "inside"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("gpu-1", False)],  # noqa: S104
)
def test_loopback_is_told_from_the_rest(host: str, inside: bool) -> None:
    """What only this machine can reach may go without tokens."""
    assert is_loopback(host) is inside


def test_a_note_is_of_a_node(tmp_path: Path) -> None:
    """What people should know of it; a name that is none is refused."""
    assert load(tmp_path, "inventory: {notes: {gpu-017: On loan.}}").inventory.notes == {"gpu-017": "On loan."}
    assert "f.yaml:1, inventory: 'node' is 'gpu 017'" in refused(tmp_path, "inventory: {notes: {gpu 017: On loan.}}")


def test_the_price_of_a_gpu_hour_is_one_text(tmp_path: Path) -> None:
    """In the file or the environment; anything else is refused by its key."""
    price = parse_price("2.50 EUR")
    assert load(tmp_path, "gpu_hour_price: 2.50 EUR").gpu_hour_price == price
    assert load(tmp_path, "gpu_hour_price: null", FORESHOCK_GPU_HOUR_PRICE="2.50 EUR").gpu_hour_price == price
    assert load(tmp_path, "gpu_hour_price: null").gpu_hour_price is None
    assert "gpu_hour_price: '2.5' is no price of a GPU-hour" in refused(tmp_path, "gpu_hour_price: 2.50")
