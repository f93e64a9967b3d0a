"""The background loops, and what each does in a turn."""
