"""The server in one process: settings, state, counters."""
