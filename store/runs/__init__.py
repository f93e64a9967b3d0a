"""Training runs: jobs, logs, goodput ledgers and losses."""
