"""People sign in to the dashboard at a real OpenID provider, in a real browser; the API goes by their role."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import uvicorn
from real.chromium import CHROMIUM, Page, opened
from real.openid import CLIENT, provider

from api.app import create_app
from api.server.people_settings import PeopleSettings, RoleMembers
from api.server.settings import ApiSettings, Intervals
from cli.commands.dashboard import DashboardAddress, running
from cli.config.dashboard import DashboardSignIn
from cli.processes.children import free_port
from schedulers.policy.settings import ApprovalRule, Policy
from store.database.connections import open_database, writing
from store.events.append import append_nodes
from store.hints.hint_log import audit_page, read_hint, save_hint
from store.records.hint import Evidence, Hint
from store.records.node import Node

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's package chromium is not installed"),
]
NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
PEOPLE = {
    "u-1": {"email": "alice@example.com", "email_verified": True, "groups": ["oncall"]},
    "u-2": {"email": "bob@example.com", "email_verified": True, "groups": ["oncall"]},
    "u-3": {"email": "vera@example.com", "email_verified": True, "groups": ["users"]},
    "u-4": {"email": "nobody@example.com", "email_verified": True, "groups": []},
}
ROLES = RoleMembers(viewer=("users",), operator=("oncall",), admin=("root@example.com",))


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The provider's address."""
    with provider(tmp_path_factory.mktemp("provider"), PEOPLE) as address:
        yield address


@contextmanager
def served(engine: sa.Engine, issuer: str, most: int | None) -> Iterator[str]:
    """A server whose people sign in, with one hint that waits for them."""
    reason = "foreshock: xid 79 on gpu-017"
    life = (NOW - timedelta(minutes=5), NOW + timedelta(hours=20))
    hint = Hint("h-1", "gpu-017", "cordon", "proposed", reason, "foreshock", *life, Evidence(incident="i-1"))
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-017", gpus=8)])
        save_hint(connection, hint, NOW, {"change": "made"})
    settings = ApiSettings(
        people=PeopleSettings(issuer, CLIENT, roles=ROLES),
        policy=Policy(mode="approve", approval=ApprovalRule(most)),
        intervals=Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0, models_s=0),
    )
    app = create_app(settings, engine, lambda: NOW, wall=lambda: datetime.now(UTC))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def dashboard(api: str, issuer: str, folder: Path) -> Iterator[str]:
    """The address of a dashboard whose people sign in."""
    port = free_port()
    secret = folder / "client-secret"
    secret.write_text("not a secret here\n")
    sign_in = DashboardSignIn("oidc", f"http://localhost:{port}", secret)
    place = DashboardAddress(api, port=port, sign_in=sign_in, people=PeopleSettings(issuer, CLIENT, roles=ROLES))
    with running(place):
        yield f"http://localhost:{port}/hints"


@contextmanager
def signed_in(address: str, subject: str, email: str, shot: Path | None = None) -> Iterator[Page]:
    """A browser of its own in which one person has signed in, as a person does."""
    with opened(address) as page:
        page.wait_for(["Sign in to see the cluster"], 60)
        assert "gpu-017" not in page.text()
        if shot is not None:
            page.screenshot(shot)
        page.click("Sign in")
        wait_until(page, "Authorize Client")
        page.click(subject)
        page.wait_for([email], 60)
        # The provider sends people back to the first page.
        page.call("Page.navigate", url=address)
        page.wait_for([email, "gpu-017", "Who did what"], 60)
        yield page


@pytest.fixture(scope="module")
def looked_at(migrated_file: Path, issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a dashboard for those who only look."""
    folder = tmp_path_factory.mktemp("looked-at")
    engine = open_database(f"sqlite:///{shutil.copyfile(migrated_file, folder / 'foreshock.db')}")
    with served(engine, issuer, None) as api, dashboard(api, issuer, folder) as address:
        yield address
    engine.dispose()


def wait_until(page: Page, text: str) -> None:
    """Wait for a page that is none of Streamlit's."""
    page.wait_for([text], 60)


def audited(engine: sa.Engine) -> list[tuple[str, Any]]:
    """Who did what to the hint, the newest first."""
    with engine.connect() as connection:
        return [(row["actor"], row["action"]) for row in audit_page(connection, 10, None, "h-1")]


def test_a_person_signs_in_approves_and_is_named_in_the_audit(engine: sa.Engine, issuer: str, tmp_path: Path) -> None:
    """By the provider's word, which the API has verified: the dashboard has no token of its own."""
    with (
        served(engine, issuer, None) as api,
        dashboard(api, issuer, tmp_path) as address,
        signed_in(address, "u-1", "alice@example.com", tmp_path / "sign-in.png") as page,
    ):
        assert "operator" in page.text()
        assert "may not reset the breaker" in page.text()
        page.screenshot(tmp_path / "person.png")
        page.click("Approve")
        page.wait_for(["Yes, approve"], 60)
        page.click("Yes, approve")
        page.wait_for(["Approved: cordon gpu-017."], 60)
        page.screenshot(tmp_path / "approved.png")
        assert audited(engine) == [("person:alice@example.com", "approved"), ("policy", "proposed")]
        page.click("Sign out")
        wait_until(page, "End Session")
    assert (tmp_path / "person.png").stat().st_size > 10_000


def test_a_large_approval_takes_two_people_whom_both_pages_name(engine: sa.Engine, issuer: str, tmp_path: Path) -> None:
    """The first approval is recorded and sends nothing; the same person has no second one; another person's sends."""
    with served(engine, issuer, 0) as api, dashboard(api, issuer, tmp_path) as address:
        with signed_in(address, "u-1", "alice@example.com") as page:
            assert "it waits for you and another person" in page.text()
            page.click("Approve")
            page.wait_for(["Yes, approve"], 60)
            page.click("Yes, approve")
            page.wait_for(["1 of 2: it needs another person", "nothing is sent yet"], 60)
            page.screenshot(tmp_path / "first.png")
            assert not page.evaluate("[...document.querySelectorAll('button')].some(b => b.innerText === 'Approve')")
        with signed_in(address, "u-2", "bob@example.com") as page:
            page.wait_for(["alice@example.com", "1 of 2"], 60)
            page.screenshot(tmp_path / "second.png")
            page.click("Approve")
            page.wait_for(["Yes, approve"], 60)
            page.click("Yes, approve")
            page.wait_for(["Approved: cordon gpu-017."], 60)
            page.wait_for(["Approved by: alice@example.com and bob@example.com"], 60)
            page.screenshot(tmp_path / "both.png")
    with engine.connect() as connection:
        hint = read_hint(connection, "h-1")
    assert hint is not None and hint.state == "approved"
    assert audited(engine)[:2] == [("person:bob@example.com", "approved"), ("person:alice@example.com", "proposed")]


def test_a_viewer_sees_the_hint_and_no_button(looked_at: str, tmp_path: Path) -> None:
    """And is told which are absent, and why."""
    with signed_in(looked_at, "u-3", "vera@example.com") as page:
        assert "Your role (viewer) may not approve or withdraw hints, stop or resume hints or reset" in page.text()
        labels = page.evaluate("[...document.querySelectorAll('button')].map(b => b.innerText)")
        assert not {"Approve", "Withdraw", "Undo"} & set(labels)
        assert not any("Stop all" in label for label in labels)
        page.screenshot(tmp_path / "viewer.png")


def test_a_person_without_a_role_sees_nothing(looked_at: str, tmp_path: Path) -> None:
    """Signed in at the provider, and yet nobody here."""
    with opened(looked_at) as page:
        page.wait_for(["Sign in to see the cluster"], 60)
        page.click("Sign in")
        wait_until(page, "Authorize Client")
        page.click("u-4")
        page.wait_for(["has no role here"], 60)
        assert "gpu-017" not in page.text()
        page.screenshot(tmp_path / "no-role.png")
