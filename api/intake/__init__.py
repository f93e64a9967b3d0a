"""Records that come in, on their way to the store."""
