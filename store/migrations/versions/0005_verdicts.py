"""What verdicts need: verdicts with each change of them, whom they touch, events that wait; the topology.

Cables with both their ends and their past, what devices are called, what nodes share.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0005"
down_revision = "0004"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    _create_verdicts()
    _create_topology()


def _create_verdicts() -> None:
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("class", "name")),
        sa.Column("node", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("probability", sa.Float, nullable=False),
        *(sa.Column(name, UtcTime, nullable=False) for name in ("since", "opened", "changed")),
        sa.Column("ended", UtcTime),
        sa.Column("why", sa.Text),
        sa.Column("explained_by", sa.Text),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_verdicts"),
    )
    for columns in (["since", "id"], ["node", "since"], ["changed"], ["ended"]):
        op.create_index(f"ix_verdicts_{'_'.join(columns)}", "verdicts", columns)
    standing = sa.text("state IN ('open', 'revised')")
    op.create_index("ix_verdicts_standing", "verdicts", ["id"], postgresql_where=standing, sqlite_where=standing)
    op.create_table(
        "verdict_revisions",
        sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("time", UtcTime, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("state", "what")),
        sa.Column("probability", sa.Float, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_verdict_revisions_verdict_seq", "verdict_revisions", ["verdict", "seq"])
    op.create_index("ix_verdict_revisions_time", "verdict_revisions", ["time"])
    op.create_table(
        "verdict_subjects",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("verdict", "kind", "name")),
        sa.PrimaryKeyConstraint("verdict", "kind", "name", name="pk_verdict_subjects"),
    )
    op.create_index("ix_verdict_subjects_kind_name_verdict", "verdict_subjects", ["kind", "name", "verdict"])
    op.create_table(
        "symptom_news",
        sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("received", UtcTime, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("events", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )


_OF_LINKS: dict[str, sa.types.TypeEngine[Any]] = {
    **dict.fromkeys(("switch_guid", "port_name", "peer_guid", "peer_port_guid", "hca", "rate"), sa.Text()),
    **dict.fromkeys(("switch_lid", "peer_lid"), sa.Integer()),
    "since": UtcTime(),
    "known_by": sa.Text(),
}


def _create_topology() -> None:
    """Cables with both ends and their past, what devices are called, what nodes share."""
    for name, kind in _OF_LINKS.items():
        op.add_column("links", sa.Column(name, kind))
    op.create_index("ix_links_peer", "links", ["peer"])
    op.create_table(
        "former_links",
        sa.Column("switch", sa.Text, nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("until", UtcTime, nullable=False),
        sa.Column("peer", sa.Text, nullable=False),
        sa.Column("peer_port", sa.Integer),
        sa.Column("peer_type", sa.Text, nullable=False),
        *(sa.Column(name, kind) for name, kind in _OF_LINKS.items()),
        sa.PrimaryKeyConstraint("switch", "port", "until", name="pk_former_links"),
    )
    op.create_index("ix_former_links_until", "former_links", ["until"])
    op.create_table(
        "device_names",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("class", "device", "kind", "name")),
        sa.Column("since", UtcTime, nullable=False),
        sa.Column("until", UtcTime),
        sa.Column("known_by", sa.Text),
        sa.PrimaryKeyConstraint("class", "device", "kind", "name", "since", name="pk_device_names"),
    )
    op.create_index("ix_device_names_kind_name", "device_names", ["kind", "name"])
    op.create_index("ix_device_names_device", "device_names", ["device"])
    op.create_table(
        "node_groups",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("node", "class", "name")),
        sa.Column("since", UtcTime, nullable=False),
        sa.Column("until", UtcTime),
        sa.PrimaryKeyConstraint("node", "class", "name", "since", name="pk_node_groups"),
    )
    op.create_index("ix_node_groups_class_name", "node_groups", ["class", "name"])
    op.create_table(
        "run_stops",
        sa.Column("run", sa.Text, nullable=False),
        *(sa.Column(name, UtcTime, nullable=False) for name in ("end", "made")),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run", "end", name="pk_run_stops"),
    )


def downgrade() -> None:
    """Drop them."""
    for name in ("run_stops", "node_groups", "device_names", "former_links"):
        op.drop_table(name)
    op.drop_index("ix_links_peer", "links")
    for name in _OF_LINKS:
        op.drop_column("links", name)
    for name in ("symptom_news", "verdict_subjects", "verdict_revisions", "verdicts"):
        op.drop_table(name)
