"""The server's configuration: defaults, overridden by a YAML file, overridden by the environment.

Read at the start and on SIGHUP (`cli/config/settings_file.py`). The policy is followed by itself
(`cli/config/policy_source.py`): it may stand in the same file, or in its own.

`deploy/foreshock.example.yaml` shows every key. A scalar key `budgets: {nodes: 8}` is `FORESHOCK_BUDGETS__NODES` in the
environment; the secret `FORESHOCK_TOKEN` (a token with every scope) may lie in a file: `FORESHOCK_TOKEN_FILE`.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import yaml

from api.server.people_settings import PeopleSettings
from api.server.settings import (
    MOST_SLOTS,
    ApiSettings,
    InventorySettings,
    RequestLimits,
    TlsSettings,
)
from cli.config.fill import check_keys, convert, fill, listed, mapping
from cli.config.outage_reasons import outage_reasons_of
from cli.config.policy_source import PolicyFiles
from cli.config.policy_table import POLICY_KEYS, check_policy_file, located, policy_of, read_yaml
from cli.config.tokens import check_mode, read_tokens, warn_unbound
from cli.console.errors import Failure
from cli.console.files import secret_file
from cli.processes.servers import MOST_PROCESSES
from goodput.formulas.shape import Shape
from schedulers.policy.settings import ActuatorSettings, CheckSettings, Policy
from schedulers.registry import ACTUATORS, SCHEDULERS
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.signature import SecretError
from schedulers.webhooks.webhook import Webhook
from store.database.retention import MINIMUM, RetentionPeriods, too_short
from store.records.event import RecordError
from store.records.hint import HINT_ACTIONS
from store.records.hostlist import check_node_name, expand
from wire.access.address import clear_text

_PREFIX = "FORESHOCK_"
_SERVER = (
    *("intervals", "limits", "keep", "training", "trial", "tls", "inventory"),
    *("body_limit_bytes", "rules", "silent_after_s", "processes", "hosts", "checks", "gpu_hour_price"),
)
# Receivers whose token stands in the address or the message; the others sign.
_TOKEN_FORMATS = frozenset({"pagerduty", "slack", "feishu", "dingtalk"})


def load_settings(file: Path | None, environ: Mapping[str, str]) -> ApiSettings:
    """The settings of a file (None: the defaults) and the environment.

    Raises:
        Failure: the file cannot be read, or holds an unknown key or a value that does not fit; names file and key.
    """
    with located(file):
        settings = _read_settings(file, environ)
    warn_unbound(settings.tokens)
    if file is None:
        check_mode(settings.policy, settings.tokens, "the environment")
        return settings
    source = PolicyFiles(lambda: read_policy(file, environ))
    source.check = lambda policy: check_mode(policy, settings.tokens, source.place)
    with located(Path(source.place)):
        source.check(source.current())
    return replace(settings, policy=source.current(), policy_source=source)


def _read_settings(file: Path | None, environ: Mapping[str, str]) -> ApiSettings:
    """All but the policy of a file."""
    place = "the defaults" if file is None else str(file)
    table = _table(file)
    _overlay(table, environ)
    policy = policy_of(table, place) if file is None else Policy()
    hints = get_type_hints(ApiSettings)
    server = {key: convert(hints[key], table[key], f"{place}, {key}") for key in _SERVER if key in table}
    _check_limits(server.get("limits", RequestLimits()), place)
    _check_keep(server.get("keep", RetentionPeriods()), place)
    _check_tls(server.get("tls", TlsSettings()), place)
    _check_inventory(server.get("inventory", InventorySettings()), place)
    _check_checks(server.get("checks", CheckSettings()), place)
    if not 1 <= server.get("processes", 1) <= MOST_PROCESSES:
        raise Failure(f"{place}, processes: expected 1 to {MOST_PROCESSES}")
    tokens = read_tokens(listed(table.get("tokens"), place), place, environ)
    receivers = [_receiver(item, f"{place}, schedulers[{i}]") for i, item in enumerate(_schedulers(table, place))]
    webhooks = tuple(receiver for receiver in receivers if isinstance(receiver, WebhookSettings))
    actuators = tuple(receiver for receiver in receivers if not isinstance(receiver, WebhookSettings))
    _check_unique([token.name for token in tokens], f"{place}, tokens")
    _check_unique([receiver.name for receiver in receivers], f"{place}, schedulers")
    shapes = _shapes(table.get("shapes"), f"{place}, shapes")
    given = ApiSettings(
        policy=policy,
        tokens=tokens,
        webhooks=webhooks,
        actuators=actuators,
        shapes=shapes,
        people=read_people(table, place),
        outage_reasons=outage_reasons_of(table, place),
    )
    return replace(given, **server)


def _check_checks(checks: CheckSettings, place: str) -> None:
    for name in ("at_once", "per_hour", "suspects", "timeout_s"):
        if getattr(checks, name) <= 0:
            raise Failure(f"{place}, checks, {name}: more than 0")
    for name, command in checks.commands().items():
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise Failure(f"{place}, checks, {name}: a quote is not closed ({error})") from error
        if "{node}" not in command:
            raise Failure(f"{place}, checks, {name}: {{node}} must stand in it: which node is it to try?")
        if words[0].startswith("{"):
            raise Failure(f"{place}, checks, {name}: the first word is the command")


def read_people(table: Mapping[str, Any], place: str) -> PeopleSettings | None:
    """Who signs in; None: nobody does.

    Raises:
        Failure: an unknown key, a value of the wrong type, or values that do not go together; names place and key.
    """
    if table.get("people") is None:
        return None
    try:
        return fill(PeopleSettings, table["people"], f"{place}, people")
    except ValueError as error:
        raise Failure(f"{place}, people: {error}") from error


def read_policy(file: Path | None, environ: Mapping[str, str]) -> tuple[Policy, list[Path]]:
    """The policy of the server's file, or of the file that it names as `policy`, with what the environment says; and
    the files that it stands in.

    Raises:
        Failure: a file cannot be read, the policy does not hold, or stands in both files; names file and key.
    """
    with located(file):
        table, place, files = _policy_table(file)
    with located(files[-1] if files else None):
        _overlay(table, environ)
        return policy_of(table, place), files


def _policy_table(file: Path | None) -> tuple[dict[str, Any], str, list[Path]]:
    """The keys and values that the policy stands in, what to call their place, and the files."""
    table, place = _table(file), "the defaults" if file is None else str(file)
    files = [] if file is None else [file]
    if (named := table.get("policy")) is not None:
        own = Path(convert(str, named, f"{place}, policy"))
        own = own if file is None else file.parent / own
        twice = next((key for key in POLICY_KEYS if key in table), None)
        if twice is not None:
            raise Failure(f"{place}, {twice}: stands beside `policy: {named}`: move it into that file")
        table, place = dict(read_yaml(own)), str(own)
        files.append(own)
        with located(own):
            check_policy_file(table, place)
    return table, place, files


def _table(file: Path | None) -> dict[str, Any]:
    """What stands in the server's file, with no key that is not known."""
    table = dict(read_yaml(file)) if file is not None else {}
    known = (
        *POLICY_KEYS,
        *_SERVER,
        "policy",
        "tokens",
        "schedulers",
        "shapes",
        "people",
        "dashboard",
        "outage_reasons",
    )
    check_keys(table, known, str(file))
    return table


def _shapes(value: Any, place: str) -> dict[str, Shape]:
    """The shapes of runs' models by a pattern of the runs' names, each with all of its four figures."""
    found = {name: fill(Shape, figures, f"{place}, {name}") for name, figures in mapping(value, place).items()}
    for name, shape in found.items():
        if 0 in (shape.batch, shape.layers, shape.seq, shape.hidden):
            raise Failure(f"{place}, {name}: batch, layers, seq and hidden must be at least 1")
    return found


def _overlay(table: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Set the scalar keys that the environment names."""
    for path in _scalars():
        variable = _PREFIX + "__".join(path).upper()
        if variable in environ:
            *groups, key = path
            inner = table
            for group in groups:
                inner[group] = dict(mapping(inner.get(group), group))
                inner = inner[group]
            inner[key] = _scalar(environ[variable])


def _scalar(text: str) -> Any:
    """What a word of the environment reads as: a number, true or false, or itself."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text


def _scalars() -> list[tuple[str, ...]]:
    """The path of every scalar key."""
    found: list[tuple[str, ...]] = []
    for owner, names in ((Policy, POLICY_KEYS), (ApiSettings, _SERVER)):
        hints = get_type_hints(owner)
        for name in names:
            inner = getattr(hints[name], "__dataclass_fields__", None)
            found += [(name, key) for key in inner] if inner else [(name,)]
    return found


def _check_inventory(inventory: InventorySettings, place: str) -> None:
    try:
        for name in (*expand(inventory.nodes), *inventory.aliases.values(), *inventory.notes):
            check_node_name(name)
    except RecordError as error:
        raise Failure(f"{place}, inventory: {error}") from error


def _check_keep(keep: RetentionPeriods, place: str) -> None:
    name = too_short(keep)
    if name is not None:
        raise Failure(f"{place}, keep, {name}: at least {getattr(MINIMUM, name)}, or the model is blind")


def _check_tls(tls: TlsSettings, place: str) -> None:
    if tls.certificate is None and tls != TlsSettings():
        raise Failure(f"{place}, tls: certificate is missing: without it the server speaks plain HTTP")
    if (tls.client == "none") != (tls.client_ca is None):
        raise Failure(f"{place}, tls: client_ca and `client: optional` or `client: required` go together")


def _check_limits(limits: RequestLimits, place: str) -> None:
    if limits.max_writes < 1 or limits.max_reads < 1:
        raise Failure(f"{place}, limits: max_writes and max_reads must be at least 1, or nothing is served")
    if limits.max_writes + limits.max_reads > MOST_SLOTS:
        raise Failure(f"{place}, limits: max_writes and max_reads may be {MOST_SLOTS} together: a thread each")


def _schedulers(table: Mapping[str, Any], place: str) -> list[Any]:
    return listed(table.get("schedulers"), f"{place}, schedulers")


def _receiver(item: Any, place: str) -> WebhookSettings | ActuatorSettings:
    """The settings of one receiver, as its kind asks for."""
    table = dict(mapping(item, place))
    kind = table.pop("kind", None)
    if isinstance(kind, str) and kind in ACTUATORS:
        try:
            settings: ActuatorSettings = fill(ACTUATORS[kind].settings, table, place)
        except ValueError as error:
            raise Failure(f"{place}: {error}") from error
        return settings
    if not isinstance(kind, str) or kind not in SCHEDULERS:
        raise Failure(f"{place}, kind: expected one of {', '.join((*SCHEDULERS, *ACTUATORS))}")
    return _webhook(table, place)


def _webhook(table: dict[str, Any], place: str) -> WebhookSettings:
    check_keys(table, (*(f.name for f in fields(WebhookSettings)), "secret_file", "url_file"), place)
    if "secret_file" in table:
        path = str(table.pop("secret_file"))
        table["secret_files"] = [path, *listed(table.get("secret_files"), f"{place}, secret_files")]
    if "url_file" in table:
        table["url"] = secret_file(str(table.pop("url_file")), f"{place}, url_file")
    settings = fill(WebhookSettings, table, place)
    if not all(map(_is_web, (settings.url, settings.proxy or settings.url, settings.server or settings.url))):
        raise Failure(
            f"{place}, url, proxy and server: expected http://... or https://..., without blanks or line breaks"
        )
    bears_token = settings.format in _TOKEN_FORMATS or "@" in urlsplit(settings.url).netloc
    if bears_token and (why := clear_text(settings.url)) is not None:
        raise Failure(f"{place}, url: {why}")
    _check_words(settings.actions, HINT_ACTIONS, f"{place}, actions")
    _check_words(settings.states, ("approved", "proposed", "repair"), f"{place}, states")
    if "repair" in settings.states and settings.format == "alertmanager":
        raise Failure(f"{place}, states: alertmanager is told of verdicts, and opens no ticket: take out `repair`")
    try:
        Webhook(settings)
    except SecretError as error:
        missing = "" if settings.secret or settings.secrets or settings.secret_files else "a key is missing: "
        raise Failure(f"{place}, secret: {missing}{error}") from error
    except ValueError as error:
        raise Failure(f"{place}: {error}") from error
    return settings


def _check_words(words: Sequence[str], known: Sequence[str], place: str) -> None:
    for word in words:
        if word not in known:
            raise Failure(f"{place}: {word[:40]!r} is none of {', '.join(known)}")


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_whole = url.isprintable() and " " not in url  # urlsplit passes over line breaks, which no request can hold
        return is_whole and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address, a port beyond 65535
        return False


def _check_unique(names: list[str], place: str) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise Failure(f"{place}: the name {min(twice)!r} is there twice")
