"""Kubernetes: nodes are brought to a state by JSON-Patch and read back by a watch; over httpx2 alone."""
