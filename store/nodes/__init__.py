"""Nodes: inventory, present state, history, and sidecars."""
