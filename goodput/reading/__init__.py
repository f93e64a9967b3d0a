"""Reading the store: the logs, records and ledgers of runs."""
