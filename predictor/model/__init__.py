"""A model: how it is fitted, calibrated, measured and chosen against the baselines."""
