"""The ledger that splits a run's wall time, and the advice that follows from it.

Begin with `ledger.py`, the record, and `account.py`, which splits one run's wall time and names the
parts that do it. From below:

    timeline.py   buckets, and a line of time that is painted from left to right
    formulas/     published formulas and statistics, on plain numbers
    log/          a run's training log: its lines, several sources as one, its pace, the log folded
    wall_time/    attempts, each painted by itself, laid onto one wall time, with what interrupted them
    ledger.py     the record of one run
    account.py    all of it put together
    reading/      what the store has of runs, as `account` reads it
    cluster/      what the ledgers of all runs come to: causes, days, levels, the report
    advice/       when to save, how many spares to keep, what each change would gain
    stored/       ledgers kept in the store, and brought up to date

Each imports those above it in this list alone, and `cluster` and `advice` not each other.
"""
