"""The known past of a fleet as compact arrays, read from the store: nodes, events, outages, telemetry, jobs."""
