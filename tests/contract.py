"""The outside contract as text: what a user's scripts, queries and files rely on, one line a promise.

PYTHONPATH=tests python tests/contract.py     writes fixtures/contract anew: read the difference before you commit it
"""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.server.settings import ApiSettings
from cli.main import foreshock
from collectors.agent.sidecar import SidecarSettings
from schedulers.registry import ACTUATORS
from schedulers.webhooks.settings import WebhookSettings
from store.database.connections import migrate, open_database

PAGES = Path(__file__).parents[1] / "fixtures" / "contract"
_METHODS = ("get", "post", "put", "patch", "delete")


def commands() -> Iterator[str]:
    """Every command with its arguments and options: names, types, whether they must be there, defaults."""
    waiting: list[tuple[str, click.Command]] = [("foreshock", foreshock)]
    while waiting:
        name, command = waiting.pop(0)
        yield name
        for one in command.params:
            default = "" if one.default is None or "UNSET" in repr(one.default) else f" = {one.default!r}"
            default = default if "/" not in default and "function" not in default else " = ..."
            need = " required" if one.required else ""
            yield f"  {name} {', '.join([*one.opts, *one.secondary_opts])} ({one.type.name}){need}{default}"
        if isinstance(command, click.Group):
            context = click.Context(command)
            found = ((each, command.get_command(context, each)) for each in command.list_commands(context))
            waiting += [(f"{name} {each}", one) for each, one in found if one is not None]


def operations(document: Mapping[str, Any]) -> Iterator[str]:
    """Every operation of `/openapi.json`: its parameters, body and answers, each field with its type."""
    for path, methods in sorted(document["paths"].items()):
        for method in [method for method in _METHODS if method in methods]:
            operation = methods[method]
            yield f"{method.upper()} {path} {operation['operationId']}"
            for one in sorted(operation.get("parameters", ()), key=lambda one: (one["in"], one["name"])):
                yield f"  {one['in']} {one['name']}{' required' if one.get('required') else ''}"
            for kind, body in sorted(operation.get("requestBody", {}).get("content", {}).items()):
                yield from (f"  body {kind} {line}" for line in shape(body.get("schema", {}), document))
            for status, answer in sorted(operation["responses"].items()):
                yield f"  {status} {', '.join(sorted(answer.get('content', {})))}"
                if status < "300":
                    for body in answer.get("content", {}).values():
                        yield from (f"    {line}" for line in shape(body.get("schema", {}), document))


def shape(schema: Mapping[str, Any], document: Mapping[str, Any], place: str = "", depth: int = 0) -> Iterator[str]:
    """The fields of a schema, each with the types that it may have; names of schemas do not count."""
    kinds: set[str] = set()
    yield from sorted(set(_fields(schema, document, place, depth, kinds)))
    if place and kinds:
        yield f"{place}: {' | '.join(sorted(kinds))}"


def _fields(
    schema: Mapping[str, Any], document: Mapping[str, Any], place: str, depth: int, kinds: set[str]
) -> Iterator[str]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    for arm in schema.get("anyOf", ()) or schema.get("oneOf", ()):
        yield from _fields(arm, document, place, depth, kinds)
    if depth > 12:
        return
    if "enum" in schema or "const" in schema:
        kinds.update(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    elif "type" in schema:
        listed = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        kinds.update(listed)
    needed = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        yield from shape(inner, document, f"{place}.{name}{'' if name in needed else '?'}", depth + 1)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), Mapping):
            yield from shape(schema[key], document, place + mark, depth + 1)


def metrics(page: str) -> Iterator[str]:
    """Every metric of a page by name and type, with its label names."""
    found = re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE)
    # prometheus_client writes them or not, by a switch of the whole process.
    kinds = {name: kind for name, kind in found if not name.endswith("_created")}
    labels: dict[str, set[str]] = {name: set() for name in kinds}
    for name, inside in re.findall(r"^(\w+)\{(.*?)\} ", page, re.MULTILINE):
        family = next((f for f in (name, re.sub(r"_(bucket|sum|count|created)$", "", name)) if f in labels), name)
        labels.setdefault(family, set()).update(re.findall(r'(\w+)="', inside))
    for name, kind in sorted(kinds.items()):
        yield f"{name} {kind} {{{', '.join(sorted(labels[name] - {'le'}))}}}"


def keys(kind: type, place: str) -> Iterator[str]:
    """Every key of a record of settings, records inside it too."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        yield f"{place}.{field.name}"
        for inner in (hints[field.name], *get_args(hints[field.name])):
            if is_dataclass(inner) and isinstance(inner, type):
                yield from keys(inner, f"{place}.{field.name}")


def configuration() -> Iterator[str]:
    """Every key of the server's file, of each kind of scheduler, and of the sidecar's file."""
    yield from keys(ApiSettings, "server")
    yield from keys(WebhookSettings, "schedulers.webhook")
    for name, kind in ACTUATORS.items():
        yield from keys(kind.settings, f"schedulers.{name}")
    yield from keys(SidecarSettings, "sidecar")


def cluster() -> Iterator[str]:
    """What a simulated cluster becomes in the store: rows a table, and a digest of what identifies them."""
    with tempfile.TemporaryDirectory() as folder:
        db = f"sqlite:///{folder}/x.db"
        program = [sys.executable, "-m", "foreshock"]
        simulate = [*program, "simulate", folder, "--nodes", "24", "--days", "40", "--seed", "5"]
        subprocess.run(simulate, check=True, capture_output=True)
        subprocess.run([*program, "ingest", f"{folder}/archive", "--db", db], check=True, capture_output=True)
        subprocess.run([*program, "train", "--db", db], check=True, capture_output=True)
        subprocess.run([*program, "score", "--db", db], check=True, capture_output=True)
        engine = open_database(db)
        with engine.connect() as connection:
            tables = sorted(sa.inspect(engine).get_table_names())
            counts = {name: connection.scalar(sa.text(f'select count(*) from "{name}"')) for name in tables}  # noqa: S608
            yield from (f"{name} {count} rows" for name, count in counts.items() if count and name in _CONTENT)
            for name, columns in _CONTENT.items():
                rows = sorted(map(repr, connection.execute(sa.text(f"select {columns} from {name}"))))  # noqa: S608
                yield f"{name} ({columns}) {hashlib.sha256(chr(10).join(rows).encode()).hexdigest()[:16]}"
        engine.dispose()


_CONTENT = {
    "events": "id, time, node, kind, code, severity, cause, action, message",
    "incidents": "id, node, start, kind, code, severity, cause, action",
    "outages": "node, start, cause",
    "jobs": "job_id, attempt, run, state, start, nodes",
    "scores": "node, horizon_h, round(score, 6)",
}


def pages() -> dict[str, str]:
    """Each page of the contract by its file's name."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_database(f"sqlite:///{folder}/x.db")
        migrate(engine)
        app = create_app(ApiSettings(), engine, lambda: datetime(2025, 3, 1, tzinfo=UTC))
        page = TestClient(app, base_url="http://127.0.0.1:10870").get("/metrics").text
        made = {
            "commands.txt": commands(),
            "openapi.txt": operations(app.openapi()),
            "metrics.txt": metrics(page),
            "configuration.txt": configuration(),
            "cluster.txt": cluster(),
        }
        texts = {name: "\n".join(lines) + "\n" for name, lines in made.items()}
        engine.dispose()
    return texts


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
