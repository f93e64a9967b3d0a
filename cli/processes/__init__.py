"""Child processes of a command."""
