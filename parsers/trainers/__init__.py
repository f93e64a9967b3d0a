"""The training programs whose logs are read: one file each, a table of what its lines look like."""
