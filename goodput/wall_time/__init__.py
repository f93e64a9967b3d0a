"""The parts of a ledger: a run's attempts, each painted by itself, then laid onto one wall time."""
