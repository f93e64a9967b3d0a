"""Telemetry: names of measures, hourly roll-ups, archive files, and the table of hours."""
