"""What the ledgers of all runs come to: losses by cause, days, the levels of a cluster, the report."""
