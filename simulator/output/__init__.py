"""Output of a simulated cluster: logs, telemetry and tables as the real tools write them, and the truth beside them."""
