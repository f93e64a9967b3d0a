"""`foreshock token` as an operator sees it."""

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from cli.main import foreshock


@pytest.mark.parametrize(
    ("scope", "node", "said"),
    [
        ("act", "gpu-001", "act:reset and act:stop concern every node: they are refused to a token of some"),
        ("act:stop", "gpu-[001-064]", "act:stop concern every node: they are refused to a token of some"),
        ("act", "*", None),
        ("act:approve", "gpu-001", None),
    ],
)
def test_a_scope_that_a_token_of_some_nodes_has_for_nothing_is_told(
    engine: sa.Engine, scope: str, node: str, said: str | None
) -> None:
    """When it is made, not by the 403 of the night in which everything is to be stopped."""
    command = ["token", "new", "desk", "--scope", scope, "--node", node, "--db", str(engine.url)]
    made = CliRunner().invoke(foreshock, command)
    assert made.exit_code == 0
    assert made.stdout.startswith("fsk_")
    assert made.stderr.splitlines()[1:] == ([said] if said else [])
