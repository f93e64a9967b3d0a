"""Faults of a simulated cluster: when nodes fail, what is seen before, what only looks like trouble."""
