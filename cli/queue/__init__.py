"""A consumer of batches from a NATS queue."""
