"""Rows with labels and features as of a moment, the folds of time that cut them, and the workers that compute them."""
