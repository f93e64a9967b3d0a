"""Samples of devices to events and node-hour roll-ups: pure, with plain JSON as state."""
