"""People who approve hints in tests."""

from schedulers.lifecycle.approval import ApprovingActor

ALICE = ApprovingActor("alice", "alice")
BOB = ApprovingActor("bob", "bob")
