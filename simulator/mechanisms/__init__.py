"""Mechanisms of a simulated world: each changes how its nodes fail, or what is seen of it."""
