"""The predictor's models: registry, scores, and the scorings that judge a model."""
