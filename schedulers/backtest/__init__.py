"""Stored history replays a policy: its hints, their measures, what they would have saved."""
