"""What each format writes, against recorded examples, and how a vendor's answer is read."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from real.patience import patience

from schedulers.reconcile.delivery import delivery_of, verdict_delivery
from schedulers.webhooks import formats
from schedulers.webhooks.format import LOUD_ACTIONS
from schedulers.webhooks.formats.template import TemplateError
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.signature import SecretError
from schedulers.webhooks.webhook import FORMATS, Webhook, format_of
from store.records.hint import Evidence, Hint

from .http_receiver import Receiver, receiving

FIXTURES = Path(__file__).parents[2] / "fixtures" / "webhooks"
NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
KEY = b"0123456789abcdef0123456789abcdef"
SECRETS = {
    "standard": "whsec_" + base64.b64encode(KEY).decode(),
    "cloudevents": "whsec_" + base64.b64encode(KEY).decode(),
    "pagerduty": "0123456789abcdef0123456789abcdef",
    "slack": "",
    "feishu": "feishu-secret",
    "dingtalk": "SECdingtalk",
    "otlp": "collectors-token",
    "template": "",
}
HINT = Hint(
    "3f2a0c5a9b8e4d1f", "gpu-017", "cordon", "approved", "foreshock: Xid 79 GPU has fallen off the bus.", "foreshock",
    datetime(2025, 3, 1, 11, 59, 30, tzinfo=UTC), datetime(2025, 3, 2, 11, 59, 30, tzinfo=UTC),
    Evidence(score=0.31, incident="i-1"),
)  # fmt: skip
OK = {
    "standard": b"",
    "cloudevents": b"",
    "pagerduty": b'{"status":"success","message":"Event processed","dedup_key":"3f2a0c5a9b8e4d1f"}',
    "slack": b"ok",
    "feishu": b'{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}',
    "dingtalk": b'{"errcode":0,"errmsg":"ok"}',
    "otlp": b'{"partialSuccess":{}}',
    "template": b"",
}


def settings_of(url: str, kind: str, **more: Any) -> WebhookSettings:
    """The settings of a receiver of a format; `template` has the recorded template."""
    more = ({"template_file": str(FIXTURES / "template.txt")} if kind == "template" else {}) | more
    return WebhookSettings("ops", url, SECRETS.get(kind, ""), timeout_s=patience(5.0), format=kind, **more)  # type: ignore[arg-type]


def hook(url: str, kind: str, **more: Any) -> Webhook:
    """A receiver of a format."""
    return Webhook(settings_of(url, kind, **more))


def sent(kind: str, action: str, hint: Hint = HINT, said: bytes | None = None, **more: Any) -> tuple[Receiver, Any]:
    """What arrives of one delivery, and what became of it."""
    with receiving() as receiver:
        receiver.answers.append((200, {}, OK.get(kind, b"") if said is None else said))
        outcome = hook(receiver.url, kind, **more).send(delivery_of(hint, action, "ops", "act", NOW), NOW)
    return receiver, outcome


# Alertmanager is told of verdicts, and of no hint (tests/attacks/test_hostile_messages.py, tests/api/).
OF_HINTS = sorted(set(FORMATS) - {"alertmanager"})


@pytest.mark.parametrize("action", ["cordon", "release"])
@pytest.mark.parametrize("kind", OF_HINTS)
def test_a_message_is_as_recorded(kind: str, action: str) -> None:
    """Of an order and of its release; the vendor's good answer is one."""
    ended = HINT if action == "cordon" else Hint(**{**_fields(HINT), "state": "released"})
    receiver, outcome = sent(kind, action, ended)
    assert (outcome.result, outcome.status) == ("delivered", 200)
    recorded = json.loads((FIXTURES / f"{kind}-{action}.json").read_text(encoding="utf-8"))
    assert json.loads(receiver.got[0][1]) == recorded


def _fields(hint: Hint) -> dict[str, Any]:
    return {name: getattr(hint, name) for name in Hint.__dataclass_fields__}


def test_the_registry_is_the_folder() -> None:
    """A format is one file and one line."""
    folder = Path(formats.__file__).parent
    assert set(FORMATS) == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert get_args(WebhookSettings.__annotations__["format"]) == tuple(FORMATS)


def test_every_format_has_its_examples() -> None:
    """And no other is there."""
    assert {path.name for path in FIXTURES.glob("*.json")} == {
        f"{kind}-{action}.json" for kind in OF_HINTS for action in ("cordon", "release")
    }


def test_a_cloud_event_is_structured_and_signed() -> None:
    """The attributes that CloudEvents 1.0 asks for, of the types that it asks for; over the very bytes."""
    receiver, _ = sent("cloudevents", "cordon")
    headers, body = receiver.got[0]
    assert headers["content-type"].startswith("application/cloudevents+json")
    event = json.loads(body)
    assert event["specversion"] == "1.0"
    assert all(isinstance(event[name], str) and event[name] for name in ("id", "source", "type", "subject", "time"))
    assert event["id"] == headers["webhook-id"]
    assert datetime.fromisoformat(event["time"]) == NOW
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(KEY, content, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def test_a_log_record_is_one_of_opentelemetry_s_own_schema() -> None:
    """Parsed strictly; the node is its host, the message's id is that of all attempts, the token is the newest."""
    receiver, _ = sent("otlp", "cordon", secrets=("newer",))
    headers, body = receiver.got[0]
    assert headers["authorization"] == "Bearer newer"
    (resource,) = ParseDict(json.loads(body), ExportLogsServiceRequest()).resource_logs
    assert {one.key: one.value.string_value for one in resource.resource.attributes}["host.name"] == "gpu-017"
    (record,) = resource.scope_logs[0].log_records
    assert (record.event_name, record.severity_text) == ("foreshock.hint.cordon", "WARN")
    assert datetime.fromtimestamp(record.time_unix_nano / 1e9, UTC) == NOW
    found = {one.key: one.value for one in record.attributes}
    assert found["foreshock.hint.risk"].double_value == 0.31
    assert found["foreshock.message.id"].string_value == delivery_of(HINT, "cordon", "ops", "act", NOW).id


def test_a_log_record_of_a_verdict_says_what_is_held() -> None:
    """An error where jobs are hit, over when it ends; a switch is no host."""
    told = {
        "id": "v1", "node": None, "name": "leaf004", "class": "switch", "cause": "fabric", "action": "run_diagnostics",
        "reason": "8 of its 8 nodes lost a rail", "state": "open", "revision": 0, "explained_by": None, "device": {},
        "names": ["leaf004"], "nodes": ["a", "b"], "jobs": ["llm"], "probability": 0.93, "gpu_hours_at_stake": 12.5,
        "since": "2025-03-01T11:59:00Z",
    }  # fmt: skip
    write = format_of(settings_of("http://ops.example", "otlp")).write
    severities = []
    for state in ("open", "closed"):
        message = write(verdict_delivery(told | {"state": state}, "opened", "ops", NOW), (), NOW)
        (resource,) = ParseDict(json.loads(message.body), ExportLogsServiceRequest()).resource_logs
        assert {one.key for one in resource.resource.attributes} == {"service.name"}
        (record,) = resource.scope_logs[0].log_records
        assert record.event_name == f"foreshock.verdict.{state}"
        found = {one.key: one.value for one in record.attributes}
        assert found["foreshock.verdict.probability"].double_value == 0.93
        assert found["foreshock.verdict.nodes_count"].int_value == 2
        severities.append(record.severity_text)
    assert severities == ["ERROR", "INFO"]
    assert "authorization" not in message.headers


def test_feishu_s_sign_is_over_nothing() -> None:
    """The key is what others sign: its documentation says so, and its code 19021 when one does otherwise."""
    body = json.loads(sent("feishu", "cordon")[0].got[0][1])
    stamp = str(int(NOW.timestamp()))
    digest = hmac.new(f"{stamp}\nfeishu-secret".encode(), digestmod=hashlib.sha256).digest()
    assert (body["timestamp"], body["sign"]) == (stamp, base64.b64encode(digest).decode())


def test_dingtalk_s_sign_stands_in_the_query() -> None:
    """Escaped: base64 has + and / in it; what the URL held stays."""
    with receiving() as receiver:
        receiver.answers.append((200, {}, OK["dingtalk"]))
        target = hook(f"{receiver.url}?access_token=abc", "dingtalk")
        assert target.send(delivery_of(HINT, "cordon", "ops", "act", NOW), NOW).result == "delivered"
    query = parse_qs(urlsplit(receiver.paths[0]).query)
    stamp = str(int(NOW.timestamp() * 1000))
    digest = hmac.new(b"SECdingtalk", f"{stamp}\nSECdingtalk".encode(), hashlib.sha256).digest()
    assert query == {"access_token": ["abc"], "timestamp": [stamp], "sign": [base64.b64encode(digest).decode()]}


@pytest.mark.parametrize(
    ("kind", "said", "word", "slow"),
    [
        ("feishu", b'{"code":19021,"msg":"sign match fail"}', "19021: sign match fail", False),
        ("feishu", b'{"code":11232,"msg":"frequency limited"}', "11232", True),
        ("feishu", b'{"StatusCode":9499}', "9499", False),
        ("feishu", b"<html>", "no JSON", False),
        ("feishu", b"[]", "None", False),
        ("dingtalk", b'{"errcode":310000,"errmsg":"sign not match"}', "310000: sign not match", False),
        ("dingtalk", b'{"errcode":130101,"errmsg":"send too fast"}', "130101", True),
        ("dingtalk", b"", "no JSON", False),
        ("slack", b"invalid_payload", "invalid_payload", False),
        ("slack", b"", "empty", False),
        ("otlp", b'{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"too old"}}', "too old", False),
        ("pagerduty", b'{"status":"invalid event","message":"routing_key"}', "invalid event", False),
    ],
)
def test_what_hides_behind_http_200_is_a_failure(kind: str, said: bytes, word: str, slow: bool) -> None:
    """Tried again; told to the log."""
    _, outcome = sent(kind, "cordon", said=said)
    assert (outcome.result, outcome.slow) == ("retry", slow)
    assert word in outcome.detail


@pytest.mark.parametrize("kind", ["slack", "feishu", "dingtalk", "pagerduty", "otlp"])
@given(body=st.binary(max_size=200))
def test_no_answer_is_a_crash(kind: str, body: bytes) -> None:
    """The vendor says what it likes."""
    format_of(settings_of("http://ops.example", kind)).failure(body)


@given(text=st.text(max_size=300))
@pytest.mark.parametrize("kind", OF_HINTS)
def test_whatever_a_log_says_the_message_is_json(kind: str, text: str) -> None:
    """Reasons quote logs."""
    hint = Hint(**{**_fields(HINT), "reason": text})
    secrets = (SECRETS[kind],) if SECRETS[kind] else ()
    message = format_of(settings_of("http://ops.example", kind)).write(
        delivery_of(hint, "cordon", "ops", "act", NOW), secrets, NOW
    )
    json.loads(message.body)


def test_a_log_mentions_nobody_in_a_chat() -> None:
    """Nor does it make a link or a picture."""
    evil = Hint(**{**_fields(HINT), "reason": "<!channel> <https://x|y> ![p](http://x) @all `rm`"})
    slack = json.loads(sent("slack", "cordon", evil)[0].got[0][1])
    assert "<" not in slack["blocks"][1]["text"]["text"]
    dingtalk = json.loads(sent("dingtalk", "cordon", evil)[0].got[0][1])["markdown"]["text"]
    assert not set("<>[]@`") & set(dingtalk)
    feishu = json.loads(sent("feishu", "cordon", evil)[0].got[0][1])
    tags = {part["tag"] for line in feishu["content"]["post"]["en_us"]["content"] for part in line}
    assert tags == {"text"}


def test_pagerduty_s_severity_follows_the_action() -> None:
    """And the release resolves the same alert."""
    found = {}
    for action in ("drain", "cordon", "avoid", "watch"):
        body = json.loads(sent("pagerduty", action, Hint(**{**_fields(HINT), "action": action}))[0].got[0][1])
        found[action] = body["payload"]["severity"]
        assert body["dedup_key"] == HINT.id
    assert found == {"drain": "critical", "cordon": "error", "avoid": "warning", "watch": "info"}


def test_chats_are_not_flooded() -> None:
    """Unless they ask for it; a scheduler is told all."""
    quiet, scheduler = hook("http://x", "slack"), hook("http://x", "standard")
    assert {action for action in ("watch", "avoid", *LOUD_ACTIONS) if quiet.wants(action, "approved")} == {
        *LOUD_ACTIONS
    }
    assert scheduler.wants("watch", "approved")
    assert not scheduler.wants("cordon", "proposed")
    assert not scheduler.wants("cordon", "shadow")
    asked = hook("http://x", "slack", actions=("watch",), states=("proposed",))
    assert [asked.wants("watch", state) for state in ("approved", "proposed")] == [False, True]
    assert not asked.wants("cordon", "proposed")


def test_the_address_of_a_chat_shows_no_token() -> None:
    """It is written into the audit; two chats of a vendor are told apart all the same."""
    one, other = (hook(f"https://hooks.slack.com/services/T/B/{token}", "slack") for token in ("abc", "xyz"))
    assert "abc" not in one.address
    assert one.address.startswith("https://hooks.slack.com/ (")
    assert one.address != other.address
    assert "token" not in hook("http://x/y?token=1", "standard").address
    assert hook("http://user:word@x/", "standard").address.startswith("http://x/ (")


def test_a_routing_key_that_is_none_is_refused() -> None:
    """At the start."""
    with pytest.raises(SecretError, match="32 letters"):
        Webhook(WebhookSettings("ops", "http://x", "short", format="pagerduty"))
    with pytest.raises(SecretError, match="32 letters"):
        Webhook(WebhookSettings("ops", "http://x", format="pagerduty"))


def test_a_template_says_what_the_operator_wants(tmp_path: Path) -> None:
    """Values are escaped; the whole document is there for who wants it; it is signed with a secret."""
    path = tmp_path / "t.json"
    path.write_text(
        '{"who": "$node", "why": "${reason}", "p": "$score", "job": "$job", "cost": "$$5", "all": $document}'
    )
    hint = Hint(**{**_fields(HINT), "reason": 'a "quoted" \\ $node\n'})
    receiver, outcome = sent("template", "cordon", hint, template_file=str(path), secrets=(SECRETS["standard"],))
    assert outcome.result == "delivered"
    headers, body = receiver.got[0]
    found = json.loads(body)
    assert (found["who"], found["why"], found["p"], found["job"]) == ("gpu-017", 'a "quoted" \\ $node\n', "0.31", "")
    assert found["cost"] == "$5"
    assert found["all"]["data"]["id"] == HINT.id
    assert headers["webhook-signature"].startswith("v1,")


@pytest.mark.parametrize(
    ("text", "word"),
    [('{"a": "$nodes"}', "unknown field .nodes"), ('{"a": $node}', "quotes"), ('{"a": "$ 5"}', r"\$\$")],
)
def test_a_template_that_cannot_work_is_refused_at_the_start(tmp_path: Path, text: str, word: str) -> None:
    """Not at the first fault of a night."""
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(TemplateError, match=word):
        hook("http://x", "template", template_file=str(path))
    with pytest.raises(TemplateError, match="nowhere"):
        hook("http://x", "template", template_file=str(tmp_path / "nowhere"))


def test_a_template_need_not_be_json(tmp_path: Path) -> None:
    """Its type is then told."""
    path = tmp_path / "t.txt"
    path.write_text("$action $node")
    receiver, _ = sent("template", "cordon", template_file=str(path), content_type="text/plain")
    assert receiver.got[0][1] == b"cordon gpu-017"
    assert receiver.got[0][0]["content-type"] == "text/plain"
