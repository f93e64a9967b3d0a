"""Nodes that slow their job down: told apart from their job's peers, and only with the job's own loss in time."""
