"""The spool: what was read and not yet accepted by the server, on disk."""
