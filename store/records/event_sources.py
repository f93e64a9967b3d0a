"""What each source of events can witness: the machine itself, work and plans, or what another already said.

A source that is not named here sees the machine with its own eyes: the kernel log, an exporter's counters, the subnet
manager, a switch, Fabric Manager.
"""

# What tells the iterations, saves and stalls of a run, the most exact first: a hook times each step, a log's lines are
# whole seconds. The ledger reads each piece of work once (`goodput/log/sources.py`).
RUN_LOGS = ("hook", "otel", "mlgoodput", "training", "dlrover")
# What shows the directories of checkpoints: saves, whoever wrote them.
CHECKPOINTS = "checkpoints"
# What programs say of their work. They notice a fault minutes after the machine did, and it is theirs as often as not;
# the ledger and the culprit's search read them by themselves.
WORK = frozenset({*RUN_LOGS, CHECKPOINTS, "nvrx"})
# What a scheduler keeps books of. A node that is down or drained is the consequence of a fault, or a person's wish;
# outages have a table of their own.
SCHEDULERS = frozenset({"sacct", "sacctmgr", "sinfo", "scontrol", "squeue"})
# What repeats others: they read the same kernel log, the same counters. They make incidents, since they may be the
# only ones that were asked, but the witness itself names the fault, and nothing counts twice.
DETECTORS = frozenset({"alertmanager", "gpud", "kubernetes", "nhc", "nvsentinel"})

# What a sidecar says of itself: that it lost something is no fault of the machine that it watches.
SELF = frozenset({"sidecar"})

# Sources that report no faults of the machine.
NO_FAULT = WORK | SCHEDULERS | SELF
# Sources that say nothing new of a node's health: a site's alerts are made of what is measured here, and of our own
# scores too. A score that raises an alert must not be raised by it.
NO_SIGN = NO_FAULT | {"alertmanager"}
