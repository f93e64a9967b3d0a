"""The policy in force, the ones before it, and a file that is changed while the server runs."""

from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.loops.turns import Turns
from api.server.state import State
from cli.config.server import load_settings
from schedulers.policy.settings import Policy, version_of

from .conftest import QUIET, Clock


def served(engine: sa.Engine, clock: Clock, file: Path) -> TestClient:
    """A server with a file, whose loops stand still."""
    settings = replace(load_settings(file, {}), intervals=QUIET.intervals)
    return TestClient(create_app(settings, engine, clock))


def test_the_policy_in_force_is_told_with_its_version(client: TestClient) -> None:
    """Without a file the defaults hold."""
    told = client.get("/api/v1/policy").json()
    assert told["version"] == version_of(Policy())
    assert (told["mode"], told["place"], told["errors"], told["problem"]) == ("shadow", "the defaults", 0, None)
    assert told["policy"]["thresholds"]["watch"] == 0.02
    assert client.get("/api/v1/policies").json() == {"items": [], "next_cursor": None}


def test_a_file_is_named_and_each_version_listed(engine: sa.Engine, clock: Clock, tmp_path: Path) -> None:
    """As the loop writes them down, once each, in pages."""
    file = tmp_path / "server.yaml"
    file.write_text("mode: approve\n")
    with served(engine, clock, file) as client:
        told = client.get("/api/v1/policy").json()
        assert (told["mode"], told["place"]) == ("approve", str(file))
    for mode in ("approve", "approve", "act"):
        file.write_text(f"mode: {mode}\n")
        Turns(State(load_settings(file, {}), engine, clock), lambda: 0.0).policies(lambda: True)
    with served(engine, clock, file) as client:
        first = client.get("/api/v1/policies", params={"limit": 1}).json()
        rest = client.get("/api/v1/policies", params={"cursor": first["next_cursor"]}).json()
    assert [item["policy"]["mode"] for item in first["items"] + rest["items"]] == ["act", "approve"]
    assert first["items"][0]["version"] == version_of(Policy(mode="act"))
    assert rest["next_cursor"] is None
