"""What serves: rows to learn from, and the models that they choose among."""
