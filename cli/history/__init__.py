"""A Prometheus's history, read and written to the store."""
