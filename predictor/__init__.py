"""Features, labels, the model, its evaluation, scoring and explanation."""
