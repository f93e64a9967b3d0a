"""The tables of the topology beside `links`: cables that were, what devices are called and showed, what nodes share."""

import sqlalchemy as sa

from store.tables.schema import UtcTime, metadata

_TEXTS = ("switch_guid", "port_name", "peer_guid", "peer_port_guid", "hca", "rate")

former_links = sa.Table(  # cables that are so no longer: `links` has what is
    "former_links",
    metadata,
    sa.Column("switch", sa.Text, primary_key=True),
    sa.Column("port", sa.Integer, primary_key=True),
    sa.Column("until", UtcTime, primary_key=True),
    sa.Column("peer", sa.Text, nullable=False),
    sa.Column("peer_port", sa.Integer),
    sa.Column("peer_type", sa.Text, nullable=False),
    *(sa.Column(name, sa.Text) for name in _TEXTS),
    *(sa.Column(name, sa.Integer) for name in ("switch_lid", "peer_lid")),
    sa.Column("since", UtcTime),
    sa.Column("known_by", sa.Text),
    sa.Index(None, "until"),
)

device_names = sa.Table(  # what else a device is called: a name that another one bears later is closed, not deleted
    "device_names",
    metadata,
    sa.Column("class", sa.Text, primary_key=True),  # of the device: nic, gpu, switch, node ...
    sa.Column("device", sa.Text, primary_key=True),  # its place's name: gpu-017/mlx5_3
    sa.Column("kind", sa.Text, primary_key=True),  # guid port_guid lid pci netdev ip serial rank name
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("since", UtcTime, primary_key=True),
    sa.Column("until", UtcTime),  # null: it still is
    sa.Column("known_by", sa.Text),  # the node that told of it; null: the fabric or an operator
    sa.Index(None, "kind", "name"),
    sa.Index(None, "device"),
)

node_groups = sa.Table(  # what nodes share beside the columns of `nodes`; of those columns, what was
    "node_groups",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("class", sa.Text, primary_key=True),  # power cooling storage firmware; rack switch driver nvswitch: past
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("since", UtcTime, primary_key=True),
    sa.Column("until", UtcTime),
    sa.Index(None, "class", "name"),
)

device_watches = sa.Table(  # what is known of each node whose samples others send: counters, its open hour
    "device_watches",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("received", UtcTime, nullable=False),
    sa.Column("state", sa.LargeBinary),  # zstd of JSON; null: nothing yet
    sa.Index(None, "received"),
)
