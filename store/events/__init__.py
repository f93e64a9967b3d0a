"""Events and incidents: appends, pages, and what waits for an incident or a ledger."""
