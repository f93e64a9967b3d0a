"""Databases: opening, migration, partitions, leases, retention, export and status."""
