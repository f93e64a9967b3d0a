"""What follows from a ledger: when to save, how many spares to keep, what each change would gain."""
