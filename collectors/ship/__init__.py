"""The way to the server: batches, heartbeats, transports, retries."""
