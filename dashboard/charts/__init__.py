"""Charts and their geometry."""
