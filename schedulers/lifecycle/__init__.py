"""Hints after the decision: the turn that writes them, operator actions, tests before a release, hindsight."""
