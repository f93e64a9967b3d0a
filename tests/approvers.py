"""People who approve hints in tests."""

from schedulers.lifecycle.approval import HintApprover

ALICE = HintApprover("alice", "alice")
BOB = HintApprover("bob", "bob")
