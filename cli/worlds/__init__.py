"""Simulated worlds that differ, and how the predictor does in those whose mechanisms it was not made on."""
