"""`GET /search`."""

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from store.database.connections import writing
from store.events.append import append_nodes
from store.records.node import Node
from wire.message import Page
from wire.nodes import SearchResultJson


def test_a_name_is_found_and_blanks_around_it_do_not_matter(client: TestClient, engine: sa.Engine) -> None:
    """One page, of the published shape."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-017", "r3"), Node("gpu-018")])
    reply = client.get("/api/v1/search", params={"q": "  gpu-017 "})
    check_answer(Page[SearchResultJson], reply.json())
    node = {"kind": "node", "id": "gpu-017", "name": "gpu-017", "detail": "rack r3", "node": "gpu-017"}
    assert reply.json() == {"items": [node], "next_cursor": None}


@pytest.mark.parametrize("query", ["", "q=", "q=%20", "q=a%00b", f"q={'x' * 256}", "q=a&limit=51"])
def test_a_search_for_nothing_is_refused(client: TestClient, query: str) -> None:
    """With the field and what to write."""
    assert client.get(f"/api/v1/search?{query}").status_code == 422
