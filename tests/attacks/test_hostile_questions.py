"""What an address asks for may be anything: a text or a cursor of nobody's is refused, on either database."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.answers.paging import PageCursor

from .token_site import NOW, made_client


@pytest.fixture
def client(any_engine: sa.Engine) -> Iterator[TestClient]:
    """A server without tokens."""
    with made_client(any_engine) as client:
        yield client


@pytest.mark.parametrize("path", ["audit", "breaker", "policies", "rules", "goodput/causes", "hints"])
@pytest.mark.parametrize("number", [2**31, 10**17 - 1, 10**30])
def test_a_cursor_beyond_every_number_is_none(client: TestClient, path: str, number: int) -> None:
    """Of a list that is numbered; `since` of hints is such a cursor, too."""
    name = "since" if path == "hints" else "cursor"
    answer = client.get(f"/api/v1/{path}", params={name: PageCursor(NOW, str(number)).encode()})
    assert answer.status_code == 422


@pytest.mark.parametrize("nodes", ["\x00", "gpu-[001-002]\x00", "a,b\x00c"])
def test_a_node_with_a_nul_is_asked_of_no_database(client: TestClient, nodes: str) -> None:
    """PostgreSQL takes none in a text."""
    assert client.get("/api/v1/placement", params={"nodes": nodes}).status_code == 422
