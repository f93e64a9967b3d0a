"""The ledger that splits a run's wall time, and the advice that follows from it."""
