"""NVLinks that err as no other of their domain does."""
