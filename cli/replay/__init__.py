"""The demo's replayed cluster: its clock and its exporter."""
